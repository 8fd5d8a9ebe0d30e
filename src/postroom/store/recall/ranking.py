"""Which leaves answer a question, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from postroom.model.memory import Vector
from postroom.model.page import Place, Slice
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

_LOOKS_EQUAL = np.float32(1 / _STEPS)


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
    """Find what has the words or the meaning of a question."""
    relevance, hits = _by_words(tx, shelf, question.terms)
    if question.vector is not None:
        shelf.vectors.refresh(tx, question.model)
        leaves, cosines = shelf.vectors.near(question.vector, _best(relevance, hits, _BY_WORDS))
        relevance *= np.float32(WORDS)
        relevance[leaves] += np.float32(MEANING) * cosines
        hits[leaves] = True
    hits &= shelf.alive[: shelf.size]
    if allowed is not None:
        hits &= allowed
    return _page(relevance, hits, page)


def _by_words(tx: Transaction, shelf: Shelf, terms: Sequence[str]) -> tuple[Floats, Mask]:
    """How much of a question's words each leaf has, 0 to 1, the rare ones counting for more.

    1 is a leaf of usual length that has them all. The square makes half of the words worth a
    quarter: most questions share a few words with what has nothing to do with them.
    """
    share = np.zeros(shelf.size, np.float32)
    entries = shelf.entries(tx, terms)
    for leaves, weights in entries.values():
        np.add.at(share, leaves, weights)
    hits = share > 0
    all_of_them = sum(shelf.rarity(len(entries[t][0]) if t in entries else 0) for t in terms)
    share /= np.float32(max(all_of_them, 1e-6))
    np.minimum(share, np.float32(1), out=share)
    share *= share
    return share, hits


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
    """
    entries = shelf.entries(tx, list(dict.fromkeys(t for terms in keywords for t in terms)))
    scores = np.zeros(shelf.size, np.float32)
    counts = np.zeros(shelf.size, np.uint16)
    for terms, mask in zip(keywords, allowed, strict=True):
        found, has_all = _keyword(shelf, entries, terms)
        if mask is not None:
            has_all &= mask
        scores += np.where(has_all, found, np.float32(0))
        counts += has_all
    hits = counts == len(keywords) if needs_all else counts > 0
    best = scores[hits].max(initial=0)
    return _page(scores / best if best > 0 else scores, hits, page)


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


def _page(relevance: Floats, hits: Mask, page: Slice) -> Ranked:
    """Best first, the newest leaf first among equals."""
    total = int(np.count_nonzero(hits))
    offset = page.offset
    if page.after is not None:
        last = int(page.after[0]) << 32 | int(page.after[1])
        offset = int((_keys(relevance, np.flatnonzero(hits)) >= last).sum())
    shown = np.sort(_keys(relevance, _best(relevance, hits, offset + page.limit)))[::-1]
    shown = shown[offset : offset + page.limit]
    leaves = tuple(int(key) & 0xFFFFFFFF for key in shown)
    told = [int(key) >> 32 for key in shown]
    has_more = len(shown) > 0 and offset + len(shown) < total
    return Ranked(
        leaves,
        tuple(step / _STEPS for step in told),
        total,
        offset,
        (told[-1], leaves[-1]) if has_more else None,
    )


def _keys(relevance: Floats, leaves: NDArray[np.intp]) -> NDArray[np.int64]:
    """One number for each leaf, by which they are in order."""
    steps = np.clip(np.rint(relevance[leaves] * _STEPS), 1, _STEPS).astype(np.int64)
    return steps << 32 | leaves


def _best(relevance: Floats, hits: Mask, count: int) -> NDArray[np.intp]:
    """The best *count* of the hits and all that look equal to the last of them, in any order."""
    places = _candidates(relevance, hits, count)
    found = relevance[places]
    if count >= len(found):
        return places
    last = np.partition(found, len(found) - count)[len(found) - count]
    best: NDArray[np.intp] = places[found >= last - _LOOKS_EQUAL]
    return best


def _candidates(relevance: Floats, hits: Mask, count: int) -> NDArray[np.intp]:
    """Hits that are as good as the best *count* of them, and others, found by looking at a part.

    How good those are that part can tell most likely, or else for certain.
    """
    some = relevance[::_SAMPLED][hits[::_SAMPLED]]
    for place in (2 * count // _SAMPLED + _SAMPLED, count):
        if place < min(count + 1, len(some)):
            last = np.partition(some, len(some) - place)[len(some) - place]
            places = np.flatnonzero(hits & (relevance >= last - _LOOKS_EQUAL))
            if np.count_nonzero(relevance[places] >= last) >= count:
                return places
    return np.flatnonzero(hits)
