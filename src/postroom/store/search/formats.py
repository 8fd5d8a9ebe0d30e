"""How a segment was made: what its rows can answer depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """What is kept of the texts of a segment.

    `ahead` says, for each of the three texts, how many tokens after a place are looked at.
    Of a token that is too long, its end is kept, or all of it in pieces that overlap. A digest
    tells whether the rows are those that were written.
    """

    ahead: tuple[int, int, int]
    has_pieces: bool
    has_digest: bool


FORMATS = {
    1: Format((4, 4, 4), has_pieces=False, has_digest=False),
    2: Format((4, 12, 12), has_pieces=True, has_digest=True),
}
"""Every format that a segment of ours may have. An address is longer than five tokens."""

NEWEST = max(FORMATS)

WHOLE = 40
"""What has at most so many bytes is in one piece of a token, wherever it is."""
