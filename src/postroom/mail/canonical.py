"""The forms in which a mail is hashed for DKIM (RFC 6376 §3.4), each made in linear time."""

from __future__ import annotations

import re

_FOLD = re.compile(rb"\r\n(?=[ \t])")
_FIELD_END = re.compile(rb"\r\n(?![ \t])")


def with_crlf(raw: bytes) -> bytes:
    """The mail with the line ends it travelled with; files often keep bare LFs."""
    return raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def split_fields(header: bytes) -> list[tuple[str, bytes]]:
    """Each header field with its name in lower case, still folded and without its line end."""
    fields = (field for field in _FIELD_END.split(header) if b":" in field)
    return [
        (field.partition(b":")[0].decode("ascii", "replace").strip().lower(), field)
        for field in fields
    ]


def relaxed_field(field: bytes) -> bytes:
    """A field on one line, its name in lower case, runs of blanks as one (§3.4.2)."""
    name, _, value = _FOLD.sub(b"", field).partition(b":")
    return name.strip().lower() + b":" + _one_blank(value).strip(b" ")


def simple_field(field: bytes) -> bytes:
    """A field as it came (§3.4.1)."""
    return field


def relaxed_body(body: bytes) -> bytes:
    """The body with runs of blanks as one, none before a line end, no blank lines at its end."""
    lines = _one_blank(body).replace(b" \r\n", b"\r\n").rstrip(b"\r\n ")
    return lines + b"\r\n" if lines else b""


def simple_body(body: bytes) -> bytes:
    """The body as it came, but for blank lines at its end (§3.4.3)."""
    return body.rstrip(b"\r\n") + b"\r\n"


def _one_blank(value: bytes) -> bytes:
    """Halving the runs each time takes no longer for a megabyte of blanks than for one word."""
    value = value.replace(b"\t", b" ")
    while b"  " in value:
        value = value.replace(b"  ", b" ")
    return value
