"""A merge takes about as much memory for much mail as it does for little."""

from __future__ import annotations

import errno
import random
import subprocess
import sys

import numpy as np
import pytest

from postroom.errors import StorageFull
from postroom.store.search import lexicon, meetings, spill, tokens
from postroom.store.search.arrays import PADDING, U8, U64, Int
from postroom.store.search.endings import find_endings
from postroom.store.search.tokens import Tokeniser
from postroom.store.search.vocabulary import Vocabulary

MERGE = """
import random, resource, sys
from postroom.store.search.build import SegmentBuilder

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
    builder.add([(number, number, text, "", "")])
for row in builder.rows():
    pass
print(peak_mb() - before)
"""


def _merge_mb(kilobytes: int) -> float:
    """Megabytes that a merge of so many messages of about a kilobyte takes at most."""
    command = [sys.executable, "-c", MERGE, str(kilobytes)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_six_times_the_mail_takes_hardly_more_memory() -> None:
    little, much = _merge_mb(2_000), _merge_mb(12_000)

    assert much < 80
    assert much - little < 20


@pytest.mark.parametrize("most", [1, 7, 100])
def test_meetings_have_one_order_however_few_are_sorted_at_once(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(most)
    pieces = ["a", "ba", " of", " the", "-", "-----", " 42", "é", "你好", ".", "\n"]
    texts = ["".join(choice.choices(pieces, k=choice.randrange(40))) for _ in range(60)]
    at_once = _meetings(texts)
    monkeypatch.setattr(meetings, "MOST", most)
    monkeypatch.setattr(spill, "_MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(tokens, "_AT_ONCE_BYTES", 200)

    in_groups = _meetings(texts)

    assert sorted(at_once, key=lambda meeting: meeting[:-1]) == at_once
    assert at_once == in_groups


def _meetings(texts: list[str]) -> list[tuple[int, ...]]:
    """All meetings: the last character before, what follows, and the message."""
    tokeniser = Tokeniser(4, has_pieces=True)
    tokeniser.add([text.encode() for text in texts])
    text = tokeniser.finish(np.arange(len(texts)))
    endings = find_endings(text.terms)
    found = [
        np.column_stack((endings.characters[part.left], *part.following, part.docs))
        for part in meetings.sorted_meetings(text, endings)
    ]
    text.close()
    return [tuple(row) for row in np.concatenate(found).tolist()]


def test_terms_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "hash_strings", _first_bytes)
    words = [b"ab", b"ac", b"b", b"bcdefghijk", b"bcdefghijl", b"c", b"ad", b"ab\xc3\xa9"]
    numbered: dict[bytes, int] = {}
    known = lexicon.Lexicon()

    for names in (words[:3], words[2:5], words, words[::-1]):
        flat = np.frombuffer(b"\n".join(names) + PADDING, np.uint8)
        lengths = np.array([len(name) for name in names])
        starts = np.cumsum(lengths + 1) - lengths - 1
        numbers = known.numbers(Vocabulary(flat, starts, lengths)).tolist()
        for name, number in zip(names, numbers, strict=True):
            assert numbered.setdefault(name, number) == number
    terms, places = known.finish()

    assert list(range(len(words))) == sorted(numbered.values())
    assert [numbered[name] for name in sorted(words)] == np.argsort(places).tolist()
    assert b"\n".join(sorted(words)) == terms.flat.tobytes().rstrip(b"\n")


def _first_bytes(flat: U8, starts: Int, _: Int) -> U64:
    return flat[starts].astype(np.uint64)


def test_a_full_disk_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    aside = spill.Spill()
    monkeypatch.setattr(aside._file, "write", full)

    with pytest.raises(StorageFull, match="TMPDIR"):
        aside.put(np.arange(3, dtype=np.uint32))
    aside.close()
