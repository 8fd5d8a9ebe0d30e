"""Texts cut into tokens, many at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from postroom.store.search.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    Int,
    number_strings,
    sort_strings,
    spans,
)
from postroom.store.search.characters import LETTERS

LONGEST = 120
"""Bytes of a token that are kept; of a longer one, the last."""

BORDER = 10
"""The byte after every term and every text, which no term has."""

AHEAD = 4
"""How many tokens after a place the index looks at."""

_AT_ONCE_BYTES = 4 << 20
_SPACE = 32
_GAP, _LETTER, _DIGIT, _SINGLE, _REST = range(5)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Distinct terms in the order of their bytes; a term is known by its place."""

    flat: U8
    starts: Int
    lengths: Int

    def __len__(self) -> int:
        return len(self.starts)


NO_TERMS = Vocabulary(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Tokenised:
    """The texts of many messages as one sequence of terms.

    An element of `sequence` is the term plus one, and `gap` more if a space stands before it;
    after the last token of each text stand `AHEAD` zeros. `docs` names the text of each element,
    `cut` the texts that have a token too long to be kept.
    """

    terms: Vocabulary
    sequence: U32
    docs: U16
    cut: Int

    @property
    def gap(self) -> int:
        """A power of two above every term."""
        return 1 << len(self.terms).bit_length()


_SPACED = np.uint32(1 << 31)


@dataclass(slots=True)
class _Piece:
    """Some texts: their terms, and of each token the number of its term.

    `_SPACED` is added to the number if a space stands before the token.
    """

    terms: Vocabulary
    numbers: U32
    counts: Int
    cut: Int


class Tokeniser:
    """Takes texts in portions, so that they need not all be in memory, and cuts them."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Take some more texts; many are cut at once."""
        self._waiting += texts
        self._waiting_bytes += sum(map(len, texts))
        if self._waiting_bytes >= _AT_ONCE_BYTES:
            self._cut()

    def _cut(self) -> None:
        if self._waiting:
            self._pieces.append(_cut(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def finish(self, places: Int) -> Tokenised:
        """All texts together; *places* says where in the segment each of them stands."""
        self._cut()
        pieces, self._pieces = self._pieces, []
        terms, ranks = _one_vocabulary(pieces)
        return _joined(pieces, ranks, terms, places)


def _one_vocabulary(pieces: Sequence[_Piece]) -> tuple[Vocabulary, list[U32]]:
    """The terms of all pieces, which give up theirs, and what each of those is called now."""
    sizes = [len(piece.terms) for piece in pieces]
    flat = np.concatenate([piece.terms.flat for piece in pieces])
    offsets = np.cumsum([0] + [len(piece.terms.flat) for piece in pieces])[:-1]
    starts = np.concatenate([p.terms.starts + o for p, o in zip(pieces, offsets, strict=True)])
    lengths = np.concatenate([piece.terms.lengths for piece in pieces])
    for piece in pieces:
        piece.terms = NO_TERMS
    numbers, firsts = number_strings(flat, starts, lengths)
    order = sort_strings(flat, starts[firsts], lengths[firsts])
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.arange(len(order), dtype=np.uint32)
    terms = _packed(flat, starts[firsts[order]], lengths[firsts[order]])
    return terms, np.split(ranks[numbers], np.cumsum(sizes)[:-1])


def _packed(flat: U8, starts: Int, lengths: Int) -> Vocabulary:
    """The strings alone, each followed by a border."""
    ends = np.cumsum(lengths + 1)
    packed = np.full((int(ends[-1]) if len(ends) else 0) + len(PADDING), BORDER, np.uint8)
    own = ends - lengths - 1
    packed[spans(own, lengths)] = flat[spans(starts, lengths)]
    return Vocabulary(packed, own, lengths)


def _joined(pieces: list[_Piece], ranks: list[U32], terms: Vocabulary, places: Int) -> Tokenised:
    total = sum(int(piece.counts.sum()) + AHEAD * len(piece.counts) for piece in pieces)
    sequence, docs = np.zeros(total, np.uint32), np.empty(total, np.uint16)
    gap = np.uint32(1 << len(terms).bit_length())
    cut: list[Int] = []
    at = text = 0
    while pieces:
        piece = pieces.pop(0)
        own = ranks.pop(0)[piece.numbers & ~_SPACED] + np.uint32(1)
        own |= (piece.numbers >= _SPACED) * gap
        shift = np.repeat(AHEAD * np.arange(len(piece.counts)), piece.counts)
        sequence[at + shift + np.arange(len(own))] = own
        sizes = piece.counts + AHEAD
        after = at + int(sizes.sum())
        docs[at:after] = np.repeat(places[text : text + len(sizes)], sizes)
        cut.append(places[text + piece.cut])
        at, text = after, text + len(sizes)
    return Tokenised(terms, sequence, docs, np.unique(np.concatenate(cut)))


def _cut(texts: Sequence[bytes]) -> _Piece:
    flat = np.frombuffer(b"\n".join(texts) + PADDING, np.uint8)
    starts, ends = find_tokens(flat)
    after = np.cumsum(np.array([len(text) + 1 for text in texts]))
    counts = np.diff(np.searchsorted(starts, after), prepend=0)
    follows_space = (flat[np.maximum(starts, 1) - 1] == _SPACE) & (starts > 0)
    too_long = np.flatnonzero(ends - starts > LONGEST)
    cut = np.searchsorted(np.cumsum(counts), too_long, side="right")
    if len(too_long):
        starts[too_long] = _next_character(flat, ends[too_long] - LONGEST)
    numbers, firsts = number_strings(flat, starts, ends - starts)
    terms = _packed(flat, starts[firsts], (ends - starts)[firsts])
    numbers |= follows_space * _SPACED
    return _Piece(terms, numbers, counts, cut)


def find_tokens(flat: U8) -> tuple[Int, Int]:
    """Where each token starts and ends."""
    classes = _classes(flat)
    borders = np.ones(len(flat), np.bool_)
    np.not_equal(classes[1:], classes[:-1], out=borders[1:])
    borders |= classes == _SINGLE
    borders &= classes != _REST
    starts = np.flatnonzero(borders)
    ends = np.append(starts[1:], len(flat))
    are_tokens = classes[starts] != _GAP
    return starts[are_tokens], ends[are_tokens]


def _classes(flat: U8) -> U8:
    """The class of every byte: that of its character, or `_REST` inside a single one."""
    classes = _of_ascii()[flat]
    leads = np.flatnonzero(flat >= 0xC0)
    if not len(leads):
        return classes
    found = _of_pairs()[flat[leads], flat[leads + 1]]
    classes[leads] = found
    rest = np.where(found == _SINGLE, np.uint8(_REST), found)
    for place, least in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):
        longer = flat[leads] >= least
        classes[leads[longer] + place] = rest[longer]
    return classes


@cache
def _of_ascii() -> U8:
    classes = np.full(256, _SINGLE, np.uint8)
    classes[[BORDER, _SPACE]] = _GAP
    classes[ord("a") : ord("z") + 1] = _LETTER
    classes[ord("0") : ord("9") + 1] = _DIGIT
    return classes


@cache
def _of_pairs() -> U8:
    """Classes by the first two bytes of a character."""
    classes = np.full((256, 256), _SINGLE, np.uint8)
    is_letter = re.compile(f"[{LETTERS}]").match
    for block in range(0x80, 0x10000, 64):
        if not 0xD800 <= block < 0xE000 and is_letter(chr(block)):
            lead, second = chr(block).encode()[:2]
            classes[lead, slice(None) if block < 0x800 else second] = _LETTER
    return classes


def _next_character(flat: U8, places: Int) -> Int:
    for _ in range(3):
        places = places + ((flat[places] & 0xC0) == 0x80)
    return places
