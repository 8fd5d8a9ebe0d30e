"""Which segments to merge: so many of about one size become one, and few are ever read again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_DECAYED = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large segments are: `tail` messages become one, `fan_out` of a size become one.

    When no mail comes for `quiet_s`, `quiet_tail` messages are enough, and segments become one
    unless the larger has more than `quiet_ratio` times the messages of all the smaller ones. A
    segment cannot hold more than 65,536 messages, because a place in it has two bytes.

    A segment of which a message was removed is made anew once it is as old as `keep_s` for each
    message it has, or `quiet_keep_s` when no mail comes: the words of the removed one are soon
    gone, and however often that happens, it takes a small part of the time.
    """

    tail: int = 512
    fan_out: int = 11
    most: int = 1 << 16
    most_bytes: int = 160 << 20
    quiet_s: int = 10
    quiet_tail: int = 32
    quiet_ratio: int = 8
    keep_s: float = 1.0
    quiet_keep_s: float = 0.25


SIZES = Sizes()
AT_ONCE = Sizes(keep_s=0, quiet_keep_s=0)
"""Keep nothing of what was removed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live segment, and how many of its messages were removed since it was made.

    One that is taken is being merged already.
    """

    number: int
    size: int
    text_bytes: int
    made_at: int
    removed: int
    is_taken: bool = False


def choose_sources(
    segments: Sequence[Candidate], sizes: Sizes, *, is_quiet: bool, now: int
) -> list[int]:
    """The segments, in order of arrival, that are to become one; nothing if all is well."""
    growing = [s for s in segments if not _is_full(s, sizes)]
    smallest, largest = 0, sizes.tail * sizes.fan_out
    while smallest < sizes.most:
        level = [s for s in growing if smallest <= s.size < largest]
        if len(level) >= sizes.fan_out or sum(s.size for s in level) >= sizes.most:
            return [s.number for s in _fitting(level[: sizes.fan_out], sizes)]
        smallest, largest = largest, largest * sizes.fan_out
    if is_quiet and (settled := _settling(growing, sizes)):
        return [s.number for s in segments if s in settled]
    keep_s = sizes.quiet_keep_s if is_quiet else sizes.keep_s
    decayed = [s for s in segments if _has_decayed(s, keep_s, now)]
    return [s.number for s in sorted(decayed, key=lambda s: s.size)[:1]]


def _settling(segments: Sequence[Candidate], sizes: Sizes) -> list[Candidate]:
    """The smallest segments that may become one while nothing else happens.

    One that is much smaller than all others waits for its like.
    """
    ordered = sorted(segments, key=lambda s: s.size)
    for first in range(len(ordered) - 1):
        chosen: list[Candidate] = []
        size = 0
        for segment in _fitting(ordered[first:], sizes):
            if chosen and segment.size > size * sizes.quiet_ratio:
                break
            chosen.append(segment)
            size += segment.size
        if len(chosen) > 1:
            return chosen
    return []


def _is_full(segment: Candidate, sizes: Sizes) -> bool:
    return 2 * segment.size >= sizes.most or 2 * segment.text_bytes >= sizes.most_bytes


def _fitting(segments: Iterable[Candidate], sizes: Sizes) -> list[Candidate]:
    """The first of them that fit into one segment; two, if none are full, always do."""
    chosen: list[Candidate] = []
    size = text_bytes = 0
    for segment in segments:
        size, text_bytes = size + segment.size, text_bytes + segment.text_bytes
        if chosen and (size > sizes.most or text_bytes > sizes.most_bytes):
            break
        chosen.append(segment)
    return chosen


def _has_decayed(segment: Candidate, keep_s: float, now: int) -> bool:
    """Whether so much was removed, or so long after it was made, that the rest is made anew."""
    if segment.removed * _DECAYED > segment.size:
        return True
    is_young = 0 <= now - segment.made_at < keep_s * segment.size
    return segment.removed > 0 and not is_young
