"""Invisible characters: which are removed from the strings of strangers.

An invisible character stays only where it changes what is seen: a selector after a character of
which Unicode has two presentations, a joiner inside emoji that are one picture, and a joiner or
non-joiner between two letters that would look otherwise without it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

from postroom.mail.message import HiddenText
from postroom.mail.text.joiners import JOINERS, has_variant, is_joined, remove_stray_joiners

_BLACK_FLAG = "\U0001f3f4"
_FLAG_TAGS = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""What may follow a black flag: the three subdivisions whose flags Unicode recommends."""

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
        self.hidden += _hidden_texts(removed, runs)


def cleaned(text: str, removed: Removed | None = None, *, one_line: bool = False) -> str:
    """The visible text; *removed* records what was taken out. Linear in its length."""
    runs = _pattern(text, one_line=one_line)
    if runs is None:
        return text
    cleaner = _Cleaner(text, one_line=one_line)
    shown = runs.sub(cleaner.replace, text)
    if cleaner.kept:
        shown = cleaner.remove_stray_joiners(shown)
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


def invisible_pattern() -> re.Pattern[str]:
    """Finds each character that does not show or steers, whether or not a text needs it."""
    return _compiled(f"[{_LINE_CHARS}{_FAR_CHARS}]")


def control_pattern() -> re.Pattern[str]:
    """Matches control characters and bidirectional controls, which a terminal obeys."""
    return _compiled(f"[{_KINDS['control']}{_KINDS['direction']}]|{_SURROGATES}")


def hidden_text(reason: str, words: str, chars: int) -> HiddenText:
    """A finding about hidden words that does not repeat them."""
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    return HiddenText(reason, digest, chars)


def merge_hidden_texts(found: Iterable[HiddenText]) -> tuple[tuple[HiddenText, ...], int]:
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
        """The replacement of one run."""
        run, start, end = match[0], match.start(), match.end()
        before, after = self._text[max(0, start - _CONTEXT) : start], self._text[end : end + 1]
        size = _kept_length(run, before, after)
        kept, rest = run[:size], run[size:]
        self.kept += size
        if rest:
            self.runs.append(rest)
        return kept + self._replacement(rest, after)

    def remove_stray_joiners(self, text: str) -> str:
        """The text without implausible joiners."""
        strays = "".join(self.runs)
        text, rest = remove_stray_joiners(
            text,
            one_line=self._one_line,
            stray_selectors=len(_compiled(_SELECTORS).findall(strays)),
            stray_joiners=sum(map(strays.count, JOINERS)),
        )
        self.runs += [rest] if rest else []
        return text

    def _replacement(self, rest: str, after: str) -> str:
        """What replaces removed characters: a space or line break if they showed as one."""
        if _compiled(_SURROGATES).search(rest):
            return "\N{REPLACEMENT CHARACTER}"
        if "\u2800" in rest:
            return " "
        if _compiled(_BREAKS).search(rest) and after != "\n":
            return " " if self._one_line else "\n"
        return ""


def _kept_length(run: str, before: str, after: str) -> int:
    """How many characters of a run show, or change what shows beside them."""
    size, base = 0, before[-1:]
    if base == _BLACK_FLAG:
        size = next((len(tags) for tags in _FLAG_TAGS if run.startswith(tags)), 0)
    if _compiled(_SELECTORS).match(run) and has_variant(base, run[0], run[1:2] or after):
        size = 1
    joiner = run[size:]
    if len(joiner) == 1 and joiner in JOINERS and is_joined(before, joiner, after):
        size += 1
    if size:
        return size
    is_braille = run == "\u2800" and bool(
        _compiled(_BRAILLE).match(base) or _compiled(_BRAILLE).match(after)
    )
    return int(is_braille or (run == "\r" and after == "\n"))


def _hidden_texts(removed: str, runs: list[str]) -> list[HiddenText]:
    """The hidden texts; a single stray character is not one."""
    found: list[HiddenText] = []
    if tags := "".join(_compiled(_TAGS).findall(removed)):
        found.append(hidden_text("tag characters", decode_tags(tags), len(tags)))
    selectors = "".join(_compiled(_SELECTORS).findall(removed))
    if len(selectors) >= _FEW_SELECTORS or any(
        _compiled(_SELECTORS).match(run[1:]) for run in runs
    ):
        found.append(
            hidden_text("variation selectors", decode_selectors(selectors), len(selectors))
        )
    if payload := next(filter(None, map(_compiled(_MIN_PAYLOAD).search, runs)), None):
        found.append(hidden_text("zero-width characters", payload[0], len(payload[0])))
    if overrides := "".join(_compiled(_OVERRIDES).findall(removed)):
        found.append(hidden_text("direction override", overrides, len(overrides)))
    return found


def decode_tags(tags: str) -> str:
    """Tag characters are ASCII moved far up."""
    codes = (ord(tag) - 0xE0000 for tag in tags[:_MAX_DECODED_CHARS])
    return "".join(chr(code) for code in codes if 0x20 <= code < 0x7F)


def decode_selectors(selectors: str) -> str:
    """Text as one selector per byte."""
    codes = (ord(selector) for selector in selectors[:_MAX_DECODED_CHARS] if selector >= "\ufe00")
    numbers = (code - 0xFE00 if code <= 0xFE0F else code - 0xE0100 + 16 for code in codes)
    return bytes(numbers).decode("utf-8", "replace")
