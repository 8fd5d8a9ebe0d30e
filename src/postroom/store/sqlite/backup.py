"""A whole copy of a SQLite file while others read and write it."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from postroom.store.sqlite.connection import Role, connect, sqlite_errors


def copy_database(path: Path, to: Path) -> None:
    """Write one moment of the database to another file, which appears when it is whole.

    A write-ahead log lets writers go on meanwhile.
    """
    to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = to.with_name(f".new-{to.name}")
    new.unlink(missing_ok=True)
    with sqlite_errors():
        source, copy = connect(path, Role.SCANNER), apsw.Connection(str(new))
        try:
            new.chmod(0o600)
            with copy.backup("main", source, "main") as backup:
                backup.step()
            # Else the first who opens it would have to recover a log that is not there.
            copy.pragma("journal_mode", "delete")
        finally:
            copy.close()
            source.close()
    _sync(new)
    os.rename(new, to)
    _sync(to.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
