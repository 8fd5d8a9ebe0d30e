"""Many strings at once: cut, sorted and numbered as Python would one by one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.mail.fold import fold
from postroom.store.search.arrays import PADDING, number_strings, sort_strings
from postroom.store.search.characters import LETTERS, follow_up, split_query
from postroom.store.search.sets import places_in, with_place, write_places
from postroom.store.search.tokens import Tokenised, Tokeniser, find_tokens

unhurried = settings(deadline=None)
TOKEN = re.compile(f"[{LETTERS}]+|[0-9]+|[^ {LETTERS}0-9]")
TEXTS = st.text(st.characters(codec="utf-8")).map(fold)
WORDS = st.text("aab\u00e9\u4f60z0", max_size=20).map(str.encode)


@unhurried
@given(st.lists(TEXTS, min_size=1))
def test_texts_are_cut_where_the_expression_cuts_them(texts: list[str]) -> None:
    flat = np.frombuffer("\n".join(texts).encode() + PADDING, np.uint8)

    starts, ends = find_tokens(flat)

    found = [flat[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]
    assert [token for text in texts for token in TOKEN.findall(text)] == found


def _elements(text: Tokenised) -> Iterator[tuple[int, int]]:
    for stretch in text.stretches():
        yield from zip(stretch.docs.tolist(), stretch.sequence.tolist(), strict=True)


@unhurried
@given(st.lists(st.lists(TEXTS, min_size=1), min_size=1))
def test_a_sequence_of_terms_gives_the_texts_back(portions: list[list[str]]) -> None:
    tokeniser = Tokeniser(4, has_pieces=True)
    for portion in portions:
        tokeniser.add([text.encode() for text in portion])
    texts = [text for portion in portions for text in portion]

    text = tokeniser.finish(np.arange(len(texts)))

    terms = text.terms.flat.tobytes()
    spans = zip(text.terms.starts.tolist(), text.terms.lengths.tolist(), strict=True)
    names = [terms[start : start + length] for start, length in spans]
    found = [b""] * len(texts)
    for doc, term in _elements(text):
        if term:
            found[doc] += b" " * (term >= text.gap) + names[term % text.gap - 1]
    kept = [own for number, own in enumerate(found) if number not in text.cut]
    assert sorted(set(names)) == names
    assert [t.encode() for number, t in enumerate(texts) if number not in text.cut] == kept


@unhurried
@given(st.lists(WORDS))
def test_strings_are_sorted_by_their_bytes(words: list[bytes]) -> None:
    flat = np.frombuffer(b"".join(words) + PADDING, np.uint8)
    lengths = np.array([len(word) for word in words], np.int64)

    order = sort_strings(flat, np.cumsum(lengths) - lengths, lengths)

    expected = sorted(range(len(words)), key=lambda at: (words[at], at))
    assert [words[at] for at in expected] == [words[at] for at in order]


@unhurried
@given(st.lists(WORDS.filter(bool), min_size=1))
def test_equal_strings_and_only_they_share_a_number(words: list[bytes]) -> None:
    flat = np.frombuffer(b"".join(words) + PADDING, np.uint8)
    lengths = np.array([len(word) for word in words], np.int64)

    numbers, firsts = number_strings(flat, np.cumsum(lengths) - lengths, lengths)

    assert words == [words[firsts[number]] for number in numbers]
    assert len(set(words)) == len(firsts)


@unhurried
@given(TEXTS.filter(bool))
def test_a_query_is_its_first_token_and_what_follows_it(text: str) -> None:
    first, rest = split_query(text)

    assert text == first + rest[1:]
    assert not rest or rest[0] == first[-1]
    assert rest[1:] == "".join(" " * space + token for space, token in follow_up(rest))


@unhurried
@given(st.lists(st.tuples(st.integers(0, 99), st.booleans())))
def test_a_written_set_changes_like_a_set(changes: list[tuple[int, bool]]) -> None:
    expected = set[int]()
    value = write_places([], 100)
    for place, is_in in changes:
        value = with_place(value, place, 100, is_in=is_in)
        (expected.add if is_in else expected.discard)(place)

    assert sorted(expected) == places_in(value)


def test_nothing_heavy_is_loaded_before_there_is_something_to_merge() -> None:
    code = (
        "import sys; import postroom.store.sqlite, postroom.store.store; "
        "print([name for name in ('numpy', 'onnxruntime') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]\n" == found.stdout
