"""The tokenizer: splits many texts at once, and spills the tokens to a temporary file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    Bools,
    Int,
    SpilledArray,
    TempFile,
    number_strings,
)
from postroom.store.search.tokens.boundaries import LETTERS
from postroom.store.search.tokens.dictionary import SEPARATOR, TermDictionary, Terms, pack_terms

MAX_TOKEN_BYTES = 120
"""The longest token that is stored whole; format 1 stores only the end of a longer one."""

_STRIDE = 72
_CHUNK_BYTES = MAX_TOKEN_BYTES - 3
"""A longer token is stored in chunks of this size, one every `_STRIDE` bytes, both rounded to whole
characters: two neighbours share more than `MAX_WHOLE_BYTES` bytes."""

_BATCH_BYTES = 1 << 20
_SPACE = 32
_WHITESPACE, _LETTER, _DIGIT, _SINGLE, _CONTINUATION = range(5)
_SPACE_BEFORE = np.uint32(1 << 31)


@dataclass(frozen=True, slots=True)
class TokenRun:
    """A part of all texts as a sequence of terms.

    An element of `sequence` is the term plus one, plus `space_flag` if a space precedes the token;
    `lookahead` zeros follow each text. `docs` holds the doc id of each element.
    """

    sequence: U32
    docs: U16


@dataclass(frozen=True, slots=True)
class _Batch:
    """Spilled texts: the number of elements of each, and which contain a truncated token."""

    spilled: SpilledArray
    sizes: Int
    truncated: Int


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """The texts of a segment as one sequence of terms, spilled to a file."""

    terms: Terms
    lookahead: int
    _ranks: U32
    """The rank plus one of each term, by its spilled number; zero for zero."""
    _batches: Sequence[_Batch]
    _file: TempFile
    _doc_ids: U16

    @property
    def space_flag(self) -> int:
        """A power of two above every term."""
        return 1 << len(self.terms).bit_length()

    @property
    def truncated(self) -> Int:
        """The doc ids of the texts with a token longer than `MAX_TOKEN_BYTES`."""
        found = [doc_ids[batch.truncated] for batch, doc_ids in self._by_batch()]
        return np.unique(np.concatenate(found)).astype(np.int64)

    def runs(self) -> Iterator[TokenRun]:
        """All texts, one batch at a time."""
        for batch, doc_ids in self._by_batch():
            numbers = self._file.get(batch.spilled)
            sequence = self._ranks[numbers & ~_SPACE_BEFORE]
            sequence |= (numbers >= _SPACE_BEFORE) * np.uint32(self.space_flag)
            yield TokenRun(sequence, np.repeat(doc_ids, batch.sizes))

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()

    def _by_batch(self) -> Iterator[tuple[_Batch, U16]]:
        first = 0
        for batch in self._batches:
            last = first + len(batch.sizes)
            yield batch, self._doc_ids[first:last]
            first = last


class Tokenizer:
    """Tokenizes texts in batches and spills the tokens."""

    def __init__(self, lookahead: int, *, has_chunks: bool) -> None:
        self._lookahead, self._has_chunks = lookahead, has_chunks
        self._file = TempFile()
        self._dictionary = TermDictionary()
        self._batches: list[_Batch] = []
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def add(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            self._pending.append(text)
            self._pending_bytes += len(text)
            if self._pending_bytes >= _BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._pending:
            tokens = _tokenize(self._pending, has_chunks=self._has_chunks)
            self._batches.append(self._spill_tokens(tokens))
        self._pending, self._pending_bytes = [], 0

    def _spill_tokens(self, tokens: _Tokens) -> _Batch:
        own = self._dictionary.numbers(tokens.terms)[tokens.numbers] + np.uint32(1)
        own |= tokens.follows_space * _SPACE_BEFORE
        sizes = tokens.counts + self._lookahead
        shift = np.repeat(self._lookahead * np.arange(len(sizes)), tokens.counts)
        sequence = np.zeros(int(sizes.sum()), np.uint32)
        sequence[shift + np.arange(len(own))] = own
        return _Batch(self._file.put(sequence), sizes, tokens.truncated)

    def finish(self, doc_ids: Int) -> TokenizedTexts:
        """All texts; *doc_ids* are their doc ids in the order in which they were added."""
        self._flush()
        terms, ranks = self._dictionary.finish()
        ranks = np.append(np.uint32(0), ranks + np.uint32(1))
        docs = doc_ids.astype(np.uint16)
        return TokenizedTexts(terms, self._lookahead, ranks, self._batches, self._file, docs)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Tokenized texts: their terms, and the number of the term of each token."""

    terms: Terms
    numbers: U32
    follows_space: Bools
    counts: Int
    truncated: Int


def _tokenize(texts: Sequence[bytes], *, has_chunks: bool) -> _Tokens:
    flat = np.frombuffer(b"\n".join(texts) + PADDING, np.uint8)
    starts, ends = find_tokens(flat)
    after = np.cumsum(np.array([len(text) + 1 for text in texts]))
    is_long = np.flatnonzero(ends - starts > MAX_TOKEN_BYTES)
    truncated = np.searchsorted(after, starts[is_long], side="right")
    if len(is_long) and has_chunks:
        starts, ends = _split_long(flat, starts, ends)
    counts = np.diff(np.searchsorted(starts, after), prepend=0)
    follows_space = (flat[np.maximum(starts, 1) - 1] == _SPACE) & (starts > 0)
    if len(is_long) and not has_chunks:
        starts[is_long] = _next_character(flat, ends[is_long] - MAX_TOKEN_BYTES)
    numbers, firsts = number_strings(flat, starts, ends - starts)
    terms = pack_terms(flat, starts[firsts], (ends - starts)[firsts])
    return _Tokens(terms, numbers, follows_space, counts, truncated)


def _split_long(flat: U8, starts: Int, ends: Int) -> tuple[Int, Int]:
    """Replace tokens longer than the maximum by overlapping chunks."""
    extra = np.maximum(ends - starts - _CHUNK_BYTES + _STRIDE - 1, 0) // _STRIDE
    extra[ends - starts <= MAX_TOKEN_BYTES] = 0
    owners = np.repeat(np.arange(len(starts)), extra + 1)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(extra + 1) - extra - 1, extra + 1)
    first = starts[owners] + number * _STRIDE
    last = np.where(number < extra[owners], first + _CHUNK_BYTES, ends[owners])
    inside, open_ended = number > 0, number < extra[owners]
    first[inside] = _next_character(flat, first[inside])
    last[open_ended] = _next_character(flat, last[open_ended])
    return first, last


def find_tokens(flat: U8) -> tuple[Int, Int]:
    """Where each token starts and ends."""
    classes = _classes(flat)
    is_start = np.ones(len(flat), np.bool_)
    np.not_equal(classes[1:], classes[:-1], out=is_start[1:])
    is_start |= classes == _SINGLE
    is_start &= classes != _CONTINUATION
    starts = np.flatnonzero(is_start)
    ends = np.append(starts[1:], len(flat))
    are_tokens = classes[starts] != _WHITESPACE
    return starts[are_tokens], ends[are_tokens]


def _classes(flat: U8) -> U8:
    """The class of each byte: its character's, or `_CONTINUATION` inside a single character."""
    classes = _ascii_classes()[flat]
    leads = np.flatnonzero(flat >= 0xC0)
    if not len(leads):
        return classes
    found = _two_byte_classes()[flat[leads], flat[leads + 1]]
    classes[leads] = found
    rest = np.where(found == _SINGLE, np.uint8(_CONTINUATION), found)
    for offset, min_lead in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):
        longer = flat[leads] >= min_lead
        classes[leads[longer] + offset] = rest[longer]
    return classes


@cache
def _ascii_classes() -> U8:
    classes = np.full(256, _SINGLE, np.uint8)
    classes[[SEPARATOR, _SPACE]] = _WHITESPACE
    classes[ord("a") : ord("z") + 1] = _LETTER
    classes[ord("0") : ord("9") + 1] = _DIGIT
    return classes


@cache
def _two_byte_classes() -> U8:
    """Classes by the first two bytes of a character."""
    classes = np.full((256, 256), _SINGLE, np.uint8)
    is_letter = re.compile(f"[{LETTERS}]").match
    for block in range(0x80, 0x10000, 64):
        if not 0xD800 <= block < 0xE000 and is_letter(chr(block)):
            lead, second = chr(block).encode()[:2]
            classes[lead, slice(None) if block < 0x800 else second] = _LETTER
    return classes


def _next_character(flat: U8, positions: Int) -> Int:
    for _ in range(3):
        positions = positions + ((flat[positions] & 0xC0) == 0x80)
    return positions
