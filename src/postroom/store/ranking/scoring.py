"""Scoring with numpy: which documents answer a query, and in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from postroom.errors import InvalidInput
from postroom.model.memory import EmbeddedQuery
from postroom.model.page import Slice
from postroom.store.ranking.collection import (
    CURSOR_OUTDATED,
    ID_BITS,
    LOWEST_BEST,
    STEPS,
    TERMS_ONLY,
    Ranked,
    RankingState,
    resume,
    sort_key,
)
from postroom.store.ranking.vectors import Floats, Mask, SearchBounds
from postroom.store.transaction import Transaction

if TYPE_CHECKING:
    from postroom.store.ranking.array_collection import Entries, VisibleDocuments

TERM_WEIGHT, VECTOR_WEIGHT = 0.5, 0.5
"""Reciprocal ranks, and BM25 divided by the best score, gave worse results than terms alone."""

_BEST_BY_TERMS = 500
"""The best documents by terms are always compared by vector."""

_SAMPLED = 16

_EQUAL_WITHIN = 3 / STEPS
"""Squared shares that differ by less can be rounded to the same relevance."""


def rank(
    tx: Transaction,
    visible_documents: VisibleDocuments,
    query: EmbeddedQuery,
    allowed: Mask,
    page: Slice,
    ids: NDArray[np.int64] | None = None,
) -> Ranked:
    """See `RankedCollection.rank`; *ids* maps documents to the numbers that are returned."""
    resumed = resume(page.after, query.terms)
    scores, state = _score_terms(tx, visible_documents, query.terms, resumed)
    hits = (scores > 0) & allowed
    total = int(np.count_nonzero(hits))
    if not _uses_vectors(query, resumed):
        documents = _best(scores, hits, _needed(page, total), state.max_score)
        relevance = _relevance(scores[documents], state.max_score)
        return _page(documents, relevance, total, page, state, ids)
    best = _compared(scores, hits, resumed, state.max_score)
    vectors, is_live = visible_documents.collection.vectors, visible_documents.collection.is_live
    vectors.refresh(tx, query.model)
    before = None if resumed is None else SearchBounds(resumed.last_embedded, resumed.thresholds[0])
    near, cosines, bounds = vectors.near(
        query.vector or b"", best, visible_documents.visible, before
    )
    threshold = _float_bits(scores[best])
    state = resumed or replace(
        state, thresholds=(bounds.distance, threshold), last_embedded=bounds.last_embedded
    )
    counts = is_live[near] & allowed[near]
    near, cosines = near[counts], cosines[counts]
    total += int(np.count_nonzero(~hits[near]))
    hits[near] = False
    if _needed(page, total) > _BEST_BY_TERMS:
        best = _best(scores, hits, _needed(page, total), state.max_score)
    documents = np.concatenate([near, best[hits[best]]])
    relevance = np.float32(TERM_WEIGHT) * _relevance(scores[documents], state.max_score)
    relevance[: len(near)] += np.float32(VECTOR_WEIGHT) * cosines
    return _page(documents, relevance, total, page, state, ids)


def _score_terms(
    tx: Transaction,
    visible_documents: VisibleDocuments,
    terms: Sequence[str],
    resumed: RankingState | None,
) -> tuple[Floats, RankingState]:
    scores = np.zeros(visible_documents.size, np.float32)
    entries = visible_documents.entries(tx, terms, resumed)
    for documents, weights in entries.values():
        np.add.at(scores, documents, weights)
    return scores, resumed or RankingState(
        visible_documents.statistics, _counts(entries, terms), TERMS_ONLY
    )


def _counts(entries: Mapping[str, Entries], terms: Sequence[str]) -> tuple[int, ...]:
    """The number of documents of each term."""
    return tuple(len(entries[term][0]) if term in entries else 0 for term in terms)


def _uses_vectors(query: EmbeddedQuery, resumed: RankingState | None) -> bool:
    """Whether vectors count. Raises InvalidInput if they did on the first page and cannot now."""
    if resumed is None:
        return query.vector is not None
    if resumed.thresholds != TERMS_ONLY and query.vector is None:
        raise InvalidInput(CURSOR_OUTDATED)
    return resumed.thresholds != TERMS_ONLY


def _compared(
    scores: Floats, hits: Mask, resumed: RankingState | None, max_score: float
) -> NDArray[np.intp]:
    """The documents to compare by vector: the best by terms, or those above the threshold."""
    if resumed is None:
        return _best(scores, hits, _BEST_BY_TERMS, max_score)
    return np.flatnonzero(hits & (scores >= _from_bits(resumed.thresholds[1])))


def _float_bits(scores: Floats) -> int:
    """The bits of the lowest score, as an integer."""
    return int(scores.min(initial=np.float32(np.inf)).view(np.int32))


def _from_bits(threshold: int) -> np.float32:
    return np.float32(np.int32(threshold).view(np.float32))


def _relevance(scores: Floats, max_score: float) -> Floats:
    """Scores as relevance, from 0 to 1.

    Squared, because most queries share a few words with unrelated texts.
    """
    share: Floats = np.minimum(scores / np.float32(max_score), 1)
    return share * share


def rank_keywords(
    tx: Transaction,
    visible_documents: VisibleDocuments,
    keywords: Sequence[tuple[Sequence[str], Mask]],
    *,
    needs_all: bool,
    page: Slice,
) -> Ranked:
    """See `RankedCollection.rank_keywords`."""
    all_terms = list(dict.fromkeys(t for terms, _ in keywords for t in terms))
    resumed = resume(page.after, all_terms)
    entries = visible_documents.entries(tx, all_terms, resumed)
    scores = np.zeros(visible_documents.size, np.float32)
    counts = np.zeros(visible_documents.size, np.uint16)
    for terms, mask in keywords:
        found, has_all = _keyword(visible_documents.size, entries, terms)
        has_all &= mask
        scores += np.where(has_all, found, np.float32(0))
        counts += has_all
    hits = counts == len(keywords) if needs_all else counts > 0
    total = int(np.count_nonzero(hits))
    best_score = scores.max(where=hits, initial=np.float32(LOWEST_BEST))
    state = resumed or RankingState(
        visible_documents.statistics, _counts(entries, all_terms), (_float_bits(best_score), 0)
    )
    max_score = _from_bits(state.thresholds[0])
    documents = _best(scores, hits, _needed(page, total), float(max_score))
    return _page(documents, scores[documents] / max_score, total, page, state)


def _keyword(size: int, entries: dict[str, Entries], terms: Sequence[str]) -> tuple[Floats, Mask]:
    scores = np.zeros(size, np.float32)
    counts = np.zeros(size, np.uint16)
    for term in terms:
        if term not in entries:
            return scores, np.zeros(size, np.bool_)
        documents, weights = entries[term]
        scores[documents] += weights
        counts[documents] += 1
    return scores, counts == len(terms)


def _needed(page: Slice, total: int) -> int:
    """How many of the best documents fill the page."""
    return page.offset + page.limit if page.after is None else total


def _page(
    documents: NDArray[np.intp],
    relevance: Floats,
    total: int,
    page: Slice,
    state: RankingState,
    ids: NDArray[np.int64] | None = None,
) -> Ranked:
    """One page, best first; the highest id first among equals."""
    steps = np.clip(np.rint(relevance * STEPS), 1, STEPS).astype(np.int64)
    # One sort key for each: relevance, then id.
    keys = np.sort(steps << ID_BITS | (documents if ids is None else ids[documents]))[::-1]
    offset = page.offset
    if page.after is not None:
        offset = int(np.count_nonzero(keys >= sort_key(page.after)))
    return Ranked.of(keys[offset : offset + page.limit].tolist(), total, offset, state)


def _best(scores: Floats, hits: Mask, count: int, max_score: float) -> NDArray[np.intp]:
    """The best *count* hits, and all that can be equal to the last of them, unsorted."""
    documents = _candidates(scores, hits, count, max_score)
    found = scores[documents]
    if count >= len(found):
        return documents
    last = np.partition(found, len(found) - count)[len(found) - count]
    best: NDArray[np.intp] = documents[found >= _least_equal(last, max_score)]
    return best


def _candidates(scores: Floats, hits: Mask, count: int, max_score: float) -> NDArray[np.intp]:
    """A superset of the best *count* hits; a sample of the scores gives the bound."""
    some = scores[::_SAMPLED][hits[::_SAMPLED]]
    for rank in (2 * count // _SAMPLED + _SAMPLED, count):
        if rank < min(count + 1, len(some)):
            last = np.partition(some, len(some) - rank)[len(some) - rank]
            documents = np.flatnonzero(hits & (scores >= _least_equal(last, max_score)))
            if np.count_nonzero(scores[documents] >= last) >= count:
                return documents
    return np.flatnonzero(hits)


def _least_equal(score: np.float32, max_score: float) -> np.float32:
    """The lowest score that can be rounded to the same relevance."""
    share = min(float(score) / max_score, 1.0)
    return np.float32(max_score * math.sqrt(max(share * share - _EQUAL_WITHIN, 0.0)))
