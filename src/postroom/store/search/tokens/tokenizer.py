"""The tokenizer and the term dictionary: many texts are split at once, and
the tokens are spilled to a temporary file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np

from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    U64,
    Bools,
    Int,
    SpilledArray,
    TempFile,
    hash_strings,
    is_first,
    masked_words,
    number_strings,
    sort_strings,
    spans,
)
from postroom.store.search.tokens.boundaries import LETTERS

SEPARATOR = 10
"""The byte after every term and every text; no term contains it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Distinct terms, usually sorted; a term is identified by its index."""

    flat: U8
    starts: Int
    lengths: Int

    def __len__(self) -> int:
        return len(self.starts)


def pack_terms(flat: U8, starts: Int, lengths: Int) -> Terms:
    """Copy strings out of *flat*, each followed by a separator."""
    ends = np.cumsum(lengths + 1)
    flat_terms = np.full((int(ends[-1]) if len(ends) else 0) + len(PADDING), SEPARATOR, np.uint8)
    own = ends - lengths - 1
    flat_terms[spans(own, lengths)] = flat.take(spans(starts, lengths))
    return Terms(flat_terms, own, lengths)


class TermDictionary:
    """Gives each distinct term a number, from zero on, in order of first occurrence.

    Terms are looked up by hash and compared in full; terms with colliding hashes are in a dict.
    """

    def __init__(self) -> None:
        self._hashes: U64 = np.empty(0, np.uint64)
        self._numbers: U32 = np.empty(0, np.uint32)
        self._flat: U8 = np.frombuffer(PADDING, np.uint8)
        self._starts: Int = np.empty(0, np.int64)
        self._lengths: Int = np.empty(0, np.int64)
        self._collisions: dict[bytes, int] = {}

    def numbers(self, terms: Terms) -> U32:
        """The numbers of distinct terms; unknown terms are added."""
        hashes = hash_strings(terms.flat, terms.starts, terms.lengths)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes.take(order)
        slots = np.searchsorted(self._hashes, ordered)
        is_known = np.zeros(len(order), np.bool_)
        inside = slots < len(self._hashes)
        is_known[inside] = self._hashes[slots[inside]] == ordered[inside]
        is_new = ~is_known & is_first(ordered)
        numbers = np.empty(len(order), np.uint32)
        old, new = order.compress(is_known), order.compress(is_new)
        known = self._numbers.take(slots.compress(is_known))
        numbers[old] = known
        collides = ~(is_known | is_new)
        collides[is_known] = ~self._are_equal(terms, old, known)
        added = numbers[new] = self._append(terms, new)
        places = slots.compress(is_new)
        self._hashes = np.insert(self._hashes, places, ordered.compress(is_new))
        self._numbers = np.insert(self._numbers, places, added)
        for term in order[collides].tolist():
            numbers[term] = self._collision_number(terms, term)
        return numbers

    def _are_equal(self, terms: Terms, own: Int, known: U32) -> Bools:
        lengths = terms.lengths.take(own)
        equal: Bools = lengths == self._lengths.take(known)
        depth, rest = 0, np.flatnonzero(equal)
        while len(rest):
            left = lengths[rest] - depth
            ours = masked_words(terms.flat, terms.starts[own[rest]] + depth, left)
            theirs = masked_words(self._flat, self._starts[known[rest]] + depth, left)
            equal[rest] &= ours == theirs
            depth += 8
            rest = rest[lengths[rest] > depth]
        return equal

    def _append(self, terms: Terms, chosen: Int) -> U32:
        count = len(self._starts)
        new = pack_terms(terms.flat, terms.starts[chosen], terms.lengths[chosen])
        end = len(self._flat) - len(PADDING)
        self._flat = np.concatenate((self._flat[:end], new.flat))
        self._starts = np.append(self._starts, new.starts + end)
        self._lengths = np.append(self._lengths, new.lengths)
        return np.arange(count, count + len(chosen), dtype=np.uint32)

    def _collision_number(self, terms: Terms, term: int) -> int:
        start = int(terms.starts[term])
        name = terms.flat[start : start + int(terms.lengths[term])].tobytes()
        if name not in self._collisions:
            self._collisions[name] = int(self._append(terms, np.array([term]))[0])
        return self._collisions[name]

    def finish(self) -> tuple[Terms, U32]:
        """The sorted terms, and the rank of each by its number. Empties the dictionary."""
        self._hashes, self._numbers = np.empty(0, np.uint64), np.empty(0, np.uint32)
        order = sort_strings(self._flat, self._starts, self._lengths)
        ranks = np.empty(len(order), np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32)
        terms = pack_terms(self._flat, self._starts[order], self._lengths[order])
        self._flat = np.empty(0, np.uint8)
        return terms, ranks


_BATCH = 1 << 17
_NO_PREFIX = 0xFFFF
"""Not the first two bytes of any UTF-8 string."""


@dataclass(frozen=True, slots=True)
class Suffixes:
    """Sorted suffixes: where each starts, its length, and its term."""

    flat: U8
    starts: Int
    lengths: Int
    terms: Int


def sorted_suffixes(terms: Terms) -> Iterator[Suffixes]:
    """All suffixes in batches; those with the same first two bytes are in one batch."""
    prefixes = _prefixes(terms.flat)
    counts = np.bincount(prefixes, minlength=_NO_PREFIX + 1)[:_NO_PREFIX]
    edges = np.flatnonzero(is_first(np.cumsum(counts) // _BATCH)).tolist()
    for first, last in pairwise([*edges, _NO_PREFIX]):
        own = np.flatnonzero((prefixes >= first) & (prefixes < last))
        if not len(own):
            continue
        owners = np.searchsorted(terms.starts, own, side="right") - 1
        lengths = (terms.starts + terms.lengths).take(owners) - own
        order = sort_strings(terms.flat, own, lengths)
        yield Suffixes(terms.flat, own.take(order), lengths.take(order), owners.take(order))


def _prefixes(flat: U8) -> U16:
    """The first two bytes of the suffix that starts at each position, if one does."""
    prefixes = np.full(len(flat), _NO_PREFIX, np.uint16)
    prefixes[:-1] = flat[:-1]
    prefixes[:-1] <<= 8
    prefixes[:-1] |= flat[1:]
    prefixes[(flat == SEPARATOR) | ((flat & 0xC0) == 0x80)] = _NO_PREFIX
    return prefixes


MAX_TOKEN_BYTES = 120
"""The longest token that is stored whole; format 1 stores only the end of a longer one."""

_STRIDE = 72
_CHUNK_BYTES = MAX_TOKEN_BYTES - 3
"""A longer token is stored in chunks of this size, one every `_STRIDE` bytes, both rounded to whole
characters: two neighbours share more than `MAX_WHOLE_BYTES` bytes."""

_BATCH_BYTES = 1 << 20
MAX_WHOLE = 6 << 20
"""Texts of up to this many tokens are held in memory, with six bytes for each."""

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
    """Spilled texts: which they are, and the number of elements of each."""

    spilled: SpilledArray
    texts: slice
    sizes: Int


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """The texts of a segment as one sequence of terms, spilled to a file."""

    terms: Terms
    lookahead: int
    truncated: U16
    """The doc ids of the texts with a token longer than `MAX_TOKEN_BYTES`."""
    _ranks: U32
    """The rank plus one of each term, by its spilled number; zero for zero."""
    _batches: Sequence[_Batch]
    _file: TempFile
    _doc_ids: U16
    whole: TokenRun | None = None
    """All texts in one run, if they are small enough to be held in memory."""

    @property
    def space_flag(self) -> int:
        """A power of two above every term."""
        return 1 << len(self.terms).bit_length()

    def runs(self) -> Iterator[TokenRun]:
        """All texts, one batch at a time."""
        first = 0
        for batch in self._batches:
            if self.whole is None:
                yield self._run(batch)
                continue
            last = first + batch.spilled.count
            yield TokenRun(self.whole.sequence[first:last], self.whole.docs[first:last])
            first = last

    def _run(self, batch: _Batch) -> TokenRun:
        numbers = self._file.get(batch.spilled)
        sequence = self._ranks.take(numbers & ~_SPACE_BEFORE)
        sequence |= (numbers >= _SPACE_BEFORE) * np.uint32(self.space_flag)
        return TokenRun(sequence, np.repeat(self._doc_ids[batch.texts], batch.sizes))

    def in_memory(self) -> TokenizedTexts:
        """The same texts, held in memory unless they are too large for that."""
        count = sum(batch.spilled.count for batch in self._batches)
        if count > MAX_WHOLE:
            return self
        whole, first = TokenRun(np.empty(count, np.uint32), np.empty(count, np.uint16)), 0
        for batch in self._batches:
            run, last = self._run(batch), first + batch.spilled.count
            whole.sequence[first:last], whole.docs[first:last] = run.sequence, run.docs
            first = last
        return replace(self, whole=whole)

    def close(self) -> None:
        self._file.close()


class Tokenizer:
    """Tokenizes texts in batches and spills the tokens."""

    def __init__(self, lookahead: int, *, has_chunks: bool) -> None:
        self._lookahead, self._has_chunks = lookahead, has_chunks
        self._file = TempFile()
        self._dictionary = TermDictionary()
        self._batches: list[_Batch] = []
        self._truncated: list[Int] = [np.empty(0, np.int64)]
        self._pending: list[bytes] = []
        self._pending_bytes = self._flushed = 0

    def add(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            self._pending.append(text)
            self._pending_bytes += len(text)
            if self._pending_bytes >= _BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        texts, first = self._pending, self._flushed
        self._pending, self._pending_bytes, self._flushed = [], 0, first + len(texts)
        if not texts:
            return
        flat = np.frombuffer(b"\n".join(texts) + PADDING, np.uint8)
        starts, ends = find_tokens(flat)
        after = np.cumsum(np.array([len(text) + 1 for text in texts]))
        is_long = np.flatnonzero(ends - starts > MAX_TOKEN_BYTES)
        self._truncated.append(first + np.searchsorted(after, starts[is_long], side="right"))
        if len(is_long) and self._has_chunks:
            starts, ends = _split_long(flat, starts, ends)
        counts = np.diff(np.searchsorted(starts, after), prepend=0)
        follows_space = flat.take(starts - 1) == _SPACE  # the padding is before the first
        if len(is_long) and not self._has_chunks:
            starts[is_long] = _next_character(flat, ends[is_long] - MAX_TOKEN_BYTES)
        lengths = ends - starts
        numbers, firsts = number_strings(flat, starts, lengths)
        terms = pack_terms(flat, starts.take(firsts), lengths.take(firsts))
        own = self._dictionary.numbers(terms).take(numbers)
        own += np.uint32(1)
        own |= follows_space * _SPACE_BEFORE
        sizes = counts + self._lookahead
        sequence = np.zeros(int(sizes.sum()), np.uint32)
        sequence[spans(np.cumsum(sizes) - sizes, counts)] = own
        spilled = self._file.put(sequence)
        self._batches.append(_Batch(spilled, slice(first, self._flushed), sizes))

    def finish(self, doc_ids: Int) -> TokenizedTexts:
        """All texts; *doc_ids* are their doc ids in the order in which they were added."""
        self._flush()
        terms, ranks = self._dictionary.finish()
        ranks = np.append(np.uint32(0), ranks + np.uint32(1))
        docs = doc_ids.astype(np.uint16)
        truncated = np.unique(docs[np.concatenate(self._truncated)])
        text = TokenizedTexts(
            terms, self._lookahead, truncated, ranks, self._batches, self._file, docs
        )
        return text.in_memory()


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
    """Where each token starts and ends; the last byte belongs to none."""
    classes = _classes(flat)
    is_edge = classes[1:] != classes[:-1]
    is_edge |= classes[1:] == _SINGLE
    is_edge &= classes[1:] != _CONTINUATION
    is_in_token = classes != _WHITESPACE
    is_start = np.append(is_in_token[:1], is_edge & is_in_token[1:])
    return np.flatnonzero(is_start), np.flatnonzero(is_edge & is_in_token[:-1]) + 1


def _classes(flat: U8) -> U8:
    """The class of each byte: its character's, or `_CONTINUATION` inside a single character."""
    # Much faster than looking up each byte with an index.
    classes = np.frombuffer(bytearray(flat).translate(_ascii_classes()), np.uint8)
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
def _ascii_classes() -> bytes:
    classes = np.full(256, _SINGLE, np.uint8)
    classes[[SEPARATOR, _SPACE]] = _WHITESPACE
    classes[ord("a") : ord("z") + 1] = _LETTER
    classes[ord("0") : ord("9") + 1] = _DIGIT
    return classes.tobytes()


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
