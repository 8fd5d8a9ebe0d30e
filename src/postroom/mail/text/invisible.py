"""Invisible characters: which are removed from the strings of strangers.

An invisible character stays only where it changes what is seen: a selector after a character of
which Unicode has two presentations, a joiner inside emoji that are one picture, and a joiner or
non-joiner between two letters that would look otherwise without it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

from postroom.mail.data import load
from postroom.mail.message import HiddenText

_MODIFIERS = "\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_ARABIC_MARKS = "".join(map(chr, (*range(0x64B, 0x660), 0x670)))
_VIRAMAS = frozenset("\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca")
_FIRST_CONSONANT, _LAST_CONSONANT = 0x15, 0x3A
_BEFORE_VIRAMA = "\u09b0\u09f0\u0cb0"
_CHILLU = re.compile("[\u0d15\u0d23\u0d28\u0d2e\u0d2f\u0d30\u0d32-\u0d34]\u0d4d")
_KEYCAP_BASES = frozenset("0123456789#*")
_KEYCAP = "\u20e3"
_BLACK_FLAG = "\U0001f3f4"
_FLAG_TAGS = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""What may follow a black flag: the three subdivisions whose flags Unicode recommends."""


@cache
def _class(name: str) -> re.Pattern[str]:
    """One character of a list in the data; compiled by the first text that needs it."""
    return re.compile(f"[{load('joined_characters')[name]}]")


@cache
def _pictures() -> re.Pattern[str]:
    data = load("joined_characters")
    people = data["people"]
    pairs = (f"[{people.get(a, a)}][{people.get(b, b)}]" for a, b in data["pictures"])
    return re.compile("|".join(pairs))


def _is(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None


def _has_variant(base: str, selector: str, after: str) -> bool:
    """Whether a variation selector changes what is seen between these two characters."""
    if selector not in "\ufe0e\ufe0f" or not base:
        return False
    if base in _KEYCAP_BASES:
        return selector == "\ufe0f" and after == _KEYCAP
    return _is(_class("variants"), base)


def _is_joined(before: str, joiner: str, after: str) -> bool:
    """Whether a joiner changes what is seen between some characters and the one after."""
    if not before:
        return False
    if joiner == "\u180e":
        return "\u1820" <= before[-1] <= "\u18aa" and after in ("\u1820", "\u1821")
    if "\u0900" <= before[-1] <= "\u0dff":
        return _is_indic(before, joiner, after)
    if joiner == "\u200c":
        letters = before.rstrip(_ARABIC_MARKS)
        return _is(_class("arabic"), after) and bool(letters) and _is(_class("dual"), letters[-1])
    return _is(_pictures(), before.rstrip(_MODIFIERS)[-1:] + after)


def _is_indic(before: str, joiner: str, after: str) -> bool:
    """After the sign that takes a vowel away, or before it, between letters of one script."""
    if joiner == "\u200d" and _is(_CHILLU, before[-2:]):
        return True
    if not after or ord(before[-1]) >> 7 != ord(after) >> 7:
        return False
    if before[-1] in _VIRAMAS:
        return _is_consonant(after)
    return joiner == "\u200d" and after in _VIRAMAS and before[-1] in _BEFORE_VIRAMA


def _is_consonant(char: str) -> bool:
    is_regular = _FIRST_CONSONANT <= ord(char) & 0x7F < _LAST_CONSONANT and char < "\u0d80"
    return is_regular or _is(_class("other_consonants"), char)


_JOINERS = "\u200c\u200d\u180e"
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_FEW_JOINERS = 2
_FEW_CHARS = 6
_MAX_IN_A_WORD = 3
_MAX_IN_A_LINE = 12
_MAX_MIXED = 16
_STRAY_START = re.compile(f"(?:^|[{_JOINERS}])[\u0620-\u06ff](?=\u200c)")
"""One letter alone before a non-joiner: no prefix and no word of Arabic script."""

_Unit = Callable[[re.Match[str]], tuple[str, str]]


def believable(text: str, *, one_line: bool, stray_selectors: int = 0) -> tuple[str, str]:
    """The text without joiners that carry data, and what was removed. Linear in its length.

    If many selectors have no effect, all selectors are treated as data.
    """
    removed: list[str] = []
    if stray_selectors > _FEW_CHARS:
        removed += re.findall(f"[{_EMOJI_SELECTORS}]", text)
        text = text.translate(dict.fromkeys(map(ord, _EMOJI_SELECTORS)))
    elif sum(map(text.count, _EMOJI_SELECTORS)) > _FEW_JOINERS:
        text = _without(_variants(), text, _variant, _mixed(_variants(), text, _variant), removed)
    if sum(map(text.count, _JOINERS)) > _FEW_JOINERS:
        text = _without(_pairs(), text, _pair, _mixed(_pairs(), text, _pair), removed)
        text = _without_joiners(text, removed, one_line=one_line)
    return text, "".join(removed)


@cache
def _variants() -> re.Pattern[str]:
    variants = load("joined_characters")["variants"]
    return re.compile(
        f"(?P<unit>[{variants}])(?P<own>[{_EMOJI_SELECTORS}]?)"
        f"|(?P<key>[0-9#*])(?P<of_key>\ufe0f?)(?={_KEYCAP})"
    )


def _variant(match: re.Match[str]) -> tuple[str, str]:
    return match["unit"] or match["key"], match["own"] or match["of_key"] or ""


@cache
def _pairs() -> re.Pattern[str]:
    """Two characters beyond letters, with what may stand between them."""
    return re.compile(
        "(?P<before>[\u2190-\u2bff\U0001f300-\U0001faff])"
        "(?P<between>[\ufe0f\U0001f3fb-\U0001f3ff]{0,2})(?P<joiner>\u200d?)"
        "(?=(?P<after>[\u2190-\u2bff\U0001f300-\U0001faff]))"
    )


def _pair(match: re.Match[str]) -> tuple[str, str]:
    return match["before"] + match["after"], match["joiner"]


@cache
def _words() -> re.Pattern[str]:
    word = load("joined_characters")["word"]
    return re.compile(f"[{word}][{word}{_JOINERS}]*+")


def _word(match: re.Match[str]) -> tuple[str, str]:
    """A word without its joiners, and the word itself if it has any."""
    bare = match[0].translate(_NOTHING)
    return bare, match[0] if len(bare) < len(match[0]) else ""


_NOTHING = dict.fromkeys(map(ord, _JOINERS + _EMOJI_SELECTORS))


def _mixed(units: re.Pattern[str], text: str, unit: _Unit) -> set[str]:
    """Units that are written in several ways, if there are too many of them."""
    forms: dict[str, set[str]] = {}
    times: Counter[str] = Counter()
    for match in units.finditer(text):
        name, form = unit(match)
        forms.setdefault(name, set()).add(form)
        times[name] += 1
    mixed = {name for name, found in forms.items() if len(found) > 1}
    return mixed if sum(times[name] for name in mixed) > _MAX_MIXED else set()


def _without(
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
    words = [match[0] for match in _words().finditer(text)]
    joined = [(word, sum(map(word.count, _JOINERS))) for word in words]
    most = max(_FEW_CHARS, len(words))
    is_too_many = sum(count for _, count in joined) > (
        min(most, _MAX_IN_A_LINE) if one_line else most
    )
    bare = {
        word.translate(_NOTHING)
        for word, count in joined
        if count and (is_too_many or count > _MAX_IN_A_WORD or _STRAY_START.search(word))
    }
    bare |= _mixed(_words(), text, _word)
    return _without(_words(), text, _word, bare, removed)


_NEAR_KINDS = {
    "control": "\x00-\x08\x0b-\x1f\x7f-\x9f",
    "variation": "\u180b-\u180d\u180f\ufe00-\ufe0f",
    "direction": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "zero_width": "\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2065\ufeff",
    "filler": "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0",
    "format": "\u206a-\u206f\ufff0-\ufffb\ud800-\udfff",
}
_FAR_KINDS = {
    "tag": "\U000e0000-\U000e007f",
    "variation": "\U000e0100-\U000e01ef",
    "format": "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0080-\U000e00ff\U000e01f0-\U000e0fff",
}
# Apart, because a search for characters of the first plane alone is ten times as fast.
_KINDS = {
    kind: _NEAR_KINDS.get(kind, "") + _FAR_KINDS.get(kind, "") for kind in (*_NEAR_KINDS, "tag")
}
_KINDS["format"] += "\u2028\u2029"
"""What is counted in `security.removed_characters`, and which characters it is."""

_SEPARATORS = "\u2028\u2029"
_NEAR_CHARS, _FAR_CHARS = "".join(_NEAR_KINDS.values()), "".join(_FAR_KINDS.values())
_LINE_CHARS = _NEAR_CHARS + _SEPARATORS
_CONTROLS = bytes((*range(9), *range(11, 32), 127))
_FIRST_BYTES = b"\xc2\xcd\xd8\xe1\xe2\xe3\xed\xef\xf0\xf3"
"""With which the characters above begin in UTF-8; ASCII and many letters do not."""

_HARMLESS_BYTES = bytes(set(range(256)).difference(_FIRST_BYTES, _CONTROLS))
_PLAIN_BYTES = bytes(set(range(128)).difference(_CONTROLS))
_KIND = "|".join(f"(?P<{kind}>[{chars}])" for kind, chars in _KINDS.items())
_BREAKS = "[\r\x0b\x0c\x85\u2028\u2029]"
_SURROGATES = "[\ud800-\udfff]"
_SELECTORS = f"[{_KINDS['variation']}]"
_TAGS = f"[{_KINDS['tag']}]"
_MIN_PAYLOAD = "[\u200b-\u200d\u2060-\u2064\ufeff]{16,}"
_OVERRIDES = "[\u202d\u202e]"
_BRAILLE = "[\u2801-\u28ff]"
_FEW_SELECTORS = 8
_MAX_DECODED_CHARS = 10_000
_MAX_LISTED = 20
_CONTEXT = 4
_SHORT = 100


@dataclass(slots=True)
class Removed:
    """The invisible characters removed from one mail: counts by kind, and hidden texts."""

    counts: dict[str, int] = field(default_factory=dict)
    hidden: list[HiddenText] = field(default_factory=list)

    def line(self, text: str) -> str:
        """A line of text, cleaned. Most need no cleaning and are returned as they are."""
        if text.isascii() and text.isprintable():
            return text
        return cleaned(text, self, one_line=True)

    def note(self, runs: list[str]) -> None:
        """Count what was removed from one text."""
        removed = "".join(runs)
        found = Counter(match.lastgroup or "" for match in _compiled(_KIND).finditer(removed))
        for kind, count in found.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        self.hidden += _messages(removed, runs)


def cleaned(text: str, removed: Removed | None = None, *, one_line: bool = False) -> str:
    """The text as it shows; *removed* is told what was taken out. Linear in its length."""
    runs = _pattern(text, one_line=one_line)
    if runs is None:
        return text
    cleaner = _Cleaner(text, one_line=one_line)
    shown = runs.sub(cleaner.replace, text)
    if cleaner.kept:
        shown = cleaner.believable(shown)
    if removed is not None and cleaner.runs:
        removed.note(cleaner.runs)
    return shown


def may_hide(written: bytes) -> bool:
    """Whether a text in UTF-8 has any character that `cleaned` would look at."""
    return _finder(written, _LINE_CHARS) is not None


def _pattern(text: str, *, one_line: bool) -> re.Pattern[str] | None:
    """The first match of a removable character; None in nearly every text."""
    if len(text) < _SHORT and text.isascii() and text.isprintable():
        return None
    data = text.encode("utf-8", "surrogatepass")
    return _finder(data, _LINE_CHARS if one_line else _NEAR_CHARS)


def _finder(data: bytes, chars: str) -> re.Pattern[str] | None:
    """The same of bytes: to drop what is harmless first is far cheaper than to look at it."""
    first_bytes = data.translate(None, _HARMLESS_BYTES)
    if not first_bytes:
        return None
    others = data.translate(None, _PLAIN_BYTES).decode("utf-8", "surrogatepass")
    is_far = b"\xf3" in first_bytes or b"\xf0" in first_bytes
    if is_far and _compiled(f"[{_FAR_CHARS}]").search(others):
        return _compiled(f"[{chars}{_FAR_CHARS}]+")
    near = _compiled(f"[{chars}]+")
    return near if near.search(others) else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled on first use, to keep the start fast."""
    return re.compile(pattern)


def unseen() -> re.Pattern[str]:
    """Finds each character that does not show or steers, whether or not a text needs it."""
    return _compiled(f"[{_LINE_CHARS}{_FAR_CHARS}]")


def steering() -> re.Pattern[str]:
    """Matches control characters and bidirectional controls, which a terminal obeys."""
    return _compiled(f"[{_KINDS['control']}{_KINDS['direction']}]|{_SURROGATES}")


def hidden_text(reason: str, words: str, chars: int) -> HiddenText:
    """A finding about hidden words that does not repeat them."""
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    return HiddenText(reason, digest, chars)


def gathered(found: Iterable[HiddenText]) -> tuple[tuple[HiddenText, ...], int]:
    """One finding for the same words with the same reason, the first few; and how many pieces
    there were if these are not all.
    """
    by_words: dict[tuple[str, str], HiddenText] = {}
    for one in found:
        known = by_words.get((one.reason, one.sha256))
        more = replace(known, count=known.count + one.count) if known else one
        by_words[one.reason, one.sha256] = more
    listed = tuple(by_words.values())
    total = sum(one.count for one in listed) if len(listed) > _MAX_LISTED else 0
    return listed[:_MAX_LISTED], total


class _Cleaner:
    """Decides, for each run of characters that may hide, how much of its beginning stays."""

    def __init__(self, text: str, *, one_line: bool) -> None:
        self._text = text
        self._one_line = one_line
        self.runs: list[str] = []
        self.kept = 0

    def replace(self, match: re.Match[str]) -> str:
        """What stands in place of one run."""
        run, start, end = match[0], match.start(), match.end()
        before, after = self._text[max(0, start - _CONTEXT) : start], self._text[end : end + 1]
        size = _unchanged(run, before, after)
        kept, rest = run[:size], run[size:]
        self.kept += size
        if rest:
            self.runs.append(rest)
        return kept + self._instead(rest, after)

    def believable(self, text: str) -> str:
        """The text without implausible joiners."""
        strays = len(_compiled(_SELECTORS).findall("".join(self.runs)))
        text, rest = believable(text, one_line=self._one_line, stray_selectors=strays)
        self.runs += [rest] if rest else []
        return text

    def _instead(self, rest: str, after: str) -> str:
        """The replacement of removed characters.

        A space or line break if they displayed as one, else nothing.
        """
        if _compiled(_SURROGATES).search(rest):
            return "\N{REPLACEMENT CHARACTER}"
        if "\u2800" in rest:
            return " "
        if _compiled(_BREAKS).search(rest) and after != "\n":
            return " " if self._one_line else "\n"
        return ""


def _unchanged(run: str, before: str, after: str) -> int:
    """How many characters of a run show, or change what shows beside them."""
    size, base = 0, before[-1:]
    if base == _BLACK_FLAG:
        size = next((len(tags) for tags in _FLAG_TAGS if run.startswith(tags)), 0)
    if _compiled(_SELECTORS).match(run) and _has_variant(base, run[0], run[1:2] or after):
        size = 1
    joiner = run[size:]
    if joiner in ("\u200c", "\u200d", "\u180e") and _is_joined(before, joiner, after):
        size += 1
    if size:
        return size
    is_braille = run == "\u2800" and bool(
        _compiled(_BRAILLE).match(base) or _compiled(_BRAILLE).match(after)
    )
    return int(is_braille or (run == "\r" and after == "\n"))


def _messages(removed: str, runs: list[str]) -> list[HiddenText]:
    """The hidden texts; a single stray character is not one."""
    found: list[HiddenText] = []
    if tags := "".join(_compiled(_TAGS).findall(removed)):
        found.append(hidden_text("tag characters", spelled(tags), len(tags)))
    selectors = "".join(_compiled(_SELECTORS).findall(removed))
    if len(selectors) >= _FEW_SELECTORS or any(
        _compiled(_SELECTORS).match(run[1:]) for run in runs
    ):
        found.append(hidden_text("variation selectors", smuggled(selectors), len(selectors)))
    if telling := next(filter(None, map(_compiled(_MIN_PAYLOAD).search, runs)), None):
        found.append(hidden_text("zero-width characters", telling[0], len(telling[0])))
    if overrides := "".join(_compiled(_OVERRIDES).findall(removed)):
        found.append(hidden_text("direction override", overrides, len(overrides)))
    return found


def spelled(tags: str) -> str:
    """Tag characters are ASCII moved far up."""
    codes = (ord(tag) - 0xE0000 for tag in tags[:_MAX_DECODED_CHARS])
    return "".join(chr(code) for code in codes if 0x20 <= code < 0x7F)


def smuggled(selectors: str) -> str:
    """Text as one selector per byte."""
    codes = (ord(selector) for selector in selectors[:_MAX_DECODED_CHARS] if selector >= "\ufe00")
    numbers = (code - 0xFE00 if code <= 0xFE0F else code - 0xE0100 + 16 for code in codes)
    return bytes(numbers).decode("utf-8", "replace")
