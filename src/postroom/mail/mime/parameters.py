"""Parameters of header fields (RFC 2045, RFC 2231)."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from postroom.mail.mime.decoding import clean, decode, decode_words, guess

_MOST = 100
_PARAMETER = re.compile(
    r"""\s*+;?+\s*+([^\s=;"]{1,200}+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)(?:"|$)|([^;]*+))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SECTION = re.compile(r"^([^*]+)\*(\d{1,3})(\*?)$")


def parse_parameters(value: str) -> tuple[str, dict[str, str]]:
    """The value itself, lower case, and its parameters by lower-case name, decoded."""
    head, _, rest = value.partition(";")
    if "=" in head:  # a forgotten semicolon, or a forgotten type
        head, rest = ("", value) if "/" not in head.partition("=")[0] else _forgiven(value)
    raw = _raw_parameters(rest) if "=" in rest else []
    return clean(head.strip().strip('"').lower()), _decoded(raw) if raw else {}


def _forgiven(value: str) -> tuple[str, str]:
    words = value.split(None, 1)
    return (words[0].rstrip(";"), words[1]) if len(words) == 2 else (value, "")


def _raw_parameters(rest: str) -> list[tuple[str, str, bool]]:
    """Names, values and whether they were quoted, as they stand."""
    found: list[tuple[str, str, bool]] = []
    at = 0
    while at < len(rest) and len(found) < _MOST:
        match = _PARAMETER.match(rest, at)
        if match is None:
            at = rest.find(";", at + 1)
            if at < 0:
                break
            continue
        quoted = match[2] is not None
        value = _ESCAPED.sub(_unescape, match[2]) if quoted else match[3].strip()
        found.append((match[1].lower(), value, quoted))
        at = match.end()
    return found


def _unescape(match: re.Match[str]) -> str:
    # Windows senders put paths in quotes without doubling the backslash
    return match[1] if match[1] in '"\\' else match[0]


def _decoded(raw: list[tuple[str, str, bool]]) -> dict[str, str]:
    plain: dict[str, str] = {}
    sections: dict[str, dict[int, tuple[str, bool]]] = {}
    for name, value, _ in raw:
        section = _SECTION.match(name)
        if section:
            numbered = sections.setdefault(section[1], {})
            numbered.setdefault(int(section[2]), (value, bool(section[3])))
        elif name.endswith("*"):
            sections.setdefault(name[:-1], {}).setdefault(0, (value, True))
        else:
            plain.setdefault(name, decode_words(value))
    for name, numbered in sections.items():
        plain[name] = _joined(numbered)
    return {name: clean(value) for name, value in plain.items()}


def _joined(numbered: dict[int, tuple[str, bool]]) -> str:
    """The sections of an RFC 2231 parameter, in order, in their charset."""
    ordered = [numbered[number] for number in sorted(numbered)]
    if not any(encoded for _, encoded in ordered):
        return decode_words("".join(value for value, _ in ordered))
    first, first_encoded = ordered[0]
    charset = ""
    if first_encoded and first.count("'") >= 2:
        charset, _, first = first.split("'", 2)
        ordered[0] = (first, True)
    data = b"".join(
        unquote_to_bytes(value) if encoded else value.encode("utf-8", "replace")
        for value, encoded in ordered
    )
    return decode(data, charset)[0] if charset else guess(data)
