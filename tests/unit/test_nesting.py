"""The nesting depth of JSON, computed from the parsed value and from the bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.model.limits import MAX_DEPTH, is_shallow, is_shallow_json

NESTED = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1),
    "both": lambda depth: '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2),
    "beside others": lambda depth: "[[],[]," * (depth - 1) + "[]" + "]" * (depth - 1),
    "after brackets in a text": lambda depth: '["]]]}}}",' * (depth - 1) + "[]" + "]" * (depth - 1),
    "after escapes": lambda depth: r'["\\\"]]","\\",' * (depth - 1) + "[]" + "]" * (depth - 1),
}


@pytest.mark.parametrize("shape", NESTED)
def test_at_most_64_levels_are_accepted(shape):
    most = NESTED[shape](MAX_DEPTH)
    deeper = NESTED[shape](MAX_DEPTH + 2)

    assert (True, True) == (is_shallow(json.loads(most)), is_shallow_json(most.encode()))
    assert (False, False) == (is_shallow(json.loads(deeper)), is_shallow_json(deeper.encode()))


@pytest.mark.parametrize("text", ["[" * 1_000, "{" * 100_000, '["' + "[" * 99 + '"' + "[" * 99])
def test_the_depth_of_invalid_json_is_defined(text):
    assert not is_shallow_json(text.encode())


@pytest.mark.parametrize("text", ["[]," * 1_000, json.dumps("[" * 1_000), json.dumps("\\[" * 99)])
def test_adjacent_brackets_and_brackets_in_strings_do_not_count(text):
    assert is_shallow_json(text.encode())


def depth_of(value) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0) if isinstance(inner, list) else 0


words = st.text(st.sampled_from('[]{}"\\a\u2200'), max_size=9)
values = st.recursive(
    words | st.none(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(words, inner, max_size=9),
    max_leaves=200,
)


@given(values, st.integers(50, 70))
def test_the_depth_of_the_bytes_equals_that_of_the_value(value, around):
    for _ in range(around):
        value = {"[": [value, "]\\"]}

    expected = depth_of(value) <= MAX_DEPTH
    assert expected == is_shallow(value)
    for is_ascii in (True, False):
        assert expected == is_shallow_json(json.dumps(value, ensure_ascii=is_ascii).encode())
