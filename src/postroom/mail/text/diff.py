"""The words that differ between two versions of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_STEPS = 1_000_000
"""How many pairs are compared; beyond that, what differs is shown as a whole."""


class Change(NamedTuple):
    """A piece of text that both versions have, or only the later or the earlier one."""

    kind: Literal["same", "added", "removed"]
    text: str


def word_diff(before: str, after: str) -> list[Change]:
    """What was removed and added, first by lines and in changed lines by words."""
    steps = [_MAX_STEPS]
    found: list[Change] = []
    for same, old, new in _aligned(before.splitlines(True), after.splitlines(True), steps):
        found.append(Change("same", "".join(same)))
        words = (_TOKEN.findall("".join(old)), _TOKEN.findall("".join(new)))
        for kept, removed, added in _aligned(*words, steps):
            found += [
                Change("same", "".join(kept)),
                Change("removed", "".join(removed)),
                Change("added", "".join(added)),
            ]
    return list(_joined(found))


def _aligned(
    old: Sequence[str], new: Sequence[str], steps: list[int]
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """What both have, followed by what only the old and only the new one has there."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle = (old[start : len(old) - end], new[start : len(new) - end])
    same = old[:start]
    for at_old, at_new, length in _matches(*middle, steps):
        yield same, at_old, at_new
        same = length
    yield same, (), ()
    yield old[len(old) - end :], (), ()


def _matches(
    old: Sequence[str], new: Sequence[str], steps: list[int]
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """Pieces that differ, each with what both have after it: the longest common subsequence."""
    steps[0] -= len(old) * len(new)
    if steps[0] < 0:
        steps[0] = 0
        yield old, new, ()
        return
    lengths = _lengths(old, new)
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        while i < len(old) and j < len(new) and old[i] != new[j]:
            if lengths[i + 1][j] >= lengths[i][j + 1]:
                i += 1
            else:
                j += 1
        if i == len(old) or j == len(new):
            yield old[first_i:], new[first_j:], ()
            return
        same = i
        while i < len(old) and j < len(new) and old[i] == new[j]:
            i, j = i + 1, j + 1
        yield old[first_i:same], new[first_j : j - (i - same)], old[same:i]


def _lengths(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """The lengths of the longest common subsequences of all ends of both."""
    rows = [[0] * (len(new) + 1)]
    for word in reversed(old):
        below, row = rows[-1], [0] * (len(new) + 1)
        for j in range(len(new) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if word == new[j] else max(below[j], row[j + 1])
        rows.append(row)
    return rows[::-1]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _joined(changes: Sequence[Change]) -> Iterator[Change]:
    """The changes without empty ones, neighbours of a kind joined."""
    last: Change | None = None
    for change in changes:
        if not change.text:
            continue
        if last is not None and last.kind == change.kind:
            last = Change(last.kind, last.text + change.text)
            continue
        if last is not None:
            yield last
        last = change
    if last is not None:
        yield last
