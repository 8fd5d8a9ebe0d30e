"""What a text must have before it is read word by word: quick tests that never miss.

Each test is passed by everything that the slow code would accept, and by little else. Words of all
languages are looked for in one pass by RE2, on bytes, because its wrapper counts characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from postroom.mail.data import load, prefilter

OTHER_MARK = r"^[ ]{0,6}(?:([|:])[ \t]+\S|([A-Z][A-Za-z]{0,2})>{1,4}[ \t]?\S)"
"""Marks of quoted lines other than `>`."""

# Numbers without which there is neither a date, a year nor a time: see the tokens of attributions.
_MAY_BE_DATED = re.compile(r"\d(?:\d|[ \xa0\u202f]?[AaPp]|\s?[时時시点點])")
_MAY_BE_ZONE = re.compile(r"GMT|UTC|[+−-]\d|ST\b|DT\b")
_BEFORE_VERB = "(?:^|[^a-z]|gmt|utc|[0-9]t)"  # which tokens end without a space


@cache
def words_of(kind: str) -> frozenset[str]:
    """Words of all languages: `verbs`, `months`, `weekdays`, `small` or `openers`."""
    languages = load("quotations")["languages"].values()
    return frozenset(word for language in languages for word in language.get(kind, ()))


@cache
def _pattern(source: str) -> Any:
    import re2  # type: ignore[import-untyped]  # late, for a quick start

    return re2.compile(source.encode())


def _is_found(source: str, lowered: str) -> bool:
    return _pattern(source).search(lowered.encode("utf-8", "replace")) is not None


@cache
def _verbs() -> str:
    plain = "|".join(sorted(re.escape(verb) for verb in words_of("verbs") if verb.isascii()))
    others = sorted(re.escape(verb) for verb in words_of("verbs") if not verb.isascii())
    inside = map(re.escape, load("quotations")["verbs_inside"])
    return "|".join((f"{_BEFORE_VERB}(?:{plain})(?:[^a-z]|$)", *others, *inside))


@lru_cache(maxsize=16)
def may_have_verb(text: str) -> bool:
    """False if no word for writing stands in the text in any language."""
    return _is_found(_verbs(), text.lower())


def may_be_dated(text: str) -> bool:
    """False if there is neither a date, a year nor a time in the text."""
    return _MAY_BE_DATED.search(text) is not None


def may_have_zone(text: str) -> bool:
    """False if no zone of a time stands in the text."""
    return _MAY_BE_ZONE.search(text) is not None


def _line_with(*kinds: str) -> str:
    """A line with words of all these kinds, in any order and language."""
    languages = load("quotations")["languages"].values()
    words = [
        "|".join(sorted({re.escape(word) for one in languages for word in one.get(kind, ())}))
        for kind in kinds
    ]
    orders = permutations(f"(?:{kind})" for kind in words)
    return "|".join(r"[^\n]*".join(order) for order in orders)


@cache
def _marks() -> Callable[[str], bool]:
    return prefilter(f"(?-i:{OTHER_MARK})|{_line_with('above', 'line')}")


@cache
def _reply_mark() -> Callable[[str], bool]:
    return prefilter(_line_with("above", "line", "reply"))


def may_have_marks(text: str) -> bool:
    """False if no line of a text is a reply mark or begins with a rare mark of quotations.

    One pass for both: most texts have neither.
    """
    return _marks()(text)


def may_have_reply_mark(text: str) -> bool:
    """False if no line of a text says `reply`, `above` and `line`."""
    return _reply_mark()(text)


@cache
def verb_endings() -> tuple[int, frozenset[str]]:
    """How many letters at the end of a word tell that it is no verb, and those of all verbs."""
    count = min(3, *map(len, words_of("verbs")))
    return count, frozenset(verb[-count:] for verb in words_of("verbs"))
