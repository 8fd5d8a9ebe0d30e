"""Temporary folders are in memory where there is room for them.

Each test opens a data folder of its own, and what it syncs to disk costs more time than all that
it computes. What the tests check is which files are synced and in which order; whether a disk
keeps them is not theirs to check. `TMPDIR=/tmp make test` has them on disk all the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 2**30
_FOLDER = pytest.StashKey[Path]()


def has_room() -> bool:
    """Whether the folder is large enough, and the machine has as much memory."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    return min(shutil.disk_usage(_MEMORY).free, _available_bytes()) >= _ROOM_BYTES


def _available_bytes() -> int:
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def pytest_configure(config: pytest.Config) -> None:
    """Processes that are started from here, those of xdist first of all, inherit `TMPDIR`."""
    if "TMPDIR" in os.environ or not has_room():
        return
    folder = config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="postroom-", dir=_MEMORY))
    folder.chmod(0o711)  # servers that give up root pass through it
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After a failure somebody may want to see what the test has left."""
    if exitstatus != pytest.ExitCode.OK and _FOLDER in session.config.stash:
        del session.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)
