"""Joiners and variation selectors: where they change what is seen, and where they carry data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache

from postroom.mail.data import load

_MODIFIERS = "\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_ARABIC_MARKS = "".join(map(chr, (*range(0x64B, 0x660), 0x670)))
_VIRAMAS = frozenset("\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca")
_FIRST_CONSONANT, _LAST_CONSONANT = 0x15, 0x3A
_BEFORE_VIRAMA = "\u09b0\u09f0\u0cb0"
_CHILLU = re.compile("[\u0d15\u0d23\u0d28\u0d2e\u0d2f\u0d30\u0d32-\u0d34]\u0d4d")
_KEYCAP_BASES = frozenset("0123456789#*")
_KEYCAP = "\u20e3"


@cache
def _class_pattern(name: str) -> re.Pattern[str]:
    """One character of a list in the data; compiled by the first text that needs it."""
    return re.compile(f"[{load('joined_characters')[name]}]")


@cache
def _picture_pattern() -> re.Pattern[str]:
    data = load("joined_characters")
    people = data["people"]
    pairs = (f"[{people.get(a, a)}][{people.get(b, b)}]" for a, b in data["pictures"])
    return re.compile("|".join(pairs))


def _matches(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None


def has_variant(base: str, selector: str, after: str) -> bool:
    """Whether a variation selector changes what is seen between these two characters."""
    if selector not in "\ufe0e\ufe0f" or not base:
        return False
    if base in _KEYCAP_BASES:
        return selector == "\ufe0f" and after == _KEYCAP
    return _matches(_class_pattern("variants"), base)


def is_joined(before: str, joiner: str, after: str) -> bool:
    """Whether a joiner changes what is seen between some characters and the one after."""
    if not before:
        return False
    if joiner == "\u180e":
        return "\u1820" <= before[-1] <= "\u18aa" and after in ("\u1820", "\u1821")
    if "\u0900" <= before[-1] <= "\u0dff":
        return _is_indic(before, joiner, after)
    if joiner == "\u200c":
        letters = before.rstrip(_ARABIC_MARKS)
        return (
            _matches(_class_pattern("arabic"), after)
            and bool(letters)
            and _matches(_class_pattern("dual"), letters[-1])
        )
    return _matches(_picture_pattern(), before.rstrip(_MODIFIERS)[-1:] + after)


def _is_indic(before: str, joiner: str, after: str) -> bool:
    """After the sign that takes a vowel away, or before it, between letters of one script."""
    if joiner == "\u200d" and _matches(_CHILLU, before[-2:]):
        return True
    if not after or ord(before[-1]) >> 7 != ord(after) >> 7:
        return False
    if before[-1] in _VIRAMAS:
        return _is_consonant(after)
    return joiner == "\u200d" and after in _VIRAMAS and before[-1] in _BEFORE_VIRAMA


def _is_consonant(char: str) -> bool:
    is_regular = _FIRST_CONSONANT <= ord(char) & 0x7F < _LAST_CONSONANT and char < "\u0d80"
    return is_regular or _matches(_class_pattern("other_consonants"), char)


JOINERS = "\u200c\u200d\u180e"
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_FEW_JOINERS = 2
_FEW_CHARS = 6
_MAX_IN_A_WORD = 3
_MAX_IN_A_LINE = 12
_MAX_MIXED = 16
_STRAY_START = re.compile(f"(?:^|[{JOINERS}])[\u0620-\u06ff](?=\u200c)")
"""One letter alone before a non-joiner: no prefix and no word of Arabic script."""

_Unit = Callable[[re.Match[str]], tuple[str, str]]


def remove_stray_joiners(
    text: str, *, one_line: bool, stray_selectors: int = 0, stray_joiners: int = 0
) -> tuple[str, str]:
    """The text without joiners that carry data, and what was removed. Linear in its length.

    If many selectors have no effect, all selectors are treated as data. If many joiners have none,
    the others are checked even if they are few.
    """
    removed: list[str] = []
    few_joiners = _FEW_JOINERS if stray_joiners <= _FEW_CHARS else 0
    if stray_selectors > _FEW_CHARS:
        removed += re.findall(f"[{_EMOJI_SELECTORS}]", text)
        text = text.translate(dict.fromkeys(map(ord, _EMOJI_SELECTORS)))
    elif sum(map(text.count, _EMOJI_SELECTORS)) > _FEW_JOINERS:
        text = _remove_from_units(
            _variant_pattern(),
            text,
            _variant,
            _inconsistent_units(_variant_pattern(), text, _variant),
            removed,
        )
    if sum(map(text.count, JOINERS)) > few_joiners:
        text = _remove_from_units(
            _pair_pattern(), text, _pair, _inconsistent_units(_pair_pattern(), text, _pair), removed
        )
        text = _without_joiners(text, removed, one_line=one_line)
    return text, "".join(removed)


@cache
def _variant_pattern() -> re.Pattern[str]:
    variants = load("joined_characters")["variants"]
    return re.compile(
        f"(?P<unit>[{variants}])(?P<own>[{_EMOJI_SELECTORS}]?)"
        f"|(?P<key>[0-9#*])(?P<of_key>\ufe0f?)(?={_KEYCAP})"
    )


def _variant(match: re.Match[str]) -> tuple[str, str]:
    return match["unit"] or match["key"], match["own"] or match["of_key"] or ""


@cache
def _pair_pattern() -> re.Pattern[str]:
    """Two characters that are not letters, with what may be between them."""
    return re.compile(
        "(?P<before>[\u2190-\u2bff\U0001f300-\U0001faff])"
        "(?P<between>[\ufe0f\U0001f3fb-\U0001f3ff]{0,2})(?P<joiner>\u200d?)"
        "(?=(?P<after>[\u2190-\u2bff\U0001f300-\U0001faff]))"
    )


def _pair(match: re.Match[str]) -> tuple[str, str]:
    return match["before"] + match["after"], match["joiner"]


@cache
def _word_pattern() -> re.Pattern[str]:
    word = load("joined_characters")["word"]
    return re.compile(f"[{word}][{word}{JOINERS}]*+")


def _word(match: re.Match[str]) -> tuple[str, str]:
    """A word without its joiners, and the word itself if it has any."""
    bare = match[0].translate(_NOTHING)
    return bare, match[0] if len(bare) < len(match[0]) else ""


_NOTHING = dict.fromkeys(map(ord, JOINERS + _EMOJI_SELECTORS))


def _inconsistent_units(units: re.Pattern[str], text: str, unit: _Unit) -> set[str]:
    """Units that are written in several ways, if there are too many of them."""
    forms: dict[str, set[str]] = {}
    times: Counter[str] = Counter()
    for match in units.finditer(text):
        name, form = unit(match)
        forms.setdefault(name, set()).add(form)
        times[name] += 1
    mixed = {name for name, found in forms.items() if len(found) > 1}
    return mixed if sum(times[name] for name in mixed) > _MAX_MIXED else set()


def _remove_from_units(
    units: re.Pattern[str], text: str, unit: _Unit, bare: set[str], removed: list[str]
) -> str:
    """The text with some units written without joiners and selectors."""

    def write(match: re.Match[str]) -> str:
        name, form = unit(match)
        if not form or name not in bare:
            return match[0]
        removed.extend(char for char in form if ord(char) in _NOTHING)
        return match[0][: len(match[0]) - len(form)] + form.translate(_NOTHING)

    return units.sub(write, text) if bare else text


def _without_joiners(text: str, removed: list[str], *, one_line: bool) -> str:
    words = [match[0] for match in _word_pattern().finditer(text)]
    joined = [(word, sum(map(word.count, JOINERS))) for word in words]
    most = max(_FEW_CHARS, len(words))
    is_too_many = sum(count for _, count in joined) > (
        min(most, _MAX_IN_A_LINE) if one_line else most
    )
    bare = {
        word.translate(_NOTHING)
        for word, count in joined
        if count and (is_too_many or count > _MAX_IN_A_WORD or _STRAY_START.search(word))
    }
    bare |= _inconsistent_units(_word_pattern(), text, _word)
    return _remove_from_units(_word_pattern(), text, _word, bare, removed)
