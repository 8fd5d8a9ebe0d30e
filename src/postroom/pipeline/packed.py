"""Files that may be packed: read and written as if they were not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file on disk and its content, unpacked if its name ends in .xz or .gz.

    Raises:
        OSError: it cannot be read, or is damaged; also in the middle of reading.
    """
    with path.open("rb") as disk:
        if path.suffix not in (".xz", ".gz"):
            yield disk, disk
            return
        with _damage_is_an_os_error(path), _packed(path.suffix, disk, "rb") as content:
            yield disk, content


@contextmanager
def packing(suffix: str, disk: IO[bytes]) -> Iterator[IO[bytes]]:
    """Somewhere to write what shall be on disk, packed if the suffix says so."""
    if suffix not in (".xz", ".gz"):
        yield disk
        return
    with _packed(suffix, disk, "wb") as content:
        yield content


def _packed(suffix: str, disk: IO[bytes], mode: str) -> Any:
    if suffix == ".xz":
        import lzma

        return lzma.open(disk, mode)
    import gzip

    return gzip.open(disk, mode)


@contextmanager
def _damage_is_an_os_error(path: Path) -> Iterator[None]:
    import lzma
    import zlib

    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise OSError(f"the {path.suffix} file is damaged: {error}") from error
