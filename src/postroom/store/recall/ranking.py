"""Which leaves answer a question, and in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from postroom.errors import InvalidInput
from postroom.model.memory import Vector
from postroom.model.page import Place, Slice
from postroom.store.recall.census import CANNOT_GO_ON, Begun, begun_with
from postroom.store.recall.shelf import Entries, Floats, Mask, Shelf
from postroom.store.transaction import Transaction

WORDS, MEANING = 0.5, 0.5
"""What each counts for. Ranks instead of scores were worse than words alone; so was BM25 divided by
the best hit's, which makes a stray word look like a perfect match."""

_BY_WORDS = 500
"""So many of the best by words are compared by meaning in any case."""

_SAMPLED = 16

_STEPS = 10_000
"""Relevance is told to four digits, so that what looks equal is equal."""

_LOOKS_EQUAL = 3 / _STEPS
"""Shares whose squares differ by more do not look equal: neither they, nor half of the squares."""

_WORDS_ALONE = (-1, 0)
"""The lines of a list without meaning; else in how many parts a sketch may differ, and the score by
words that is looked at in any case."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One page of leaves with their relevance, best first."""

    leaves: tuple[int, ...]
    relevances: tuple[float, ...]
    total: int
    offset: int
    next: Place | None


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for: terms, and the direction of the whole if there is a model."""

    terms: Sequence[str]
    vector: Vector | None = None
    model: str = ""


def rank(
    tx: Transaction, shelf: Shelf, question: Question, allowed: Mask | None, page: Slice
) -> Ranked:
    """Find what has the words or the meaning of a question.

    Raises:
        InvalidInput: the page is one of a list that cannot go on.
    """
    begun = begun_with(page.after, question.terms, shelf.census)
    scores, told = _by_words(tx, shelf, question.terms, begun)
    hits = scores > 0
    if allowed is not None:
        hits &= allowed
    total = int(np.count_nonzero(hits))
    if not _asks_for_meaning(question, begun):
        leaves = _best(scores, hits, _wanted(page, total), told.whole)
        return _page(leaves, _share(scores[leaves], told.whole), total, page, told)
    best = _looked_at(scores, hits, begun, told.whole)
    shelf.vectors.refresh(tx, question.model)
    until = None if begun is None else (begun.census.changes, begun.lines[0])
    near, cosines, differ = shelf.vectors.near(question.vector or b"", best, until)
    told = begun or replace(told, lines=(differ, _line(scores[best])))
    counts = shelf.alive[near] if allowed is None else shelf.alive[near] & allowed[near]
    near, cosines = near[counts], cosines[counts]
    total += int(np.count_nonzero(~hits[near]))
    hits[near] = False
    if _wanted(page, total) > _BY_WORDS:
        best = _best(scores, hits, _wanted(page, total), told.whole)
    leaves = np.concatenate([near, best[hits[best]]])
    relevance = np.float32(WORDS) * _share(scores[leaves], told.whole)
    relevance[: len(near)] += np.float32(MEANING) * cosines
    return _page(leaves, relevance, total, page, told)


def _by_words(
    tx: Transaction, shelf: Shelf, terms: Sequence[str], begun: Begun | None
) -> tuple[Floats, Begun]:
    """How much of a question's words each leaf has, the rare ones counting for more."""
    scores = np.zeros(shelf.size, np.float32)
    entries = shelf.entries(tx, terms, begun)
    for leaves, weights in entries.values():
        np.add.at(scores, leaves, weights)
    return scores, begun or Begun(shelf.census, _counts(entries, terms), _WORDS_ALONE)


def _counts(entries: Mapping[str, Entries], terms: Sequence[str]) -> tuple[int, ...]:
    """How many leaves have each term."""
    return tuple(len(entries[term][0]) if term in entries else 0 for term in terms)


def _asks_for_meaning(question: Question, begun: Begun | None) -> bool:
    """Whether meaning counts. Raises InvalidInput if it did on the first page and cannot now."""
    if begun is None:
        return question.vector is not None
    if begun.lines != _WORDS_ALONE and question.vector is None:
        raise InvalidInput(CANNOT_GO_ON)
    return begun.lines != _WORDS_ALONE


def _looked_at(scores: Floats, hits: Mask, begun: Begun | None, whole: float) -> NDArray[np.intp]:
    """The best by words: so many, or those above the line that was drawn on the first page."""
    if begun is None:
        return _best(scores, hits, _BY_WORDS, whole)
    return np.flatnonzero(hits & (scores >= _score(begun.lines[1])))


def _line(scores: Floats) -> int:
    """The least of some scores, as the whole number that has its bits."""
    return int(scores.min(initial=np.float32(np.inf)).view(np.int32))


def _score(line: int) -> np.float32:
    return np.float32(np.int32(line).view(np.float32))


def _share(scores: Floats, whole: float) -> Floats:
    """Scores as relevance, 0 to 1.

    The square makes half of the words worth a quarter: most questions share a few words with what
    has nothing to do with them.
    """
    share: Floats = np.minimum(scores / np.float32(whole), 1)
    return share * share


def rank_keywords(
    tx: Transaction,
    shelf: Shelf,
    keywords: Sequence[Sequence[str]],
    *,
    needs_all: bool,
    allowed: Sequence[Mask | None],
    page: Slice,
) -> Ranked:
    """Find what has all or any of some keywords; one of several terms needs them all.

    `allowed` limits each keyword to some leaves; None does not.

    Raises:
        InvalidInput: the page is one of a list that cannot go on.
    """
    every = list(dict.fromkeys(t for terms in keywords for t in terms))
    begun = begun_with(page.after, every, shelf.census)
    entries = shelf.entries(tx, every, begun)
    scores = np.zeros(shelf.size, np.float32)
    counts = np.zeros(shelf.size, np.uint16)
    for terms, mask in zip(keywords, allowed, strict=True):
        found, has_all = _keyword(shelf, entries, terms)
        if mask is not None:
            has_all &= mask
        scores += np.where(has_all, found, np.float32(0))
        counts += has_all
    hits = counts == len(keywords) if needs_all else counts > 0
    total = int(np.count_nonzero(hits))
    most = scores.max(where=hits, initial=np.float32(1e-6))
    told = begun or Begun(shelf.census, _counts(entries, every), (_line(most), 0))
    whole = _score(told.lines[0])
    leaves = _best(scores, hits, _wanted(page, total), float(whole))
    return _page(leaves, scores[leaves] / whole, total, page, told)


def _keyword(
    shelf: Shelf, entries: dict[str, Entries], terms: Sequence[str]
) -> tuple[Floats, Mask]:
    scores = np.zeros(shelf.size, np.float32)
    counts = np.zeros(shelf.size, np.uint16)
    for term in terms:
        if term not in entries:
            return scores, np.zeros(shelf.size, np.bool_)
        leaves, weights = entries[term]
        scores[leaves] += weights
        counts[leaves] += 1
    return scores, counts == len(terms)


def _wanted(page: Slice, total: int) -> int:
    """How many of the best it takes to fill a page."""
    return page.offset + page.limit if page.after is None else total


def _page(
    leaves: NDArray[np.intp], relevance: Floats, total: int, page: Slice, told: Begun
) -> Ranked:
    """Best first, the newest leaf first among equals; *leaves* are those that may be shown."""
    steps = np.clip(np.rint(relevance * _STEPS), 1, _STEPS).astype(np.int64)
    # One number for each leaf, by which they are in order.
    keys = np.sort(steps << 32 | leaves)[::-1]
    offset = page.offset
    if page.after is not None:
        last = int(page.after[0]) << 32 | int(page.after[1])
        offset = int(np.count_nonzero(keys >= last))
    shown = keys[offset : offset + page.limit].tolist()
    numbers = tuple(key & 0xFFFFFFFF for key in shown)
    steps_shown = [key >> 32 for key in shown]
    has_more = len(shown) > 0 and offset + len(shown) < total
    return Ranked(
        numbers,
        tuple(step / _STEPS for step in steps_shown),
        total,
        offset,
        (steps_shown[-1], numbers[-1], *told.place) if has_more else None,
    )


def _best(scores: Floats, hits: Mask, count: int, whole: float) -> NDArray[np.intp]:
    """The best *count* of the hits and all that look equal to the last of them, in any order."""
    places = _candidates(scores, hits, count, whole)
    found = scores[places]
    if count >= len(found):
        return places
    last = np.partition(found, len(found) - count)[len(found) - count]
    best: NDArray[np.intp] = places[found >= _like(last, whole)]
    return best


def _candidates(scores: Floats, hits: Mask, count: int, whole: float) -> NDArray[np.intp]:
    """Hits that are as good as the best *count* of them, and others, found by looking at a part.

    How good those are that part can tell most likely, or else for certain.
    """
    some = scores[::_SAMPLED][hits[::_SAMPLED]]
    for place in (2 * count // _SAMPLED + _SAMPLED, count):
        if place < min(count + 1, len(some)):
            last = np.partition(some, len(some) - place)[len(some) - place]
            places = np.flatnonzero(hits & (scores >= _like(last, whole)))
            if np.count_nonzero(scores[places] >= last) >= count:
                return places
    return np.flatnonzero(hits)


def _like(score: np.float32, whole: float) -> np.float32:
    """The least score that may look equal to another one."""
    share = min(float(score) / whole, 1.0)
    return np.float32(whole * math.sqrt(max(share * share - _LOOKS_EQUAL, 0.0)))
