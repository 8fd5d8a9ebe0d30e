"""A shelf as one process has read it: kept in memory, and brought up to date before each search."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from postroom.store.recall.census import Begun, Census
from postroom.store.recall.folding import NUMBER, PLACE, TIMES
from postroom.store.recall.vectors import Vectors
from postroom.store.sql.values import any_of, from_text
from postroom.store.transaction import Row, Transaction

Numbers = NDArray[np.intp]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Entries = tuple[Numbers, Floats]
_Part = tuple[Numbers, NDArray[np.uint8]]

_MOST_KEPT = 1_000_000
"""Of so many leaves of terms the weights are kept: twelve megabytes."""

_MOST_TIMES = 255
"""More is not told apart: a byte counts how often a term stands in a text."""

K1, B = 1.2, 0.75
"""The usual constants of BM25: how soon repeating a word stops to help, and what length costs."""

LONG = 0.25
"""What is longer than usual pays for the logarithm only: a long text that has all of a question's
words must not lose to a short one that has none."""

STATE = "SELECT epoch, changes, next_leaf, leaves, words FROM shelves WHERE number = :shelf"
SEGMENTS = "SELECT segment, leaves, lengths, dead FROM segments WHERE shelf = :shelf"
NAMES = "SELECT segment FROM segments WHERE shelf = :shelf"
TAIL = """
    SELECT leaf, length, terms FROM leaves
     WHERE shelf = :shelf AND terms IS NOT NULL AND leaf > :after ORDER BY leaf
"""
DEAD = "SELECT number, leaf FROM dead_leaves WHERE shelf = :shelf AND number > :after"
WHAT = """
    SELECT leaf, what FROM leaves WHERE shelf = :shelf AND leaf > :after AND leaf < :size
     ORDER BY leaf
"""
POSTINGS = """
    SELECT term, segment, entries FROM postings
     WHERE shelf = :shelf AND segment {segments} AND term {terms}
"""


class Weights:
    """What was read of the terms that were asked for last, as long as nothing changes."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entries] = OrderedDict()
        self._size = 0

    def get(self, term: str) -> Entries | None:
        """What is known of a term."""
        if term in self._entries:
            self._entries.move_to_end(term)
        return self._entries.get(term)

    def keep(self, term: str, entries: Entries) -> None:
        """Know a term, and forget others that were not asked for in a long time."""
        self._entries[term] = entries
        self._size += len(entries[0])
        while self._size > _MOST_KEPT:
            _, (leaves, _) = self._entries.popitem(last=False)
            self._size -= len(leaves)


class Shelf:
    """What is on a shelf, as arrays that a leaf's number leads into."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.vectors = Vectors(number)
        self._start_anew(-1)

    def _start_anew(self, epoch: int) -> None:
        self.census = Census(epoch, changes=-1, size=0, living=0, words=0)
        self._seen_dead = self._seen_tail = 0
        self._has_dead = False
        self.what: NDArray[np.int64] = np.zeros(0, np.int64)
        self._seen_what = 0
        self.alive: Mask = np.zeros(1024, np.bool_)
        self._lengths: Floats = np.zeros(1024, np.float32)
        self._norms: Floats = self._lengths
        self._segments: dict[int, Numbers | np.intp] = {}
        self._tail: dict[str, tuple[list[int], list[int]]] = {}
        self._weights = Weights()
        self.vectors.start_anew()

    @property
    def size(self) -> int:
        """How long an array must be that a leaf's number leads into."""
        return self.census.size

    def is_ahead_of(self, tx: Transaction) -> bool:
        """Whether this has read what a transaction cannot see yet."""
        row = tx.one(STATE, shelf=self.number)
        return row is not None and row[1] < self.census.changes

    def refresh(self, tx: Transaction) -> None:
        """Read what has changed since the last time."""
        row = tx.one(STATE, shelf=self.number)
        census = Census(*(row or (0, 0, 1, 0, 0)))
        if census.epoch != self.census.epoch:
            self._start_anew(census.epoch)
        if census.changes == self.census.changes:
            return
        self._grow(census.size)
        self._read_segments(tx)
        self._read_tail(tx)
        self._read_dead(tx)
        self.vectors.is_current = False
        self._weights = Weights()
        self.census = census
        self._norms = _norms(self._lengths / np.float32(census.usual_length))

    def _grow(self, size: int) -> None:
        if size <= len(self.alive):
            return
        more = max(size, 2 * len(self.alive)) - len(self.alive)
        self.alive = np.concatenate([self.alive, np.zeros(more, np.bool_)])
        self._lengths = np.concatenate([self._lengths, np.zeros(more, np.float32)])

    def _read_segments(self, tx: Transaction) -> None:
        names = {row[0] for row in tx.all(NAMES, shelf=self.number)}
        if names == set(self._segments):
            return
        # What was folded is in the tail no more.
        self._segments, self._tail, self._seen_tail = {}, {}, 0
        for name, leaves, lengths, dead in tx.all(SEGMENTS, shelf=self.number):
            found = np.frombuffer(leaves, NUMBER).astype(np.intp)
            self._segments[name] = _as_run(found)
            fresh = found[self._lengths[found] == 0]
            self._lengths[found] = np.frombuffer(lengths, NUMBER)
            self.alive[fresh] = True
            if dead:
                self._has_dead = True
                self.alive[np.frombuffer(dead, NUMBER)] = False

    def _read_tail(self, tx: Transaction) -> None:
        for leaf, length, terms in tx.all(TAIL, shelf=self.number, after=self._seen_tail):
            self._seen_tail = leaf
            if self._lengths[leaf] == 0:
                self.alive[leaf] = True
            self._lengths[leaf] = max(length, 1)
            for term, times in from_text(terms).items():
                leaves, counts = self._tail.setdefault(term, ([], []))
                leaves.append(leaf)
                counts.append(min(times, _MOST_TIMES))

    def _read_dead(self, tx: Transaction) -> None:
        rows = tx.all(DEAD, shelf=self.number, after=self._seen_dead)
        if rows:
            self._has_dead = True
            self.alive[[row[1] for row in rows]] = False
            self._seen_dead = max(row[0] for row in rows)

    def read_what(self, tx: Transaction) -> None:
        """Read which row each leaf stands for; `what` of one that is gone may be 0."""
        if len(self.what) < len(self.alive):
            self.what = np.concatenate(
                [self.what, np.zeros(len(self.alive) - len(self.what), np.int64)]
            )
        for leaf, what in tx.all(WHAT, shelf=self.number, after=self._seen_what, size=self.size):
            self.what[leaf] = what
            self._seen_what = leaf

    def entries(
        self, tx: Transaction, terms: Sequence[str], begun: Begun | None = None
    ) -> dict[str, Entries]:
        """For each term the living leaves that have it, and how much it weighs there.

        In a list that was *begun* before, only those that were there, and what it weighed then.
        """
        if begun is not None and begun.census.changes != self.census.changes:
            return self._entries_then(tx, terms, begun)
        known = {term: self._weights.get(term) for term in terms}
        for term, parts in self._read(tx, [t for t in terms if known[t] is None]).items():
            leaves, times = self._living(parts)
            rarity = self.census.rarity(len(leaves))
            entries = _weighed(leaves, times, self._norms.take(leaves), rarity)
            known[term] = entries
            self._weights.keep(term, entries)
        return {term: entries for term, entries in known.items() if entries is not None}

    def _entries_then(
        self, tx: Transaction, terms: Sequence[str], begun: Begun
    ) -> dict[str, Entries]:
        census, counts = begun.census, dict(zip(terms, begun.counts, strict=True))
        entries = {}
        for term, parts in self._read(tx, terms).items():
            leaves, times = self._living(parts)
            leaves, times = leaves[leaves < census.size], times[leaves < census.size]
            norms = _norms(self._lengths.take(leaves) / np.float32(census.usual_length))
            entries[term] = _weighed(leaves, times, norms, census.rarity(counts[term]))
        return entries

    def _read(self, tx: Transaction, terms: Sequence[str]) -> dict[str, list[_Part]]:
        """For each term that is somewhere the leaves and how often it stands there."""
        found: dict[str, list[_Part]] = {}
        for term, segment, packed in self._postings(tx, terms):
            count = len(packed) // 3
            places = np.frombuffer(packed, PLACE, count)
            times = np.frombuffer(packed, TIMES, count, 2 * count)
            its = self._segments[segment]
            leaves = its.take(places) if isinstance(its, np.ndarray) else places + its
            found.setdefault(term, []).append((leaves, times))
        for term in terms:
            if term in self._tail:
                newest, counts = self._tail[term]
                part = np.array(newest, np.intp), np.array(counts, TIMES)
                found.setdefault(term, []).append(part)
        return found

    def _postings(self, tx: Transaction, terms: Sequence[str]) -> list[Row]:
        if not self._segments or not terms:
            return []
        segments, among = any_of("segment", list(self._segments))
        wanted, params = any_of("term", terms)
        sql = POSTINGS.format(segments=segments, terms=wanted)
        return tx.all(sql, shelf=self.number, **among, **params)

    def _living(self, parts: Sequence[_Part]) -> tuple[Numbers, Floats]:
        leaves = np.concatenate([part[0] for part in parts])
        times = np.concatenate([part[1] for part in parts]).astype(np.float32)
        if self._has_dead:
            alive = self.alive[leaves]
            leaves, times = leaves[alive], times[alive]
        return leaves, times


def _weighed(leaves: Numbers, times: Floats, norms: Floats, rarity: float) -> Entries:
    norms += times
    times *= np.float32(rarity * (K1 + 1))
    times /= norms
    return leaves, times


def _norms(lengths: Floats) -> Floats:
    """What its length costs each leaf; a length of 1 is the usual one."""
    paid = np.minimum(lengths, 1) + LONG * np.log(np.maximum(lengths, 1))
    return (K1 * (1 - B + B * paid)).astype(np.float32)


def _as_run(leaves: Numbers) -> Numbers | np.intp:
    """Leaves that follow each other without a gap are known by the first of them."""
    is_run = len(leaves) > 0 and bool((np.diff(leaves) == 1).all())
    return np.intp(leaves[0]) if is_run else leaves
