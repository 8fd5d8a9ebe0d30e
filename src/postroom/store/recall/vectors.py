"""The vectors of a shelf in memory, and those that point the same way as a question."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from postroom.model.memory import Vector
from postroom.store.transaction import Transaction

Numbers = NDArray[np.uint32]
Floats = NDArray[np.float32]

LEARNT = """
    SELECT leaf, vector, learnt FROM leaves
     WHERE shelf = :shelf AND learnt > :after AND model = :model ORDER BY learnt
"""
_CHUNK, _CHUNK_BITS = 128, 16_384
"""How many vectors, and how many words of sketches, fit into the cache."""

_WORDS_PER_BYTE = 3
"""So many words of 64 bits may differ everywhere, and their number fits into a byte for sure."""

NEAR, NEAR_AMONG_MANY = 0.2, 0.3
"""The least cosine of what is found by meaning alone; among many, there is always better."""

_FEW = 5_000
"""Below this, looking at every vector is as quick as a sketch."""

_LOOKED_AT = 1_000
"""Where very many are near, those whose sketches are nearest will do; best by words are added."""

_SAMPLED = 8
"""Of so many sketches one tells how near the others are."""

_SPREAD = 1.5
"""How many standard deviations a sketch may be off; of what is just near, 1 in 300 was more."""


def pack_vector(vector: Vector) -> bytes:
    """A vector as it is stored: only its direction counts, so a byte for each part will do."""
    parts = np.frombuffer(vector, "<f4")
    most = float(np.abs(parts).max()) or 1.0
    return np.rint(parts * (127 / most)).astype(np.int8).tobytes()


class Vectors:
    """Directions as rows of whole numbers, and of each a sketch: the sign of every part."""

    def __init__(self, shelf: int) -> None:
        self._shelf = shelf
        self.start_anew()

    def start_anew(self, model: str = "") -> None:
        self.is_current = False
        self._model, self._seen, self._count = model, -1, 0
        self._rows: NDArray[np.int8] = np.zeros((0, 0), np.int8)
        self._sketches: NDArray[np.uint64] = np.zeros((0, 0), np.uint64)
        self._norms: Floats = np.zeros(0, np.float32)
        self._leaves: Numbers = np.zeros(0, np.uint32)
        self._learnt: NDArray[np.int64] = np.zeros(0, np.int64)
        self._places: NDArray[np.int32] = np.zeros(0, np.int32)

    def refresh(self, tx: Transaction, model: str) -> None:
        """Read what was learnt since the last time."""
        if model != self._model:
            self.start_anew(model)
        if self.is_current:
            return
        rows = tx.all(LEARNT, shelf=self._shelf, after=self._seen, model=model)
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
        self._seen = rows[-1][2]

    def _append(self, rows: NDArray[np.int8], leaves: Numbers, learnt: NDArray[np.int64]) -> None:
        count = self._count + len(rows)
        self._reserve(count, rows.shape[1])
        new = slice(self._count, count)
        self._rows[new] = rows
        self._leaves[new], self._learnt[new] = leaves, learnt
        self._sketches[:, new] = _sketch(rows).T
        self._place(leaves)
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK].astype(np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", part, part)).clip(1e-6)
            self._norms[self._count + start :][: len(part)] = lengths
        self._count = count

    def _place(self, leaves: Numbers) -> None:
        """Note in which row the vector of each new leaf stands."""
        size = int(leaves.max()) + 1
        if size > len(self._places):
            more = max(size, 2 * len(self._places)) - len(self._places)
            self._places = np.concatenate([self._places, np.full(more, -1, np.int32)])
        self._places[leaves] = np.arange(self._count, self._count + len(leaves), dtype=np.int32)

    def _reserve(self, count: int, size: int) -> None:
        room = len(self._leaves)
        if count <= room:
            return
        more = max(count, 2 * room) - room
        words = math.ceil(size / 64)
        rows = self._rows if room else np.zeros((0, size), np.int8)
        sketches = self._sketches if room else np.zeros((words, 0), np.uint64)
        self._rows = np.concatenate([rows, np.zeros((more, size), np.int8)])
        self._sketches = np.concatenate([sketches, np.zeros((words, more), np.uint64)], axis=1)
        self._norms = np.concatenate([self._norms, np.ones(more, np.float32)])
        self._leaves = np.concatenate([self._leaves, np.zeros(more, np.uint32)])
        self._learnt = np.concatenate([self._learnt, np.zeros(more, np.int64)])

    def near(
        self, question: Vector, besides: NDArray[np.intp], begun: tuple[int, int] | None = None
    ) -> tuple[Numbers, Floats, int]:
        """The leaves that may have to do with a question, and the cosine between them.

        Of many, a sketch of a bit for each part chooses those worth a closer look, and some leaves
        are looked at *besides*. With them comes in how many parts a sketch may differ; a list that
        was *begun* before goes on with that, and with what was learnt until then.
        """
        asked = np.frombuffer(question, "<f4").astype(np.float32)
        if not self._count or self._rows.shape[1] != len(asked):
            return np.zeros(0, np.uint32), np.zeros(0, np.float32), len(asked)
        asked = asked / max(float(np.linalg.norm(asked)), 1e-6)
        count, most = self._count, None
        if begun is not None:
            until, most = begun
            count = int(np.searchsorted(self._learnt[:count], until, side="right"))
        chosen, most = self._worth_a_look(asked, count, besides, most)
        cosines = self._cosines(asked, count, chosen)
        leaves = self._leaves[:count] if chosen is None else self._leaves[chosen]
        near = cosines >= (NEAR if chosen is None else NEAR_AMONG_MANY)
        return leaves[near], cosines[near], most

    def _worth_a_look(
        self, asked: Floats, count: int, besides: NDArray[np.intp], most: int | None
    ) -> tuple[NDArray[np.intp] | None, int]:
        """The rows to compare, None if all, and the most parts in which their sketches differ."""
        parts = len(asked)
        if count < _FEW if most is None else most >= parts:
            return None, parts
        share = math.acos(NEAR_AMONG_MANY) / math.pi
        far = int(parts * share + _SPREAD * math.sqrt(parts * share * (1 - share)))
        differ = self._differences(asked, count, far)
        if most is None:
            counts = np.cumsum(np.bincount(differ[::_SAMPLED], minlength=far + 1)[: far + 1])
            most = min(far, int(np.searchsorted(counts, _LOOKED_AT // _SAMPLED)))
        named = self._places[besides[besides < len(self._places)]]
        is_chosen = differ <= most
        is_chosen[named[(named >= 0) & (named < count)]] = True
        return np.flatnonzero(is_chosen), most

    def _differences(self, asked: Floats, count: int, most: int) -> NDArray[np.unsignedinteger]:
        """In how many parts each vector points the other way; exactly, if it is not over *most*."""
        words = list(zip(_sketch(asked[None])[0], self._sketches, strict=True))
        mixed, bits = np.empty(_CHUNK_BITS, np.uint64), np.empty(_CHUNK_BITS, np.uint8)
        differ = np.zeros(count, np.min_scalar_type(most + 1))
        for start in range(0, count, _CHUNK_BITS):
            sums = differ[start : start + _CHUNK_BITS]
            chunk, some = mixed[: len(sums)], bits[: len(sums)]
            for place, (word, row) in enumerate(words):
                np.bitwise_xor(row[start : start + len(sums)], word, out=chunk)
                np.bitwise_count(chunk, out=some)
                if place >= _WORDS_PER_BYTE:
                    np.minimum(some, ~sums, out=some)
                sums += some
        return differ

    def _cosines(self, asked: Floats, count: int, chosen: NDArray[np.intp] | None) -> Floats:
        """In chunks that fit the cache: there a byte becomes a float quickly.

        Each is multiplied as a whole, so that a product does not depend on how many there are.
        """
        count = count if chosen is None else len(chosen)
        products = np.empty(count, np.float32)
        chunk, product = np.zeros((_CHUNK, len(asked)), np.float32), np.empty(_CHUNK, np.float32)
        for start in range(0, count, _CHUNK):
            end = min(start + _CHUNK, count)
            rows = self._rows[start:end]
            if chosen is not None:
                rows = self._rows.take(chosen[start:end], axis=0)
            np.copyto(chunk[: len(rows)], rows)
            np.dot(chunk, asked, out=product)
            products[start:end] = product[: len(rows)]
        products /= self._norms[:count] if chosen is None else self._norms[chosen]
        return products


def _sketch(rows: NDArray[np.int8] | Floats) -> NDArray[np.uint64]:
    """One bit for each part: whether it is positive."""
    bits = np.packbits(rows > 0, axis=1)
    padding = -bits.shape[1] % 8
    return (np.pad(bits, ((0, 0), (0, padding))) if padding else bits).view(np.uint64)
