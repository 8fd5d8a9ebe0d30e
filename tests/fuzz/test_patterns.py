"""No pattern takes exponential time, for texts made of its own parts."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import re._constants as codes
import re._parser as parser
import signal
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import postroom

REPEATS = 30
"""Enough for each way to read a part twice to take minutes."""

TRIES = 16
LIMIT_S = 5.0
OTHERS = 'ax 1<"-.@:;,\t('
REPEATED = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
CLASSES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_SPACE: r"\S",
}
CATEGORIES = {codes.CATEGORY_DIGIT: "1", codes.CATEGORY_SPACE: " ", codes.CATEGORY_WORD: "a"}


def every_pattern() -> Iterator[tuple[str, str, int]]:
    """The patterns of all modules, with where they are."""
    found = set()
    for module in pkgutil.walk_packages(postroom.__path__, "postroom."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            text, flags = getattr(value, "pattern", None), getattr(value, "flags", 0)
            if isinstance(text, bytes):
                text, flags = text.decode("latin-1"), flags & ~re.UNICODE
            if isinstance(text, str) and isinstance(flags, int) and (text, flags) not in found:
                found.add((text, flags))
                yield f"{module.name}:{name}", text, flags & ~re.UNICODE


def parts_of(tree: Iterable[Any]) -> Iterator[Iterable[Any]]:
    """Whatever is repeated in a pattern, however deep."""
    for code, value in tree:
        below: tuple[Any, ...] = ()
        if code in REPEATED:
            below = (value[2],)
            yield value[2]
        elif code is codes.SUBPATTERN:
            below = (value[3],)
        elif code is codes.BRANCH:
            below = tuple(value[1])
        elif code is codes.ATOMIC_GROUP:
            below = (value,)
        for one in below:
            yield from parts_of(one)


def text_of(tree: Iterable[Any], rnd: random.Random) -> str:
    """A text that this part of a pattern matches."""
    return "".join(_text(code, value, rnd) for code, value in tree)


def _text(code: Any, value: Any, rnd: random.Random) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.IN:
        return _one_of(value, rnd)
    if code in (codes.ANY, codes.NOT_LITERAL):
        return rnd.choice([c for c in OTHERS if ord(c) != value])
    if code in REPEATED:
        times = rnd.randint(value[0], min(int(value[1]), value[0] + 2))
        return "".join(text_of(value[2], rnd) for _ in range(times))
    if code is codes.BRANCH:
        return text_of(rnd.choice(value[1]), rnd)
    if code in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
        return text_of(value[3] if code is codes.SUBPATTERN else value, rnd)
    return ""


def _one_of(members: list[Any], rnd: random.Random) -> str:
    if members[0][0] is codes.NEGATE:
        fits = re.compile("[^" + "".join(map(_written, members[1:])) + "]")
        return rnd.choice([c for c in OTHERS if fits.match(c)] or ["é"])
    code, value = rnd.choice(members)
    if code is codes.RANGE:
        return chr(rnd.randint(value[0], min(value[1], value[0] + 25)))
    return chr(value) if code is codes.LITERAL else CATEGORIES.get(value, "-")


def _written(member: Any) -> str:
    code, value = member
    if code is codes.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return re.escape(chr(value)) if code is codes.LITERAL else CLASSES.get(value, "\\W")


class TooSlow(Exception):
    """A pattern was interrupted."""


def interrupt(*_: object) -> None:
    raise TooSlow


def is_slow(pattern: re.Pattern[str], text: str) -> bool:
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        pattern.search(text)
    except TooSlow:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False


def slow_text(text: str, flags: int) -> str:
    """A text on which a pattern does not end; empty if none was found."""
    rnd, tree = random.Random(repr(text)), parser.parse(text, flags)
    parts = list(parts_of(tree))
    for _ in range(TRIES if parts else 0):
        begin = text_of(tree, rnd)[: rnd.choice((0, 3, 8))]
        unit = text_of(rnd.choice(parts), rnd) or "a"
        found = begin + unit * REPEATS + rnd.choice("\0! ")
        if is_slow(re.compile(text, flags), found):
            return found
    return ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_pattern_takes_exponential_time() -> None:
    slow = {where: slow_text(text, flags) for where, text, flags in every_pattern()}

    assert len(slow) > 300
    assert {} == {where: text for where, text in slow.items() if text}
