"""A whole copy of a SQLite file while others read and write it, and how it takes its place."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from postroom.errors import Conflict
from postroom.store.sql.houses import NAME
from postroom.store.sqlite.connection import Role, connect, sqlite_errors

NEW_FILE, _LOCK_FILE = ".new-postroom.db", ".backup-lock"
_BESIDE = ("-wal", "-shm", "-journal")
SECRET = "SELECT value FROM facts WHERE name = 'secret'"  # noqa: S105 - the name of a fact
NAME_HERE = f"{NAME} AND NOT EXISTS (SELECT 1 FROM facts WHERE name = 'moved')"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other backups out of it.

    A copy that did not get to its place goes again, and so does a folder that stayed empty.

    Raises:
        Conflict: another backup or restore into it is under way.
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
    """A lock on a file, which whoever had it before us may have removed meanwhile."""
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
                f"another backup into {path.parent} is under way; let it end, or end it"
            ) from None
        os.close(handle)


def copy_database(path: Path, to: Path) -> None:
    """Write one moment of the database to another file.

    A write-ahead log lets writers go on meanwhile.
    """
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


def put_in_place(new: Path, to: Path) -> None:
    """Let a copy, which is whole, take the place of a database that nobody has open.

    Raises:
        Conflict: somebody has.
    """
    _sync(new)  # not inside: to close a file ends the locks on it
    with alone_with(new), alone_with(to):
        os.rename(new, to)
    _sync(to.parent)


def check_place(path: Path, replaced: bytes | None) -> None:
    """Refuse to replace a database that is in use, or of another house than the one given.

    Raises:
        Conflict: it is one.
    """
    if path.exists() and (replaced is None or secret_of(path) != replaced):
        raise Conflict(f"{path} is the mail of another house; name another folder")
    with alone_with(path):
        return


def secret_of(path: Path) -> bytes | None:
    """What tells a house from others; None where there is none, or not one that can be read."""
    return _fact(path, SECRET)


def house_of(path: Path) -> str | None:
    """What tells a house also from its copies; None like `secret_of`, and if it has moved away."""
    name = _fact(path, NAME_HERE)
    return name.decode() if name else None


def _fact(path: Path, question: str) -> bytes | None:
    try:
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            row = database.execute(question).fetchone()
        finally:
            database.close()
    except apsw.Error:
        return None
    return bytes(row[0]) if row else None


@contextmanager
def alone_with(path: Path) -> Iterator[apsw.Connection | None]:
    """Keep others from a database for a moment; what its log holds is in the file then.

    A log without its file may hold mail that was acknowledged: what it belongs to is not ours
    to guess.

    Raises:
        Conflict: somebody has the database open, it is none, or there is only its log.
    """
    if not path.exists():
        _refuse_lone_logs(path)
        yield None
        return
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # Only who is alone may leave the log behind; SQLite removes it then.
        database.pragma("journal_mode", "delete")
        database.execute("BEGIN EXCLUSIVE")
        yield database
    except apsw.BusyError as error:
        raise Conflict(f"{path} is in use; stop what runs there, or name another folder") from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
        raise Conflict(f"{path} is no mail of ours, or damaged; move it away") from error
    finally:
        database.close()


def _refuse_lone_logs(path: Path) -> None:
    for log in _files_beside(path):
        if log.exists():
            raise Conflict(
                f"{log} belongs to a database that is not there any more and may hold its newest "
                "mail; put it where that is, or remove it"
            )


def _remove(path: Path) -> None:
    """Remove what is left of a copy, if anything is."""
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
