"""The door to bytes: raw mail and attachments, kept under the SHA-256 of their content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from postroom.model.attachment import BlobKey

UsedBlobs = Callable[[Sequence[BlobKey]], Awaitable[frozenset[BlobKey]]]
"""Tells which of some blobs are still needed."""


class OwnerMark(Protocol):
    """The name of the house whose blobs these are, written beside them."""

    @property
    def place(self) -> str:
        """Where the blobs are, for people to read; the mark is `.house` in it."""

    async def read(self) -> str | None:
        """The name of the house; None if nobody has marked the place."""

    async def write(self, house: str) -> None:
        """Mark the place, whoever had it before."""

    async def remove(self) -> None: ...

    async def has_blobs(self) -> bool:
        """Whether there is any blob."""


class BlobStore(Protocol):
    """Content-addressed bytes.

    Whoever removes some must have looked at the mark: two houses that share a place would remove
    each other's.
    """

    @property
    def mark(self) -> OwnerMark: ...

    async def put(self, contents: Iterable[bytes], *, anew: bool = False) -> list[BlobKey]:
        """Keep each content and return its key; when this returns, all of it is on disk.

        What is there already is written only *anew*, over what may be damaged.

        Raises:
            StorageFull: there is no space; nothing that was there before is harmed.
        """

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        """Those of the keys under which there is nothing."""

    async def sizes(self, keys: Sequence[BlobKey]) -> dict[BlobKey, int]:
        """How many bytes there are under those of the keys under which there is something.

        Whoever asks is about to say that these are kept, so nobody answers on a broken disk.
        """

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        """Return the bytes from *offset* on, at most *size* of them.

        Raises:
            NotFound: there is no such blob.
        """

    def stream(self, key: BlobKey) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces. Raises NotFound at the first piece."""

    async def damage(self, key: BlobKey, size: int) -> str | None:
        """Read a blob and say what is wrong with it; None if it is whole."""

    async def discard(self, keys: Sequence[BlobKey], used: UsedBlobs) -> None:
        """Remove those of the blobs that are not in use."""

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        """Remove every old blob that is not in use and return how many there were.

        Safe while others write: a blob that is put again counts as new.
        """

    async def check(self) -> None:
        """Raise what stands in the way of keeping a mail now: find out by keeping something."""


@runtime_checkable
class LinksBlobs(Protocol):
    """Blobs that can be fetched without us."""

    async def link(self, key: BlobKey, *, lasting: timedelta) -> str:
        """An address that gives the content to whoever has it, for a while.

        Raises:
            NotFound: there is no such blob.
        """
