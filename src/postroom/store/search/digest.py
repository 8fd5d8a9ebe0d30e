"""A number for all rows of a segment, written with them: what is damaged does not fit it.

The text of a removed message is gone, so a segment that had it cannot be made again to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from postroom.store.search.kinds import Kind, SegmentRow

_BYTES = 16


class Digest:
    """Takes rows in any order."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, row: SegmentRow) -> None:
        """Take one more."""
        kind, key, part, value = row
        own = blake2b(b"%d %d %d " % (kind, part, len(key)), digest_size=_BYTES)
        own.update(key)
        own.update(value)
        self._sum += int.from_bytes(own.digest(), "big")

    def row(self) -> SegmentRow:
        """The row that speaks of all that were taken."""
        value = (self._sum % (1 << 8 * _BYTES)).to_bytes(_BYTES, "big")
        return SegmentRow(Kind.DIGEST, b"", 0, value)


def with_digest(rows: Iterable[SegmentRow]) -> Iterator[SegmentRow]:
    """The rows, and after them the one that speaks of all."""
    digest = Digest()
    for row in rows:
        digest.add(row)
        yield row
    yield digest.row()
