"""Texts cut into tokens, many at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from postroom.store.search.arrays import PADDING, U8, U16, U32, Bools, Int, number_strings
from postroom.store.search.characters import LETTERS
from postroom.store.search.lexicon import Lexicon
from postroom.store.search.spill import Aside, Spill
from postroom.store.search.vocabulary import BORDER, Vocabulary, packed

LONGEST = 120
"""Bytes of a token that are kept; of a longer one, the last."""

_STRIDE = 72
_PIECE = LONGEST - 3
"""Bytes from one piece of a token to the next, and of a piece, give or take a character: two
have more than `WHOLE` bytes in common."""

_AT_ONCE_BYTES = 1 << 20
_SPACE = 32
_GAP, _LETTER, _DIGIT, _SINGLE, _REST = range(5)


_SPACED = np.uint32(1 << 31)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of all texts, as a sequence of terms.

    An element of `sequence` is the term plus one, and `gap` more if a space stands before it;
    after the last token of each text stand `ahead` zeros. `docs` names the text of each element.
    """

    sequence: U32
    docs: U16


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some texts that were put aside: how many elements each has, and which have a cut token."""

    aside: Aside
    sizes: Int
    cut: Int


class Tokenised:
    """The texts of many messages as one sequence of terms, most of it put aside."""

    def __init__(
        self,
        terms: Vocabulary,
        ranks: U32,
        pieces: Sequence[_Piece],
        spill: Spill,
        places: Int,
        ahead: int,
    ) -> None:
        self.terms = terms
        self.ahead = ahead
        self._ranks = np.append(np.uint32(0), ranks + np.uint32(1))
        self._pieces = pieces
        self._spill = spill
        self._places = places.astype(np.uint16)

    @property
    def gap(self) -> int:
        """A power of two above every term."""
        return 1 << len(self.terms).bit_length()

    @property
    def cut(self) -> Int:
        """The texts that have a token too long to be kept."""
        found = [places[piece.cut] for piece, places in self._by_piece()]
        return np.unique(np.concatenate(found)).astype(np.int64)

    def stretches(self) -> Iterator[Stretch]:
        """All texts, some at a time."""
        for piece, places in self._by_piece():
            numbers = self._spill.get(piece.aside)
            sequence = self._ranks[numbers & ~_SPACED]
            sequence |= (numbers >= _SPACED) * np.uint32(self.gap)
            yield Stretch(sequence, np.repeat(places, piece.sizes))

    def close(self) -> None:
        """Give back what was put aside."""
        self._spill.close()

    def _by_piece(self) -> Iterator[tuple[_Piece, U16]]:
        text = 0
        for piece in self._pieces:
            after = text + len(piece.sizes)
            yield piece, self._places[text:after]
            text = after


class Tokeniser:
    """Takes texts in portions, cuts them, and puts them aside."""

    def __init__(self, ahead: int, *, has_pieces: bool) -> None:
        self._ahead, self._has_pieces = ahead, has_pieces
        self._spill = Spill()
        self._lexicon = Lexicon()
        self._pieces: list[_Piece] = []
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Take some more texts; many are cut at once."""
        for text in texts:
            self._waiting.append(text)
            self._waiting_bytes += len(text)
            if self._waiting_bytes >= _AT_ONCE_BYTES:
                self._cut()

    def _cut(self) -> None:
        if self._waiting:
            tokens = _cut(self._waiting, has_pieces=self._has_pieces)
            self._pieces.append(self._put_aside(tokens))
        self._waiting, self._waiting_bytes = [], 0

    def _put_aside(self, tokens: _Tokens) -> _Piece:
        own = self._lexicon.numbers(tokens.terms)[tokens.numbers] + np.uint32(1)
        own |= tokens.follows_space * _SPACED
        sizes = tokens.counts + self._ahead
        shift = np.repeat(self._ahead * np.arange(len(sizes)), tokens.counts)
        sequence = np.zeros(int(sizes.sum()), np.uint32)
        sequence[shift + np.arange(len(own))] = own
        return _Piece(self._spill.put(sequence), sizes, tokens.cut)

    def finish(self, places: Int) -> Tokenised:
        """All texts together; *places* says where in the segment each of them stands."""
        self._cut()
        terms, ranks = self._lexicon.finish()
        return Tokenised(terms, ranks, self._pieces, self._spill, places, self._ahead)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Some texts: their terms, and of each token the number of its term."""

    terms: Vocabulary
    numbers: U32
    follows_space: Bools
    counts: Int
    cut: Int


def _cut(texts: Sequence[bytes], *, has_pieces: bool) -> _Tokens:
    flat = np.frombuffer(b"\n".join(texts) + PADDING, np.uint8)
    starts, ends = find_tokens(flat)
    after = np.cumsum(np.array([len(text) + 1 for text in texts]))
    too_long = np.flatnonzero(ends - starts > LONGEST)
    cut = np.searchsorted(after, starts[too_long], side="right")
    if len(too_long) and has_pieces:
        starts, ends = _in_pieces(flat, starts, ends)
    counts = np.diff(np.searchsorted(starts, after), prepend=0)
    follows_space = (flat[np.maximum(starts, 1) - 1] == _SPACE) & (starts > 0)
    if len(too_long) and not has_pieces:
        starts[too_long] = _next_character(flat, ends[too_long] - LONGEST)
    numbers, firsts = number_strings(flat, starts, ends - starts)
    terms = packed(flat, starts[firsts], (ends - starts)[firsts])
    return _Tokens(terms, numbers, follows_space, counts, cut)


def _in_pieces(flat: U8, starts: Int, ends: Int) -> tuple[Int, Int]:
    """The same tokens, but those that are too long in pieces; no query has a border there."""
    more = np.maximum(ends - starts - _PIECE + _STRIDE - 1, 0) // _STRIDE
    more[ends - starts <= LONGEST] = 0
    owners = np.repeat(np.arange(len(starts)), more + 1)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(more + 1) - more - 1, more + 1)
    first = starts[owners] + number * _STRIDE
    last = np.where(number < more[owners], first + _PIECE, ends[owners])
    inside, open_ended = number > 0, number < more[owners]
    first[inside] = _next_character(flat, first[inside])
    last[open_ended] = _next_character(flat, last[open_ended])
    return first, last


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
