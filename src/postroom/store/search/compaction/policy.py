"""The merge policy: segments of similar size are merged, so messages are rewritten rarely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postroom.model.values import dataclass

_TOMBSTONE_SHARE = 8


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Sizes and delays: `buffer_docs` messages become a segment, `fan_out` segments of a level one.

    If no mail arrives for `idle_s`, `idle_buffer` messages are enough, and segments are merged
    unless the largest has more than `idle_ratio` times the messages of the smaller ones together.

    A segment with a tombstone is rewritten at an age of `tombstone_s` (`idle_tombstone_s` if idle)
    for each of its messages: deleted text soon disappears, at a bounded cost.
    """

    buffer_docs: int = 512
    fan_out: int = 11
    max_docs: int = 1 << 16
    max_bytes: int = 160 << 20
    idle_s: int = 10
    idle_buffer: int = 32
    idle_ratio: int = 8
    tombstone_s: float = 1.0
    idle_tombstone_s: float = 0.25


DEFAULT_POLICY = MergePolicy()
PURGE_POLICY = MergePolicy(tombstone_s=0, idle_tombstone_s=0)
"""Rewrite all segments with tombstones now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live segment and its number of tombstones; a taken one is being merged."""

    number: int
    size: int
    text_bytes: int
    made_at: int
    removed: int
    is_taken: bool = False


def choose_segments(
    segments: Sequence[Candidate], policy: MergePolicy, *, is_idle: bool, now: int
) -> list[int]:
    """The segments to merge into one, in order of arrival; empty if there is nothing to do."""
    growing = [s for s in segments if not _is_full(s, policy)]
    smallest, largest = 0, policy.buffer_docs * policy.fan_out
    while smallest < policy.max_docs:
        level = [s for s in growing if smallest <= s.size < largest]
        if len(level) >= policy.fan_out or sum(s.size for s in level) >= policy.max_docs:
            return [s.number for s in _fitting(level[: policy.fan_out], policy)]
        smallest, largest = largest, largest * policy.fan_out
    if is_idle and (idle := _idle_merge(growing, policy)):
        return [s.number for s in segments if s in idle]
    tombstone_s = policy.idle_tombstone_s if is_idle else policy.tombstone_s
    due = [s for s in segments if _is_due_for_rewrite(s, tombstone_s, now)]
    return [s.number for s in sorted(due, key=lambda s: s.size)[:1]]


def _idle_merge(segments: Sequence[Candidate], policy: MergePolicy) -> list[Candidate]:
    """The smallest segments to merge while idle; one that is much smaller than the others waits."""
    ordered = sorted(segments, key=lambda s: s.size)
    for first in range(len(ordered) - 1):
        chosen: list[Candidate] = []
        size = 0
        for segment in _fitting(ordered[first:], policy):
            if chosen and segment.size > size * policy.idle_ratio:
                break
            chosen.append(segment)
            size += segment.size
        if len(chosen) > 1:
            return chosen
    return []


def _is_full(segment: Candidate, policy: MergePolicy) -> bool:
    return 2 * segment.size >= policy.max_docs or 2 * segment.text_bytes >= policy.max_bytes


def _fitting(segments: Iterable[Candidate], policy: MergePolicy) -> list[Candidate]:
    """The longest prefix that fits into one segment; two that are not full always fit."""
    chosen: list[Candidate] = []
    size = text_bytes = 0
    for segment in segments:
        size, text_bytes = size + segment.size, text_bytes + segment.text_bytes
        if chosen and (size > policy.max_docs or text_bytes > policy.max_bytes):
            break
        chosen.append(segment)
    return chosen


def _is_due_for_rewrite(segment: Candidate, tombstone_s: float, now: int) -> bool:
    """Whether a segment has too many tombstones, or has had one for too long."""
    if segment.removed * _TOMBSTONE_SHARE > segment.size:
        return True
    is_recent = 0 <= now - segment.made_at < tombstone_s * segment.size
    return segment.removed > 0 and not is_recent
