"""Copies a SQLite file that is in use, and replaces a database by the copy atomically."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from postroom.errors import Conflict
from postroom.store.sqlite.connection import Role, connect, sqlite_errors

NEW_FILE, _LOCK_FILE = ".new-postroom.db", ".backup-lock"
_BESIDE = ("-wal", "-shm", "-journal")
SECRET = "SELECT value FROM {metadata} WHERE name = 'secret'"  # noqa: S105 - SQL, not a secret
NAME_HERE = """
    SELECT value FROM {metadata} WHERE name IN ('installation', 'house')
     AND NOT EXISTS (SELECT 1 FROM {metadata} WHERE name IN ('migrated', 'moved'))
"""
_METADATA = ("metadata", "facts")
"""What the table is called, and what it was called before schema 40."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Create a folder, and lock it against other backups.

    At the end an incomplete copy is removed, and so is a new folder that is empty.

    Raises:
        Conflict: another backup or restore into it is running.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / _LOCK_FILE
    try:
        handle = _locked(path)
        try:
            yield
        finally:
            _remove(folder / NEW_FILE)
            path.unlink(missing_ok=True)  # while it is ours
            os.close(handle)
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def _locked(path: Path) -> int:
    """A descriptor of the locked file; its previous holder may have removed it meanwhile."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(handle)
            raise Conflict(
                f"another backup into {path.parent} is running; wait for it, or stop it"
            ) from None
        os.close(handle)


def copy_database(path: Path, to: Path) -> None:
    """Write one moment of the database to another file; writers are not blocked."""
    _remove(to)
    with sqlite_errors():
        source, copy = connect(path, Role.SCANNER), apsw.Connection(str(to))
        try:
            to.chmod(0o600)
            with copy.backup("main", source, "main") as backup:
                backup.step()
        finally:
            copy.close()
            source.close()


def replace_database(new: Path, to: Path) -> None:
    """Replace a database by a complete copy, or put the copy where there is none.

    Raises:
        Conflict: a process has the database open.
    """
    _sync(new)  # before locking: closing a file ends the locks on it
    with database_lock(new), database_lock(to):
        os.rename(new, to)
    _sync(to.parent)


def check_replaceable(path: Path, replaced: bytes | None) -> None:
    """Check that the database may be replaced: it has the secret *replaced*, and is not in use.

    Raises:
        Conflict: it may not.
    """
    if path.exists() and (replaced is None or secret_of(path) != replaced):
        raise Conflict(f"{path} has the mail of another installation; name another folder")
    with database_lock(path):
        return


def secret_of(path: Path) -> bytes | None:
    """The secret of an installation; None if there is no database, or it cannot be read."""
    return _metadata(path, SECRET)


def installation_of(path: Path) -> str | None:
    """The id of an installation; None like `secret_of`, and if it was migrated away."""
    name = _metadata(path, NAME_HERE)
    return name.decode() if name else None


def _opened(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)


def _metadata(path: Path, query: str) -> bytes | None:
    """A value of a database that may have to be upgraded first."""
    for table in _METADATA:
        with suppress(apsw.Error), closing(_opened(path)) as database:
            row = database.execute(query.format(metadata=table)).fetchone()
            return bytes(row[0]) if row else None
    return None


@contextmanager
def database_lock(path: Path) -> Iterator[apsw.Connection | None]:
    """Lock a database exclusively; its write-ahead log is merged into the file.

    A log without its database may hold mail that was acknowledged, so it is not removed.

    Raises:
        Conflict: a process has the database open, it is not a database, or there is only a log.
    """
    if not path.exists():
        _refuse_lone_logs(path)
        yield None
        return
    database = _opened(path)
    try:
        # Possible only without other connections; SQLite then removes the log.
        database.pragma("journal_mode", "delete")
        database.execute("BEGIN EXCLUSIVE")
        yield database
    except apsw.BusyError as error:
        raise Conflict(f"{path} is in use; stop its servers, or name another folder") from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
        raise Conflict(f"{path} is not a Postroom database, or is damaged; move it away") from error
    finally:
        database.close()


def _refuse_lone_logs(path: Path) -> None:
    for log in _files_beside(path):
        if log.exists():
            raise Conflict(
                f"{log} belongs to a database that is not here and may hold its newest mail; "
                "move it to that database, or remove it"
            )


def _remove(path: Path) -> None:
    """Remove a copy and its logs."""
    for left_over in (path, *_files_beside(path)):
        left_over.unlink(missing_ok=True)


def _files_beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in _BESIDE]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
