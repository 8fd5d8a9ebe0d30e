"""A late pattern is a `re.compile` that is deferred until its first use."""

from __future__ import annotations

import re

import pytest

from postroom.model.values import late_pattern


def test_a_late_pattern_matches_like_a_compiled_one():
    late, compiled = late_pattern("(a+)b", re.IGNORECASE), re.compile("(a+)b", re.IGNORECASE)

    assert compiled.sub(r"<\1>", "xAAb ab") == late.sub(r"<\1>", "xAAb ab")
    assert [found.span() for found in compiled.finditer("aab AB")] == [
        found.span() for found in late.finditer("aab AB")
    ]
    assert compiled.pattern == late.pattern
    assert late_pattern(rb"\d+").fullmatch(b"17") is not None


def test_a_late_pattern_is_compiled_with_its_first_use():
    invalid = late_pattern("(")

    with pytest.raises(re.error):
        invalid.match("a")
