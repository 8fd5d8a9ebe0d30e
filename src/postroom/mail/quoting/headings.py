"""Lines above a quoted mail other than an attribution: separators, headers, notices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from postroom.mail.data import load
from postroom.mail.quoting.attributions import LONGEST, has_verb
from postroom.mail.text.prefilter import AROUND_HEADER, DECORATION, may_have_date

_WORDS = load("quotations")
HEADERS = {name: header for header, names in _WORDS["headers"].items() for name in names}
_ORIGINALS = re.compile(f"(?:{'|'.join(_WORDS['originals'])})", re.IGNORECASE)
_FORWARDS = re.compile(f"(?:{'|'.join(_WORDS['forwards'])})", re.IGNORECASE)
_RULE = re.compile(r"[-_=*~#‐–—―─]{3,200}$")
_CLOCK = re.compile(r"\d[:h]\d\d|\d\.\d\d(?!\.?\d)")
_LONG_RULE = 4
_MAX_HEADING = 200
_NEXT_HEADER = re.compile(
    r"\s(?:Date|Sent|To|Subject|Datum|Gesendet|An|Betreff|Envoyé|Objet|Fecha|Asunto|Data|Oggetto)"
    r"\s?:"
)


def header_word(line: str) -> str:
    """`from`, `date`, `to` or `subject` if the line looks like that header of a quoted mail."""
    colon = line.find(":", 0, 40)
    if colon < 0:
        colon = line.find("：", 0, 40)
    return HEADERS.get(line[:colon].strip(AROUND_HEADER).lower(), "") if colon > 0 else ""


def is_header_block(lines: list[str], index: int) -> bool:
    """`From: … Sent: … To: …`, as some programs put above the mail they answer."""
    if index and lines[index - 1].startswith((">From ", "From ")):
        return False  # the header of a patch, under its mbox line
    first = lines[index]
    if _NEXT_HEADER.search(first[:LONGEST]):
        return "@" in first
    block = [first, *(line for line in lines[index + 1 : index + 8] if header_word(line))]
    kinds = {header_word(line) for line in block}
    if not any("@" in line for line in block):
        # a trip has From, To and Date as well, opening hours have From and To
        is_timed = any(_CLOCK.search(line.replace("\u200e", "")) for line in block)
        above = line_above(lines, index)
        is_announced = above >= 0 and lines[above].rstrip().endswith((":", "："))
        if "date" not in kinds or ("subject" not in kinds and (is_announced or not is_timed)):
            return False
    return len(kinds) >= 3 or kinds == {"from", "date"} or kinds == {"date", "to"}


def line_above(lines: list[str], index: int) -> int:
    """The last line with text of the few above one, -1 at the start."""
    above = index - 1
    while above >= 0 and index - above < 4 and not lines[above].strip():
        above -= 1
    return above


def is_rule(line: str) -> bool:
    """A line that is only a rule."""
    stripped = line.strip()
    return len(stripped) >= _LONG_RULE and _RULE.match(stripped[:LONGEST]) is not None


def is_short_rule(line: str) -> bool:
    """A rule of three signs or more."""
    return _RULE.match(line.strip()[:LONGEST]) is not None


def is_separator(line: str) -> bool:
    """`-----Original Message-----` in any dress: from here on everything is old."""
    if len(line) > LONGEST:
        return False
    inner = line.strip(DECORATION)
    if not inner:
        return False
    before, after = _around(line, inner)
    if found := _ORIGINALS.match(inner):
        is_whole = not inner[found.end() :].strip(" :.")
        return len(before) >= 2 or bool(before and after and is_whole)
    if before == after == ">>>":
        return may_have_date(inner)
    return is_ruled(line) and has_verb(inner)


def is_ruled(line: str) -> bool:
    """A short text between two rules."""
    inner = line[:LONGEST].strip(DECORATION)
    before, after = _around(line, inner) if inner else ("", "")
    signs = (before + after).strip("-_=~*‐–—―─")
    return min(len(before), len(after)) >= 2 and not signs and len(inner) <= _MAX_HEADING


def _around(line: str, inner: str) -> tuple[str, str]:
    """What stands before and behind the text of a line."""
    return line[: line.index(inner[0])].strip(), line[line.rindex(inner[-1]) + 1 :].strip()


def is_forward(line: str) -> bool:
    """The line above a forwarded mail."""
    return _FORWARDS.match(line[:LONGEST].strip(DECORATION)) is not None


@cache
def _earlier_pattern() -> re.Pattern[str]:
    languages = _WORDS["languages"].values()
    headings = [heading for language in languages for heading in language.get("earlier", ())]
    return re.compile(f"(?:{'|'.join(headings)})", re.IGNORECASE)


@cache
def _notice_pattern() -> re.Pattern[str]:
    return re.compile("|".join(_WORDS["notices"]), re.IGNORECASE)


def opens_notice(below: str) -> bool:
    """Whether a line below a short rule begins the rest of a forum or ticket notice."""
    below = below.strip()[:LONGEST]
    inner = below.strip(DECORATION + ":")
    if inner != below and _earlier_pattern().match(inner) and len(inner) <= 80:
        return True
    return len(below) <= _MAX_HEADING and _notice_pattern().search(below) is not None


_WORD = re.compile(r"[\w'’-]+")
_MAX_MARKS = 200
_Mark = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@cache
def _mark_words(*, is_ascii: bool) -> tuple[_Mark, ...]:
    """The words of each language; only those that an ASCII text can have, if it is one."""
    languages = [language for language in _WORDS["languages"].values() if "above" in language]
    kinds = ("above", "line", "reply")
    marks = [
        tuple(tuple(word for word in one[kind] if word.isascii() or not is_ascii) for kind in kinds)
        for one in languages
    ]
    return tuple((above, line, reply) for above, line, reply in marks if above and line and reply)


def reply_marks(text: str) -> frozenset[str]:
    """The lines that say `please reply above this line`, in any language."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter whose lower case is two: places would differ
        lowered = text
    found: set[str] = set()
    for mark in _mark_words(is_ascii=lowered.isascii()):
        if all(any(word in lowered for word in kind) for kind in mark):
            found.update(line for word in mark[0] for line in _lines_with(word, text, lowered)
                         if _is_reply_mark(line, mark))  # fmt: skip
    return frozenset(found)


def _lines_with(word: str, text: str, lowered: str) -> Iterator[str]:
    """The lines of a text that contain a word, up to a limit."""
    at = lowered.find(word)
    for _ in range(_MAX_MARKS):
        if at < 0:
            return
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = lowered.find(word, end)


def _is_reply_mark(line: str, mark: _Mark) -> bool:
    if not 5 <= len(line) <= 160:
        return False
    lowered = line.lower()
    words = _WORD.findall(lowered)
    if len(words) > 16 or lowered.rstrip().endswith("?"):
        return False
    return all(any(_contains_word(word, lowered, words) for word in kind) for kind in mark)


def _contains_word(word: str, lowered: str, words: list[str]) -> bool:
    return word in words if word[0] < "\u3000" else word in lowered
