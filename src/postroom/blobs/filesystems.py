"""Syncing a whole filesystem by one call, which is much cheaper than a sync of each of many files.

`syncfs` is used where it is known to wait for the disk and to report errors: on Linux from 5.8 on,
and on filesystems of a local disk. Everywhere else each file is synced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_SAFE_KINDS = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
_MIN_KERNEL = (5, 8)
_MOUNTS = Path("/proc/self/mountinfo")


@contextmanager
def filesystem_sync(folder: Path) -> Iterator[Callable[[], None] | None]:
    """A function that syncs all files on the filesystem of a folder; None if there is none.

    It raises OSError also for what failed since the context began, so begin it before writing.
    """
    call = _syncfs() if _kind(folder) in _SAFE_KINDS else None
    if call is None:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield lambda: call(descriptor)
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Callable[[int], None] | None:
    if sys.platform != "linux" or _kernel() < _MIN_KERNEL:
        return None
    # Imported on first use: a single mail does not need it.
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None

    def call(descriptor: int) -> None:
        if function(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return call


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


@cache
def _kind(folder: Path) -> str | None:
    """The type of the filesystem of a folder, from the list of mounts; None if it is not there."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for fields in map(str.split, lines):
        if fields[2] == name:
            return fields[fields.index("-") + 1]
    return None
