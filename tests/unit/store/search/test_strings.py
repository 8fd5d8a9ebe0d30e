"""Arrays of strings: tokenized, sorted and numbered as by plain Python."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.mail.text.fold import fold
from postroom.store.search.segments.message_sets import decode_set, encode_set, with_doc
from postroom.store.search.tokens.arrays import PADDING, number_strings, sort_strings
from postroom.store.search.tokens.boundaries import LETTERS, following_tokens, split_query
from postroom.store.search.tokens.tokenizer import TokenizedTexts, Tokenizer, find_tokens

unhurried = settings(deadline=None)
TOKEN = re.compile(f"[{LETTERS}]+|[0-9]+|[^ {LETTERS}0-9]")
TEXTS = st.text(st.characters(codec="utf-8")).map(fold)
WORDS = st.text("aab\u00e9\u4f60z0", max_size=20).map(str.encode)


@unhurried
@given(st.lists(TEXTS, min_size=1))
def test_texts_are_split_like_queries(texts: list[str]) -> None:
    flat = np.frombuffer("\n".join(texts).encode() + PADDING, np.uint8)

    starts, ends = find_tokens(flat)

    found = [flat[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]
    assert [token for text in texts for token in TOKEN.findall(text)] == found


def _elements(text: TokenizedTexts) -> Iterator[tuple[int, int]]:
    for run in text.runs():
        yield from zip(run.docs.tolist(), run.sequence.tolist(), strict=True)


@unhurried
@given(st.lists(st.lists(TEXTS, min_size=1), min_size=1))
def test_texts_can_be_restored_from_the_sequence_of_terms(portions: list[list[str]]) -> None:
    tokeniser = Tokenizer(4, has_chunks=True)
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
            found[doc] += b" " * (term >= text.space_flag) + names[term % text.space_flag - 1]
    kept = [own for number, own in enumerate(found) if number not in text.truncated]
    assert sorted(set(names)) == names
    assert [t.encode() for number, t in enumerate(texts) if number not in text.truncated] == kept


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
def test_only_equal_strings_share_a_number(words: list[bytes]) -> None:
    flat = np.frombuffer(b"".join(words) + PADDING, np.uint8)
    lengths = np.array([len(word) for word in words], np.int64)

    numbers, firsts = number_strings(flat, np.cumsum(lengths) - lengths, lengths)

    assert words == [words[firsts[number]] for number in numbers]
    assert len(set(words)) == len(firsts)


@unhurried
@given(TEXTS.filter(bool))
def test_a_query_is_split_after_its_first_token(text: str) -> None:
    first, rest = split_query(text)

    assert text == first + rest[1:]
    assert not rest or rest[0] == first[-1]
    assert rest[1:] == "".join(" " * space + token for space, token in following_tokens(rest))


@unhurried
@given(st.lists(st.tuples(st.integers(0, 99), st.booleans())))
def test_an_encoded_set_changes_like_a_set(changes: list[tuple[int, bool]]) -> None:
    expected = set[int]()
    value = encode_set([], 100)
    for place, is_in in changes:
        value = with_doc(value, place, 100, is_in=is_in)
        (expected.add if is_in else expected.discard)(place)

    assert sorted(expected) == decode_set(value)


def test_numpy_is_not_loaded_before_there_is_something_to_merge() -> None:
    code = (
        "import sys; import postroom.store.sqlite, postroom.store.store; "
        "print([name for name in ('numpy', 'onnxruntime') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]\n" == found.stdout
