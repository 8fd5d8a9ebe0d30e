"""The syntax of CSS: declarations and rules, with the error recovery of browsers (CSS Syntax 3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

_STRING = r'"(?:\\.|[^"\\\n])*"?|' r"'(?:\\.|[^'\\\n])*'?"
_COMMENT = re.compile(rf"({_STRING})|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{1,6})\s?|([^\n]))")
_NAME = re.compile(r"--[^\s:]*|-?[a-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*", re.ASCII)
_IMPORTANT = re.compile(r"!\s*important\s*$", re.IGNORECASE)
_URL = r"url\(\s*(?![\"'\s])[^)]{0,100000}\)?"
_STRUCTURE = re.compile(rf"{_STRING}|{_URL}|\\.|[{{}};()\[\]]", re.DOTALL | re.IGNORECASE)
_CDO = re.compile(r"<!--|-->")
_SPECIAL = re.compile(r"[(\[{\"'\\]")
_OPENS, _CLOSES = {"(": ")", "[": "]"}, frozenset(")]")
_MAX_DEPTH = 32
_MAX_DECLARATIONS = 200


class Declaration(NamedTuple):
    """`name: value`; the value has no comments, and is in lower case unless names are in it."""

    name: str
    value: str
    important: bool = False


Block = tuple[Declaration, ...]


@dataclass(slots=True)
class RawRule:
    """What stands before the braces, and what stands between them."""

    prelude: str
    declarations: list[Declaration] = field(default_factory=list)
    rules: list[RawRule] = field(default_factory=list)


def unescape(text: str) -> str:
    """An identifier with its escapes replaced by what they stand for."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    if match[2]:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code < 0x11_0000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def without_comments(css: str) -> str:
    return _COMMENT.sub(lambda match: match[1] or " ", css) if "/*" in css else css


@lru_cache(maxsize=1024)
def declarations_of(style: str) -> Block:
    """The declarations of a style attribute."""
    style = without_comments(style)
    found = (declaration(piece) for piece in split(style, ";")[: 2 * _MAX_DECLARATIONS])
    return tuple(one for one in found if one)[-_MAX_DECLARATIONS:]


def declaration(text: str) -> Declaration | None:
    """One declaration, None if a browser ignores it for its syntax."""
    name, colon, value = text.partition(":")
    if not colon:
        return None
    name = unescape(name.strip())
    name = name if name.startswith("--") else name.lower()
    if not _NAME.fullmatch(name):
        return None
    value, important = value.strip(), False
    if "!" in value and not name.startswith("--"):
        value, marks = _IMPORTANT.subn("", value)
        value, important = value.strip(), bool(marks)
        if "!" in value:
            return None
    elif "!" in value:
        value, marks = _IMPORTANT.subn("", value)
        important = bool(marks)
    if "\\" in value:
        value = unescape(value)
    if not name.startswith("--") and "--" not in value:
        value = value.lower()
    return Declaration(name, value, important)


def split(text: str, separator: str) -> list[str]:
    """The pieces between separators that are in no brackets and no string."""
    if not _SPECIAL.search(text):
        return text.split(separator)
    pieces, start, closing = list[str](), 0, list[str]()
    pattern = re.compile(rf"{_STRING}|{_URL}|\\.|[()\[\]{{}}{re.escape(separator)}]", re.DOTALL)
    for match in pattern.finditer(text):
        char = match[0]
        if char in "([{":
            closing.append(")" if char == "(" else "]" if char == "[" else "}")
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == separator and not closing:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return pieces


def words(text: str) -> list[str]:
    """The pieces between white space that is in no brackets and no string."""
    if not _SPECIAL.search(text):
        return text.split()
    return [piece for piece in split(" ".join(text.split()), " ") if piece]


def function(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a function, None if the text is none."""
    if not text.endswith(")"):
        return None
    name, _, inner = text[:-1].partition("(")
    return (name, inner.strip()) if name else None


def functions(text: str) -> list[tuple[str, str]]:
    """The functions that a value lists."""
    return [found for word in words(text.replace(")", ") ")) if (found := function(word))]


def parse_rules(css: str) -> RawRule:
    """The rules of a style sheet, as the content of one rule without a prelude.

    Strings, brackets and nesting are respected, so that nothing in them ends a rule.
    """
    css = _CDO.sub(" ", without_comments(css))
    top = RawRule("")
    open_rules, closing, start, too_deep = [top], list[str](), 0, 0
    for match in _STRUCTURE.finditer(css):
        char = match[0]
        if len(char) > 1:
            continue
        if char in _OPENS:
            closing.append(_OPENS[char])
        elif char in _CLOSES:
            if closing and closing[-1] == char:
                closing.pop()
        elif closing:
            continue
        elif char == "{":
            if too_deep or len(open_rules) >= _MAX_DEPTH:
                too_deep += 1
                continue
            rule = RawRule(css[start : match.start()].strip())
            open_rules[-1].rules.append(rule)
            open_rules.append(rule)
            start = match.end()
        elif too_deep:
            too_deep -= char == "}"
            start = match.end()
        elif char == ";":
            start = _end_of_statement(open_rules, css, start, match.start())
        elif len(open_rules) > 1:
            _declare(open_rules.pop(), css[start : match.start()])
            start = match.end()
        # a closing brace without an opening one stays part of the prelude, which makes it invalid
    for rule in open_rules[1:]:
        _declare(rule, css[start:])
        start = len(css)
    return top


def _end_of_statement(open_rules: list[RawRule], css: str, start: int, end: int) -> int:
    text = css[start:end].strip()
    if text.startswith("@"):
        open_rules[-1].rules.append(RawRule(text))
    elif len(open_rules) > 1:
        _declare(open_rules[-1], text)
    else:
        return start  # no rule may hold a semicolon: what follows belongs to an invalid prelude
    return end + 1


def _declare(rule: RawRule, text: str) -> None:
    found = declaration(text) if ":" in text else None
    if found:
        rule.declarations.append(found)
