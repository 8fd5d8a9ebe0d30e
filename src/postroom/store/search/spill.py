"""Arrays put aside in a file without a name, so that they take no memory until they are read."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from postroom.errors import StorageFull
from postroom.store.search.arrays import U32

_MOST_IN_MEMORY = 4 << 20


@dataclass(frozen=True, slots=True)
class Aside:
    """Where some numbers were put."""

    at: int
    count: int

    def part(self, first: int, last: int) -> Aside:
        """Some of them."""
        return Aside(self.at + 4 * first, last - first)


class Spill:
    """A file for as long as it is needed; what is small stays in memory."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - see close
            _MOST_IN_MEMORY, dir=_folder()
        )

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def put(self, values: U32) -> Aside:
        """Put numbers aside. Raises StorageFull."""
        with _told_when_full():
            at = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(values).tobytes())
        return Aside(at, values.size)

    def get(self, aside: Aside) -> U32:
        """Numbers that were put aside."""
        self._file.seek(aside.at)
        return np.frombuffer(self._file.read(4 * aside.count), np.uint32)


def _folder() -> str:
    """Where large files may be put for a while. The usual place is often in memory itself."""
    usual, large = tempfile.gettempdir(), "/var/tmp"  # noqa: S108 - the file has no name there
    return large if usual == "/tmp" and os.access(large, os.W_OK | os.X_OK) else usual  # noqa: S108


@contextmanager
def _told_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFull(
            f"no space in {_folder()} to merge the search index; free some, or name "
            "another folder in TMPDIR"
        ) from error
