"""The values inside a response: numbers, strings, NIL and lists of them."""

from __future__ import annotations

import re
from typing import TypeAlias

from postroom.providers.imap.faults import Unreadable
from postroom.providers.imap.framing import Frame

Value: TypeAlias = "int | bytes | list[Value] | None"

MOST_VALUES = 50_000
DEEPEST = 100
_TOKEN = re.compile(
    rb' *+(?:(?P<open>\()|(?P<close>\))|"(?P<quoted>(?:[^"\\]|\\.)*+)"|\0(?P<literal>\d++)\0'
    rb'|(?P<atom>(?:BODY\[[^\]]*+\](?:<\d++>)?+|[^ ()"\0]++)))',
    re.IGNORECASE,
)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def parse_values(frame: Frame, start: int) -> list[Value]:
    """Read the values of a frame from a place of its line on. Raises Unreadable."""
    line, end = frame.line, len(frame.line.rstrip(b" "))
    values: list[Value] = []
    outer: list[list[Value]] = []
    at = start
    for _ in range(MOST_VALUES):
        if at >= end:
            if outer:
                raise Unreadable("a list in a response does not end")
            return values
        token = _TOKEN.match(line, at)
        if token is None:
            raise Unreadable("a response has values that cannot be read")
        at = token.end()
        kind = token.lastgroup
        if kind == "open":
            outer.append(values)
            values = []
            if len(outer) > DEEPEST:
                raise Unreadable(f"lists in a response are nested over {DEEPEST} levels")
        elif kind == "close":
            if not outer:
                raise Unreadable("a list in a response ends that never began")
            outer[-1].append(values)
            values = outer.pop()
        else:
            values.append(_plain(token, frame))
    raise Unreadable(f"a response has more than {MOST_VALUES} values")


def _plain(token: re.Match[bytes], frame: Frame) -> Value:
    if (quoted := token["quoted"]) is not None:
        return _ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted
    if (number := token["literal"]) is not None:
        return frame.literals[int(number)]
    atom = token["atom"]
    if atom.isdigit() and len(atom) <= 20:
        return int(atom)
    return None if atom.upper() == b"NIL" else atom
