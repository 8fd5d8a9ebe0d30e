"""Numbers that only grow, in memory that the processes of a server share.

    a part      words used, then one record after the other
    a record    bytes of the name, how many numbers, the name (filled up to a word), the numbers

Each process has a part to itself and adds to it without waiting for anybody; whoever is asked sums
over all parts. A process that takes over a part goes on with the numbers it finds, so whoever is
killed loses nothing. All are words of 8 bytes, and a record counts once the words used say so:
nobody reads half of one.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

Name = tuple[str, ...]
"""Chosen by us and never by a caller, so that there is a bounded number of them."""

PART_BYTES = 1 << 20
"""Memory is taken as it is written to: most of this is only promised."""

_WORD = 8
_HEAD = 2


class Tally:
    """Numbers by name: what this process has added, and the sums over all."""

    def __init__(self, parts: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, parts * PART_BYTES)).cast("q")
        size = PART_BYTES // _WORD
        self._parts = [memory[n * size : (n + 1) * size] for n in range(parts)]
        self._take(0)

    def part(self, number: int) -> Tally:
        """The same numbers, as the process sees them that has this part."""
        other = Tally.__new__(Tally)
        other._parts = self._parts
        other._take(number)
        return other

    def _take(self, number: int) -> None:
        self._part = self._parts[number]
        self._own = dict(_records(self._part))

    def own(self, name: Name, size: int = 1) -> memoryview[int]:
        """The numbers that this process may add to, so many under one name."""
        found = self._own.get(name)
        if found is None:
            found = self._own[name] = self._append("\t".join(name).encode(), size)
        return found

    def totals(self) -> dict[Name, list[int]]:
        """Every name that anybody has used, with the sums."""
        found: dict[Name, list[int]] = {}
        for part in self._parts:
            for name, numbers in _records(part):
                before = found.get(name, [0] * len(numbers))
                found[name] = [a + b for a, b in zip(before, numbers, strict=True)]
        return found

    def _append(self, name: bytes, size: int) -> memoryview[int]:
        start = 1 + self._part[0]
        first = start + _HEAD + _words(len(name))
        end = first + size
        if end > len(self._part):
            # A request does not fail because nobody can count it.
            return memoryview(bytearray(size * _WORD)).cast("q")
        self._part[start], self._part[start + 1] = len(name), size
        filled = name.ljust(_words(len(name)) * _WORD, b"\0")
        self._part[start + _HEAD : first] = memoryview(filled).cast("q")
        # Whoever was killed here before may have left some of its name.
        self._part[first:end] = memoryview(bytes(size * _WORD)).cast("q")
        self._part[0] = end - 1
        return self._part[first:end]


def _records(part: memoryview[int]) -> Iterator[tuple[Name, memoryview[int]]]:
    at, end = 1, 1 + part[0]
    while at < end:
        length, size = part[at], part[at + 1]
        first = at + _HEAD + _words(length)
        name = part[at + _HEAD : first].tobytes()[:length].decode()
        at = first + size
        yield tuple(name.split("\t")), part[first:at]


def _words(length: int) -> int:
    return -(-length // _WORD)
