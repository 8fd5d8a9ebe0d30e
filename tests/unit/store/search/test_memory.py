"""The memory of a merge is nearly independent of the amount of mail."""

from __future__ import annotations

import errno
import random
import subprocess
import sys

import numpy as np
import pytest

from postroom.errors import StorageFull
from postroom.store.search.postings import token_pairs
from postroom.store.search.postings.token_pairs import find_endings
from postroom.store.search.segments.builder import SegmentBuilder
from postroom.store.search.segments.segment import SegmentRow
from postroom.store.search.tokens import arrays, tokenizer
from postroom.store.search.tokens.arrays import PADDING, U8, U64, Int
from postroom.store.search.tokens.tokenizer import Terms, Tokenizer

pytestmark = pytest.mark.one_python

MERGE = """
import random, resource, sys
from postroom.store.search.segments.builder import SegmentBuilder

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

kilobytes = int(sys.argv[1])
choice = random.Random(1)
sizes = [choice.randrange(1, 9) for _ in range(20_000)]
words = ["".join(choice.choices("abcdefghijklmnop", k=size)) for size in sizes]
signs = [" ", " ", ", ", ". ", "-", " -- ", "(", ") ", " = "]
before = peak_mb()
builder = SegmentBuilder()
for number in range(kilobytes):
    # common words are those with low numbers, as in any language
    names = [words[int(20_000 ** choice.random()) - 1] for _ in range(130)]
    text = "".join(name + choice.choice(signs) for name in names)
    builder.add([(number, number, "subject\\x1f" + text, "", "", 1, 0, 0, "[]", "[]", 0)])
for row in builder.rows():
    pass
print(peak_mb() - before)
"""


def _merge_mb(kilobytes: int) -> float:
    """Peak megabytes of a merge of this many messages of about a kilobyte."""
    command = [sys.executable, "-c", MERGE, str(kilobytes)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_merge_of_six_times_the_mail_takes_hardly_more_memory() -> None:
    little, much = _merge_mb(2_000), _merge_mb(12_000)

    assert much < 80
    assert much - little < 20


@pytest.mark.parametrize("max_whole", [0, 1 << 20])
@pytest.mark.parametrize("max_sorted", [1, 7, 100])
def test_token_pairs_have_the_same_order_whatever_the_batch_size(
    max_sorted: int, max_whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(max_sorted)
    pieces = ["a", "ba", " of", " the", "-", "-----", " 42", "é", "你好", ".", "\n"]
    texts = ["".join(choice.choices(pieces, k=choice.randrange(40))) for _ in range(60)]
    at_once = _token_pairs(texts)
    monkeypatch.setattr(token_pairs, "MAX_SORTED", max_sorted)
    monkeypatch.setattr(tokenizer, "MAX_WHOLE", max_whole)
    monkeypatch.setattr(arrays, "_MAX_IN_MEMORY", 1000)
    monkeypatch.setattr(tokenizer, "_BATCH_BYTES", 200)

    in_groups = _token_pairs(texts)

    assert sorted(at_once, key=lambda meeting: meeting[:-1]) == at_once
    assert at_once == in_groups


def test_texts_in_memory_and_in_a_file_make_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = random.Random(5)
    words = ["of", "the", "-----", "42", "é", "你好", "mail", "boundary", ", ", "\n"]
    texts = [" ".join(choice.choices(words, k=choice.randrange(90))) for _ in range(400)]
    in_memory = _rows(texts)
    monkeypatch.setattr(tokenizer, "MAX_WHOLE", 0)

    assert in_memory == _rows(texts)


def _rows(texts: list[str]) -> list[SegmentRow]:
    builder = SegmentBuilder()
    builder.add(
        [
            (number, -number, text, "a@b.example", "", 1, 0, 0, "[]", "[]", 0)
            for number, text in enumerate(texts)
        ]
    )
    return list(builder.rows())


def _token_pairs(texts: list[str]) -> list[tuple[int, ...]]:
    """All token pairs: last character before the boundary, what follows, and the message."""
    tokeniser = Tokenizer(4, has_chunks=True)
    tokeniser.add([text.encode() for text in texts])
    text = tokeniser.finish(np.arange(len(texts)))
    endings = find_endings(text.terms)
    found = []
    for part in token_pairs.sorted_token_pairs(text, endings):
        characters, _ = part.endings()
        following = [part.tokens(position) for position in range(1, 5)]
        found.append(np.column_stack((characters, *following, part.docs())))
    text.close()
    return [tuple(row) for row in np.concatenate(found).tolist()]


def test_terms_with_the_same_hash_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "hash_strings", _first_bytes)
    words = [b"ab", b"ac", b"b", b"bcdefghijk", b"bcdefghijl", b"c", b"ad", b"ab\xc3\xa9"]
    numbered: dict[bytes, int] = {}
    known = tokenizer.TermDictionary()

    for names in (words[:3], words[2:5], words, words[::-1]):
        flat = np.frombuffer(b"\n".join(names) + PADDING, np.uint8)
        lengths = np.array([len(name) for name in names])
        starts = np.cumsum(lengths + 1) - lengths - 1
        numbers = known.numbers(Terms(flat, starts, lengths)).tolist()
        for name, number in zip(names, numbers, strict=True):
            assert numbered.setdefault(name, number) == number
    terms, places = known.finish()

    assert list(range(len(words))) == sorted(numbered.values())
    assert [numbered[name] for name in sorted(words)] == np.argsort(places).tolist()
    assert b"\n".join(sorted(words)) == terms.flat.tobytes().rstrip(b"\n")


def _first_bytes(flat: U8, starts: Int, _: Int) -> U64:
    return flat[starts].astype(np.uint64)


def test_a_full_disk_raises_storage_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spilled = arrays.TempFile()
    monkeypatch.setattr(spilled._file, "write", full)

    with pytest.raises(StorageFull, match="TMPDIR"):
        spilled.put(np.arange(3, dtype=np.uint32))
    spilled.close()
