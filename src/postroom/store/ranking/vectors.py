"""Vectors of a collection in memory, and the nearest ones to a query."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from postroom.model.memory import Vector
from postroom.store.transaction import Transaction

Numbers = NDArray[np.uint32]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Rows = slice | NDArray[np.intp]
"""The first rows, or some rows."""

EMBEDDED = """
    SELECT document, vector, embedded_at_change FROM ranking_documents
     WHERE collection = :collection AND embedded_at_change > :after AND model = :model
     ORDER BY embedded_at_change
"""
_CHUNK, _CHUNK_BITS = 128, 16_384
"""How many vectors, and how many words of sketches, fit into the CPU cache."""

_WORDS_PER_BYTE = 3
"""The distance of this many 64-bit words always fits into a byte."""

MIN_COSINE, MIN_COSINE_OF_MANY = 0.2, 0.3
"""The lowest cosine of a match, among few and among many vectors."""

_EXHAUSTIVE = 5_000
"""Below this, comparing every vector is as fast as sketches."""

_COMPARED = 1_000
"""How many of the nearest sketches are compared in full."""

_SAMPLED = 8
"""One in this many sketches estimates the distances if all documents are visible. Otherwise each is
counted, because a sample would depend on documents that the caller cannot see."""

_SPREAD = 1.5
"""How many standard deviations a sketch may be off; 1 in 300 of the barely near is missed."""


Values = TypeVar("Values", bound=np.generic)


def grown(array: NDArray[Values], size: int, *, axis: int = 0, fill: int = 0) -> NDArray[Values]:
    """The array with room for *size* elements; it is at least doubled, so that this is rare."""
    shape, room = list(array.shape), array.shape[axis]
    if size <= room:
        return array
    shape[axis] = max(size, 2 * room) - room
    return np.concatenate([array, np.full(shape, fill, array.dtype)], axis)


class SearchBounds(NamedTuple):
    """The last vector that was compared, and the largest distance of sketches."""

    last_embedded: int
    distance: int


def pack_vector(vector: Vector) -> bytes:
    """Encode a vector: one signed byte per dimension, because only the direction counts."""
    parts = np.frombuffer(vector, "<f4")
    largest = float(np.abs(parts).max()) or 1.0
    return np.rint(parts * (127 / largest)).astype(np.int8).tobytes()


class Vectors:
    """Vectors as rows of bytes, with a sketch of each: the sign of every dimension."""

    def __init__(self, collection: int) -> None:
        self._collection = collection
        self.reset()

    def reset(self, model: str = "") -> None:
        self.is_current = False
        self._model, self._last_embedded, self._count = model, -1, 0
        self._rows: NDArray[np.int8] = np.zeros((0, 0), np.int8)
        self._sketches: NDArray[np.uint64] = np.zeros((0, 0), np.uint64)
        self._norms: Floats = np.zeros(0, np.float32)
        self._documents: Numbers = np.zeros(0, np.uint32)
        self._embedded_at: NDArray[np.int64] = np.zeros(0, np.int64)
        self._row_of: NDArray[np.int32] = np.zeros(0, np.int32)

    def refresh(self, tx: Transaction, model: str) -> None:
        """Read the vectors that were added since the last call."""
        if model != self._model:
            self.reset(model)
        if self.is_current:
            return
        rows = tx.all(EMBEDDED, collection=self._collection, after=self._last_embedded, model=model)
        self.is_current = True
        if not rows:
            return
        size = len(rows[0][1])
        packed = b"".join(row[1] for row in rows)
        self._append(
            np.frombuffer(packed, np.int8).reshape(-1, size),
            np.array([row[0] for row in rows], np.uint32),
            np.array([row[2] for row in rows], np.int64),
        )
        self._last_embedded = rows[-1][2]

    def _append(
        self, rows: NDArray[np.int8], documents: Numbers, embedded: NDArray[np.int64]
    ) -> None:
        count = self._count + len(rows)
        self._reserve(count, rows.shape[1])
        new = slice(self._count, count)
        self._rows[new] = rows
        self._documents[new], self._embedded_at[new] = documents, embedded
        self._sketches[:, new] = _sketch(rows).T
        self._row_of = grown(self._row_of, int(documents.max()) + 1, fill=-1)
        self._row_of[documents] = np.arange(self._count, count, dtype=np.int32)
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK].astype(np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", part, part)).clip(1e-6)
            self._norms[self._count + start :][: len(part)] = lengths
        self._count = count

    def _reserve(self, count: int, size: int) -> None:
        if not self._count:
            self._rows = np.zeros((0, size), np.int8)
            self._sketches = np.zeros((math.ceil(size / 64), 0), np.uint64)
        self._rows = grown(self._rows, count)
        self._sketches = grown(self._sketches, count, axis=1)
        self._norms = grown(self._norms, count)
        self._documents = grown(self._documents, count)
        self._embedded_at = grown(self._embedded_at, count)

    def has_vector(self, documents: NDArray[np.intp]) -> Mask:
        """Which of some documents have a vector of the model that was read last."""
        found: Mask = np.zeros(len(documents), np.bool_)
        known = documents < len(self._row_of)
        found[known] = self._row_of[documents[known]] >= 0
        return found

    def near(
        self,
        query_vector: Vector,
        also: NDArray[np.intp],
        visible: Mask | None = None,
        resumed: SearchBounds | None = None,
    ) -> tuple[Numbers, Floats, SearchBounds]:
        """The documents near a query, their cosines, and the bounds of the search.

        Only *visible* documents count (None: all). Among many, sketches select the vectors that are
        compared; the documents in *also* are always compared. A *resumed* list has those of its
        first page.
        """
        query = np.frombuffer(query_vector, "<f4").astype(np.float32)
        rows = self._visible_rows(visible, resumed)
        embedded = self._embedded_at[rows]
        if not len(embedded) or self._rows.shape[1] != len(query):
            return np.zeros(0, np.uint32), np.zeros(0, np.float32), SearchBounds(-1, len(query))
        query = query / max(float(np.linalg.norm(query)), 1e-6)
        chosen, max_distance = self._select(query, rows, also, resumed and resumed.distance)
        compared = rows if chosen is None else chosen
        cosines = self._cosines(query, compared)
        near = cosines >= (MIN_COSINE if chosen is None else MIN_COSINE_OF_MANY)
        bounds = SearchBounds(int(embedded[-1]), max_distance)
        return self._documents[compared][near], cosines[near], bounds

    def _visible_rows(self, visible: Mask | None, resumed: SearchBounds | None) -> Rows:
        """The rows of visible documents that were embedded when the list was started."""
        count = self._count
        if resumed is not None:
            embedded = self._embedded_at[:count]
            count = int(embedded.searchsorted(resumed.last_embedded, side="right"))
        return slice(count) if visible is None else np.flatnonzero(visible[self._documents[:count]])

    def _select(
        self, query: Floats, rows: Rows, also: NDArray[np.intp], max_distance: int | None
    ) -> tuple[NDArray[np.intp] | None, int]:
        """The rows to compare (None: all), and the largest distance of their sketches."""
        parts, sketches = len(query), self._sketches[:, rows]
        if sketches.shape[1] < _EXHAUSTIVE if max_distance is None else max_distance >= parts:
            return None, parts
        share = math.acos(MIN_COSINE_OF_MANY) / math.pi
        far = int(parts * share + _SPREAD * math.sqrt(parts * share * (1 - share)))
        distance = _differences(query, sketches, far)
        if max_distance is None:
            step = _SAMPLED if isinstance(rows, slice) else 1
            counts = np.cumsum(np.bincount(distance[::step], minlength=far + 1)[: far + 1])
            max_distance = min(far, int(np.searchsorted(counts, _COMPARED // step)))
        chosen_rows = self._row_of[also[also < len(self._row_of)]]
        is_chosen = np.zeros(self._count, np.bool_)
        is_chosen[chosen_rows[chosen_rows >= 0]] = True
        chosen = np.flatnonzero((distance <= max_distance) | is_chosen[rows])
        return (chosen if isinstance(rows, slice) else rows[chosen]), max_distance

    def _cosines(self, query: Floats, chosen: Rows) -> Floats:
        """Computed in chunks that fit into the CPU cache.

        Every chunk has the same size, so a product does not depend on the number of vectors.
        """
        norms = self._norms[chosen]
        count = len(norms)
        products = np.empty(count, np.float32)
        chunk, product = np.zeros((_CHUNK, len(query)), np.float32), np.empty(_CHUNK, np.float32)
        for start in range(0, count, _CHUNK):
            end = min(start + _CHUNK, count)
            if isinstance(chosen, slice):
                rows = self._rows[start:end]
            else:
                rows = self._rows.take(chosen[start:end], axis=0)
            np.copyto(chunk[: len(rows)], rows)
            np.dot(chunk, query, out=product)
            products[start:end] = product[: len(rows)]
        products /= norms
        return products


def _differences(
    query: Floats, sketches: NDArray[np.uint64], max_distance: int
) -> NDArray[np.unsignedinteger]:
    """The number of dimensions with a different sign, exact up to *max_distance*."""
    count = sketches.shape[1]
    words = list(zip(_sketch(query[None])[0], sketches, strict=True))
    mixed, bits = np.empty(_CHUNK_BITS, np.uint64), np.empty(_CHUNK_BITS, np.uint8)
    distance = np.zeros(count, np.min_scalar_type(max_distance + 1))
    for start in range(0, count, _CHUNK_BITS):
        sums = distance[start : start + _CHUNK_BITS]
        chunk, some = mixed[: len(sums)], bits[: len(sums)]
        for number, (word, row) in enumerate(words):
            np.bitwise_xor(row[start : start + len(sums)], word, out=chunk)
            np.bitwise_count(chunk, out=some)
            if number >= _WORDS_PER_BYTE:
                np.minimum(some, ~sums, out=some)
            sums += some
    return distance


def _sketch(rows: NDArray[np.int8] | Floats) -> NDArray[np.uint64]:
    """One bit per dimension: whether it is positive."""
    bits = np.packbits(rows > 0, axis=1)
    padding = -bits.shape[1] % 8
    return (np.pad(bits, ((0, 0), (0, padding))) if padding else bits).view(np.uint64)
