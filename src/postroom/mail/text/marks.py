"""Marks in a text: what `split_reply` and `cleaned` keep from an agent, in place and in words.

What is marked is never decided here. Quoted lines and signatures come from `line_kinds`, which
`split_reply` is made of; invisible characters are the difference between a text and `cleaned` of
it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from postroom.mail.quoting import line_kinds
from postroom.mail.text.invisible import cleaned, decode_selectors, decode_tags, invisible_pattern
from postroom.model.mail.message import Mark, TextPiece

HOW_HIDDEN = {
    "display": "not displayed because of its style",
    "visibility": "made invisible by its style",
    "zero size": "in a box without a size",
    "clipped": "clipped by its style",
    "off screen": "placed outside the page",
    "font size": "too small to read (font size)",
    "transparent text": "transparent letters",
    "opacity": "transparent (opacity)",
    "colour on colour": "in the colour of its background",
    "covered": "behind another box",
    "blurred": "blurred by its style",
    "letter spacing": "with letters that overlap or are far apart",
    "masked letters": "with dots instead of letters",
    "font of the mail": "in a font that came with the mail and may show nothing",
    "style not understood": "with a style that may hide it",
    "details element": "in a closed details element",
    "comment": "a comment in the HTML",
    "template element": "in a template, which is not displayed",
    "tag characters": "written in characters that no program displays",
    "variation selectors": "written in characters that only change the one before them",
    "zero-width characters": "written in characters without a width",
    "direction override": "characters reverse its reading direction",
}
"""The reasons of hidden text, in words."""

_LEFT_OUT: dict[str, str] = {
    "quoted": "Quoted mail: read_mail omits it, and includes it with quoted=true",
    "signature": "Signature: read_mail omits it",
}
_TAG, _SELECTOR = "\U000e0000", "\U000e0100"
_MAX_NAMES = 3
_MAX_SPELLED = 200
_WORD, _LINE = re.compile(r"\w+"), re.compile(r"[^\n]*\n|[^\n]+")


def how_hidden(reason: str) -> str:
    """Why a reader does not see a text, in words."""
    if reason in HOW_HIDDEN:
        return HOW_HIDDEN[reason]
    where, _, kind = reason.rpartition(" ")
    if kind == "attribute":
        return f"in the attribute {where}, which is not displayed as text"
    return f"in the element {where}, which is not displayed" if kind == "element" else reason


@dataclass(frozen=True, slots=True)
class AgentText:
    """The text that an agent gets, as words: with the quoted mail, and the new text alone."""

    text: str = ""
    new_text: str = ""

    @classmethod
    def of(cls, text: str, new_text: str) -> AgentText:
        return cls(_normalized_words(text), _normalized_words(new_text))

    def is_text(self, text: str) -> bool:
        """Whether this is all of it."""
        return _normalized_words(text) == self.text

    def has(self, text: str) -> bool:
        """Whether the agent gets these words."""
        return _normalized_words(text) in self.text

    def has_new(self, text: str) -> bool:
        """Whether it gets them without asking for quoted mail."""
        return _normalized_words(text) in self.new_text


def _normalized_words(text: str) -> str:
    return f" {' '.join(_WORD.findall(cleaned(text).casefold()))} "


def characters(count: int) -> str:
    return f"{count:,} character{'' if count == 1 else 's'}"


def left_out(kind: str, number: int, chars: int) -> Mark:
    """The mark of quoted mail or of a signature."""
    label = f"{_LEFT_OUT[kind]} · {characters(chars)}"
    return Mark(number, "quoted" if kind == "quoted" else "signature", label, chars=chars)


def removed_in(before: str, after: str) -> Iterator[tuple[str, bool]]:
    """A text in pieces, and whether each was removed; *after* is the text without them."""
    runs = re.compile(f"(?:{invisible_pattern().pattern})+")
    start = at = 0
    for match in runs.finditer(before):
        yield before[start : match.start()], False
        at += match.start() - start
        kept, gone = list[str](), list[str]()
        for char in match[0]:
            is_kept = after[at : at + 1] == char
            (kept if is_kept else gone).append(char)
            at += is_kept
        yield "".join(kept), False
        yield "".join(gone), True
        start = match.end()
        # What ended a line or was blank leaves a trace.
        if after[at : at + 1] in (" ", "\n", "\ufffd") and after[at] != before[start : start + 1]:
            yield after[at], False
            at += 1
    yield before[start:], False


def name_characters(run: str) -> str:
    """Invisible characters in words: what they spell, or their names."""
    codes = [char for char in run if char >= _TAG]
    if codes:
        is_tags = codes[0] < _SELECTOR
        said = " ".join((decode_tags if is_tags else decode_selectors)("".join(codes)).split())
        kind = "tag characters" if is_tags else "variation selectors"
        return f"{len(run)} {kind}" + (f" that spell “{said[:_MAX_SPELLED]}”" if said else "")
    names = Counter(unicodedata.name(char, f"U+{ord(char):04X}") for char in run)
    shown = [f"{name} × {n}" if n > 1 else name for name, n in names.most_common(_MAX_NAMES)]
    return ", ".join(shown) + (" and others" if len(names) > _MAX_NAMES else "")


def kinds_by_line(text: str) -> list[str]:
    """Which part of a reply each line is: "", quoted or signature; an empty line is what is above.

    A line that is partly new is new.
    """
    parts = iter(line_kinds(text))
    kinds: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        found, at = list[str](), 0
        while not found or line[at:].strip(" \t-"):
            kind, part = next(parts, ("new", line))
            at = line.find(part, at) + len(part)
            found.append(kind)
        kind = "" if "new" in found else found[0]
        kinds.append(kind if line.strip() or not kinds else kinds[-1])
    return kinds


def mark_text(written: str, first: int = 1) -> tuple[tuple[TextPiece, ...], tuple[Mark, ...]]:
    """A plain text in pieces, with marks from the number *first* on.

    *written* is the text before `cleaned`.
    """
    pieces: list[TextPiece] = []
    marks: list[Mark] = []
    current: Mark | None = None
    for kind, text in _runs(written):
        number = first + len(marks)
        if kind == "invisible":
            mark = Mark(number, "invisible", name_characters(text), chars=len(text))
            pieces.append(TextPiece("", mark, is_first=True))
            marks.append(mark)
            continue
        is_first = kind != (current.kind if current else "")
        if is_first:
            current = left_out(kind, number, len(text.strip())) if kind else None
            marks += [current] if current else []
        pieces.append(TextPiece(text, current, is_first=is_first and current is not None))
    return tuple(pieces), tuple(marks)


def _runs(written: str) -> Iterator[tuple[str, str]]:
    """Stretches of one kind: "", quoted, signature or invisible."""
    for kind, group in groupby(_lines(written), key=itemgetter(0)):
        yield kind, "".join(text for _, text in group)


def _lines(written: str) -> Iterator[tuple[str, str]]:
    shown = cleaned(written)
    pieces = removed_in(written, shown) if shown != written else [(written, False)]
    kinds, line = kinds_by_line(shown), 0
    for text, is_removed in pieces:
        if is_removed and text:
            yield "invisible", text
            continue
        for part in _LINE.findall(text):
            yield kinds[line], part
            line += part[-1] == "\n"
