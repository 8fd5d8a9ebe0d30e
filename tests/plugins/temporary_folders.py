"""Temporary folders are in memory if there is enough of it.

Each test opens a data folder, and its syncs to disk take more time than all computation. The tests
check which files are synced and in which order, not whether a disk keeps them. `TMPDIR=/tmp make
test` puts them on disk.
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
    """Whether the file system is large enough, and the machine has as much memory."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    return min(shutil.disk_usage(_MEMORY).free, _available_bytes()) >= _ROOM_BYTES


def _available_bytes() -> int:
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def pytest_configure(config: pytest.Config) -> None:
    """Set `TMPDIR`, which child processes, such as those of xdist, inherit."""
    if "TMPDIR" in os.environ or not has_room():
        return
    folder = config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="postroom-", dir=_MEMORY))
    folder.chmod(0o711)  # servers that drop root privileges traverse it
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the files after a failure, for inspection."""
    if exitstatus != pytest.ExitCode.OK and _FOLDER in session.config.stash:
        del session.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)
