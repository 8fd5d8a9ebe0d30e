"""A collection without numpy, with the same results as `array_collection`; fast if it is small.

Numbers are rounded to single precision after each step, as numpy does it, so that a cursor can be
continued by either. Vectors need numpy, so lists are ranked by terms alone.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import add, truediv

from postroom.errors import InvalidInput
from postroom.model.memory import EmbeddedQuery
from postroom.model.page import Slice
from postroom.model.values import dataclass
from postroom.model.view import Everything
from postroom.model.view import Numbers as InboxNumbers
from postroom.store.ranking.collection import (
    CURSOR_OUTDATED,
    ID_BITS,
    K1,
    LONG_DOCUMENT,
    LOWEST_BEST,
    STEPS,
    TERMS_ONLY,
    B,
    Ranked,
    RankedCollection,
    RankingState,
    Statistics,
    resume,
    sort_key,
)
from postroom.store.ranking.compaction import DOC_ID, NUMBER
from postroom.store.transaction import Transaction

Documents = frozenset[int]
Weights = dict[int, float]
"""The weight of a term, or the score of a query, by document."""

_SINGLE = "f"


@dataclass(frozen=True, slots=True)
class VisibleDocuments:
    """The visible documents of a collection, and their statistics."""

    visible: frozenset[int] | set[int]
    statistics: Statistics


class PlainCollection(RankedCollection[Documents, "array[int]"]):
    """A collection as sets and dicts of document numbers."""

    def _reset(self, epoch: int) -> None:
        super()._reset(epoch)
        self._lengths: dict[int, int] = {}
        self._live: set[int] = set()
        self._sources: dict[int, int] = {}
        self._inboxes: dict[int, int] = {}

    def _prepare(self, statistics: Statistics) -> None:
        pass

    def _read_segment(self, documents: bytes, lengths: bytes, deleted: bytes) -> array[int]:
        found = array(NUMBER, documents)
        for document, length in zip(found, array(NUMBER, lengths), strict=True):
            self._add(document, length)
        self._delete(array(NUMBER, deleted))
        return found

    def _add(self, document: int, length: int) -> None:
        if document not in self._lengths:
            self._live.add(document)
        self._lengths[document] = max(length, 1)

    def _delete(self, documents: Sequence[int]) -> None:
        self._live.difference_update(documents)

    def _add_sources(self, sources: Iterable[tuple[int, int, int]]) -> None:
        for document, source, inbox in sources:
            self._sources[document], self._inboxes[document] = source, inbox

    def only(self, documents: Sequence[int]) -> Documents:
        return frozenset(documents)

    def all_but(self, documents: Sequence[int]) -> Documents:
        return frozenset(self._live.difference(documents))

    def of_messages(self, numbers: Sequence[int]) -> Documents:
        named = frozenset(numbers)
        return frozenset(d for d in self._live if self._sources.get(d) in named)

    def count_complete(self, selected: Documents, query: EmbeddedQuery) -> int:
        return len(selected)

    def not_indexed(self, numbers: Sequence[int]) -> list[int]:
        indexed = {self._sources.get(document) for document in self._live}
        return [number for number in numbers if number not in indexed]

    def with_terms(self, tx: Transaction, terms: Sequence[str], among: Documents) -> list[int]:
        found = self._read(tx, terms, VisibleDocuments(self._live & among, self.statistics))
        if len(found) < len(set(terms)):
            return []
        return sorted(frozenset.intersection(*map(frozenset, found.values())))

    def rank(
        self,
        tx: Transaction,
        query: EmbeddedQuery,
        allowed: Documents,
        page: Slice,
        inboxes: InboxNumbers | None = None,
    ) -> Ranked:
        resumed = resume(page.after, query.terms)
        if resumed is not None and resumed.thresholds != TERMS_ONLY:
            raise InvalidInput(CURSOR_OUTDATED)
        visible_documents = self._visible_documents(inboxes)
        weights = self._weights(tx, visible_documents, query.terms, resumed)
        scores: Weights = {}
        for own in weights.values():
            _add_weights(scores, own)
        state = resumed or RankingState(
            visible_documents.statistics, _counts(weights, query.terms), TERMS_ONLY
        )
        hits = {d: score for d, score in scores.items() if score > 0 and d in allowed}
        shares = [min(share, 1.0) for share in _divided(hits.values(), state.max_score)]
        relevances = array(_SINGLE, [share * share for share in shares])
        ids = None if inboxes is None else self._sources
        return _page(zip(hits, relevances, strict=True), page, state, ids)

    def rank_keywords(
        self,
        tx: Transaction,
        keywords: Sequence[tuple[Sequence[str], Documents]],
        *,
        needs_all: bool,
        page: Slice,
    ) -> Ranked:
        all_terms = list(dict.fromkeys(t for terms, _ in keywords for t in terms))
        resumed = resume(page.after, all_terms)
        visible_documents = self._visible_documents(None)
        weights = self._weights(tx, visible_documents, all_terms, resumed)
        scores: Weights = {}
        counts: dict[int, int] = {}
        for terms, allowed in keywords:
            found = _keyword(weights, terms, allowed)
            _add_weights(scores, found)
            counts.update((document, counts.get(document, 0) + 1) for document in found)
        needed = len(keywords) if needs_all else 1
        hits = {document: scores[document] for document, n in counts.items() if n >= needed}
        best = max(hits.values(), default=LOWEST_BEST)
        state = resumed or RankingState(
            visible_documents.statistics,
            _counts(weights, all_terms),
            (_bits(max(best, LOWEST_BEST)), 0),
        )
        relevances = _divided(hits.values(), _from_bits(state.thresholds[0]))
        return _page(zip(hits, relevances, strict=True), page, state)

    def _visible_documents(self, inboxes: InboxNumbers | None) -> VisibleDocuments:
        if inboxes is None or isinstance(inboxes, Everything):
            return VisibleDocuments(self._live, self.statistics)
        visible = {d for d in self._live if inboxes.sees(self._inboxes.get(d, 0))}
        words = sum(self._lengths[document] for document in visible)
        return VisibleDocuments(
            visible, Statistics(max(visible, default=-1) + 1, len(visible), words)
        )

    def _weights(
        self,
        tx: Transaction,
        visible_documents: VisibleDocuments,
        terms: Sequence[str],
        resumed: RankingState | None,
    ) -> dict[str, Weights]:
        """The live documents of each term, and its weight in each.

        For a *resumed* list, only documents that existed then, with the weights of then.
        """
        statistics, found = visible_documents.statistics, self._read(tx, terms, visible_documents)
        counts = {term: len(own) for term, own in found.items()}
        if resumed is not None and resumed.statistics != statistics:
            statistics = resumed.statistics
            counts = dict(zip(terms, resumed.counts, strict=True))
            for term, own in found.items():
                found[term] = {d: own[d] for d in own if d < statistics.size}
        norms = _Norms(statistics.average_length)
        return {
            term: self._bm25(found[term], norms, statistics.idf(counts[term]))
            for term in dict.fromkeys(terms)
            if term in found
        }

    def _read(
        self, tx: Transaction, terms: Sequence[str], visible_documents: VisibleDocuments
    ) -> dict[str, dict[int, int]]:
        """The visible documents and frequencies of each term that occurs."""
        found: dict[str, dict[int, int]] = {}
        for term, segment, packed in self._postings(tx, terms):
            count, own = len(packed) // 3, self._segments[segment]
            documents = [own[doc_id] for doc_id in array(DOC_ID, packed[: 2 * count])]
            _add_visible(
                found.setdefault(term, {}), documents, packed[2 * count :], visible_documents
            )
        for term in terms:
            if term in self._buffer:
                _add_visible(found.setdefault(term, {}), *self._buffer[term], visible_documents)
        return found

    def _bm25(self, frequencies: Mapping[int, int], norms: _Norms, idf: float) -> Weights:
        lengths = self._lengths
        own = [norms[lengths[document]] for document in frequencies]
        sums = array(_SINGLE, map(add, own, frequencies.values()))
        factor = _single(idf * (K1 + 1))
        scaled = array(_SINGLE, [frequency * factor for frequency in frequencies.values()])
        return dict(zip(frequencies, array(_SINGLE, map(truediv, scaled, sums)), strict=True))


class _Norms(dict[int, float]):
    """The length normalization of BM25, by the length of a document."""

    def __init__(self, average_length: float) -> None:
        super().__init__()
        self._average = _single(average_length)

    def __missing__(self, length: int) -> float:
        relative = _single(length / self._average)
        cost = min(relative, 1.0) + LONG_DOCUMENT * math.log(max(relative, 1.0))
        norm = self[length] = _single(K1 * (1 - B + B * cost))
        return norm


def _add_visible(
    found: dict[int, int],
    documents: Iterable[int],
    frequencies: Iterable[int],
    visible_documents: VisibleDocuments,
) -> None:
    pairs = zip(documents, frequencies, strict=True)
    found.update(
        (document, count) for document, count in pairs if document in visible_documents.visible
    )


def _add_weights(scores: Weights, weights: Weights) -> None:
    sums = [scores.get(document, 0.0) + weight for document, weight in weights.items()]
    scores.update(zip(weights, array(_SINGLE, sums), strict=True))


def _keyword(weights: Mapping[str, Weights], terms: Sequence[str], allowed: Documents) -> Weights:
    """The documents that have every term of a keyword, and their scores."""
    scores: Weights = {}
    for term in terms:
        _add_weights(scores, weights.get(term, {}))
    every = [weights.get(term, {}).keys() for term in terms]
    return {d: s for d, s in scores.items() if d in allowed and all(d in own for own in every)}


def _counts(weights: Mapping[str, Weights], terms: Sequence[str]) -> tuple[int, ...]:
    """The number of documents of each term."""
    return tuple(len(weights.get(term, {})) for term in terms)


def _page(
    relevances: Iterable[tuple[int, float]],
    page: Slice,
    state: RankingState,
    ids: Mapping[int, int] | None = None,
) -> Ranked:
    """One page, best first; the highest name first among equals."""
    keys = sorted(
        (
            min(max(round(_single(relevance * STEPS)), 1), STEPS) << ID_BITS
            | (document if ids is None else ids[document])
            for document, relevance in relevances
        ),
        reverse=True,
    )
    offset = page.offset
    if page.after is not None:
        last = sort_key(page.after)
        offset = sum(key >= last for key in keys)
    return Ranked.of(keys[offset : offset + page.limit], len(keys), offset, state)


def _divided(values: Iterable[float], divisor: float) -> array[float]:
    single = _single(divisor)
    return array(_SINGLE, [value / single for value in values])


def _single(value: float) -> float:
    """A number in single precision."""
    return array(_SINGLE, (value,))[0]


def _bits(value: float) -> int:
    """The bits of a number in single precision, as an integer."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])
