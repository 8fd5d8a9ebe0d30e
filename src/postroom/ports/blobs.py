"""The blob store: raw mail and attachments under the SHA-256 of their content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from postroom.model.mail.message import BlobKey

UsedBlobs = Callable[[Sequence[BlobKey]], Awaitable[frozenset[BlobKey]]]
"""Returns those of the blobs that are in use."""


class InstallationMark(Protocol):
    """The id of the installation that owns the blobs, stored beside them."""

    @property
    def place(self) -> str:
        """Where the blobs are, as text for people; the mark is `installation.json` in it."""

    @property
    def is_outdated(self) -> bool:
        """Whether the mark is one of an earlier version, which `write` replaces."""

    async def read(self) -> str | None:
        """The id of the owner; None if there is no mark."""

    async def write(self, installation_id: str) -> None:
        """Write the mark, or replace it."""

    async def remove(self) -> None: ...

    async def has_blobs(self) -> bool:
        """Whether there is any blob."""


class BlobStore(Protocol):
    """Content-addressed bytes.

    Compare the mark before removing blobs: two installations that share a place would remove each
    other's.
    """

    @property
    def mark(self) -> InstallationMark: ...

    async def put(self, contents: Iterable[bytes], *, overwrite: bool = False) -> list[BlobKey]:
        """Store each content and return its key; when this returns, all of it is on disk.

        A blob that exists is written again only with *overwrite*, to replace what may be damaged.

        Raises:
            StorageFull: there is no space; existing blobs are not damaged.
        """

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        """Those of the keys that have no blob."""

    async def sizes(self, keys: Sequence[BlobKey]) -> dict[BlobKey, int]:
        """The sizes in bytes of those of the blobs that exist.

        Raises an error if the disk fails: the caller is about to confirm that these are stored.
        """

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes from *offset* on, at most *size* of them.

        Raises:
            NotFound: there is no such blob.
        """

    def stream(self, key: BlobKey) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces. Raises NotFound at the first piece."""

    async def find_damage(self, key: BlobKey, size: int) -> str | None:
        """Read a blob and describe its damage; None if it is intact."""

    async def discard(self, keys: Sequence[BlobKey], used: UsedBlobs) -> None:
        """Remove those of the blobs that are not in use."""

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        """Remove every old blob that is not in use; return how many.

        Safe during writes: a blob that is stored again counts as new.
        """

    async def check(self) -> None:
        """Raise an error if a mail could not be stored now: tries it with a blob."""


@runtime_checkable
class EstimatesSize(Protocol):
    """A blob store that knows about how large it is."""

    async def estimated_bytes(self) -> int:
        """The size of all blobs, from a sample of them."""


@runtime_checkable
class SupportsLinks(Protocol):
    """A blob store that can give out links to blobs."""

    async def link(self, key: BlobKey, *, lifetime: timedelta) -> str:
        """A URL that gives the content to anyone who has it, for a limited time.

        Raises:
            NotFound: there is no such blob.
        """
