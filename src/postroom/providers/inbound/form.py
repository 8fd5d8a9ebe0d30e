"""A form as browsers and providers post it: fields, and files.

Anybody may post one, so nothing here takes longer than in proportion to its size, and what is said
about a part is short.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from postroom.errors import Malformed

_MOST_PARTS = 500
_MOST_HEAD_BYTES = 8_192
_MOST_HEAD_LINES = 20
_BOUNDARY = re.compile(r'boundary="?([^",;\s]{1,70})"?', re.IGNORECASE)
_PARAMETER = re.compile(r'(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormFile:
    """A field that is a file."""

    name: str
    filename: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """What was posted: the first value of each field, as bytes, and the files in order."""

    fields: dict[str, bytes] = field(default_factory=dict)
    files: list[FormFile] = field(default_factory=list)

    def text(self, name: str, charset: str = "utf-8") -> str:
        """A field as text; an unknown field is empty."""
        data = self.fields.get(name, b"")
        try:
            return data.decode(charset, "replace")
        except LookupError:
            return data.decode("utf-8", "replace")


def read_form(content_type: str, body: bytes, only: Collection[str] | None = None) -> Form:
    """Take a form apart, in either of the two ways to write one. Raises Malformed.

    With *only*, no other field is looked into, and these must be short.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return _urlencoded(body, only)
    boundary = _BOUNDARY.search(content_type)
    if kind != "multipart/form-data" or boundary is None:
        raise Malformed("send a form: multipart/form-data or application/x-www-form-urlencoded")
    return _multipart(b"--" + boundary[1].encode("latin-1"), body, only)


def _urlencoded(body: bytes, only: Collection[str] | None) -> Form:
    pairs = body.split(b"&", _MOST_PARTS)
    if len(pairs) > _MOST_PARTS or not body.isascii():
        raise _unreadable()
    form = Form()
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if len(name) > _MOST_HEAD_BYTES:
            raise Malformed("a field of the form has too long a name")
        called = _unquoted(name).decode("utf-8", "replace")
        if only is None or called in only:
            _check_length(value, only)
            form.fields.setdefault(called, _unquoted(value))
    return form


def _unquoted(data: bytes) -> bytes:
    """Undo the percent signs.

    Quoted-printable says the same with another sign, and the standard library reads that a hundred
    times faster: a whole mail in this form has a million of them.
    """
    if b"%" not in data:
        return data.replace(b"+", b" ")
    return a2b_qp(data.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"="))


def _multipart(marker: bytes, body: bytes, only: Collection[str] | None) -> Form:
    form = Form()
    for start, end in _spans(marker, body):
        head, content = _head(body, start, end)
        said = {
            name.lower(): re.sub(r"\\(.)", r"\1", value)
            for name, value in _PARAMETER.findall(head.get("content-disposition", ""))
        }
        name = said.get("name", "")
        if only is not None and name not in only:
            continue
        _check_length(memoryview(body)[content:end], only)
        if "filename" in said:
            kind = head.get("content-type", "application/octet-stream")
            form.files.append(FormFile(name, said["filename"], kind, body[content:end]))
        else:
            form.fields.setdefault(name, body[content:end])
    return form


def _spans(marker: bytes, body: bytes) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends."""
    separator = b"\r\n" + marker
    start = 0 if body.startswith(marker) else body.find(separator) + 2
    if start == 1:
        raise _unreadable()
    start += len(marker)
    for _ in range(_MOST_PARTS + 1):
        if body.startswith(b"--", start):
            return
        end = body.find(separator, start)
        if end < 0:
            break
        yield start, end
        start = end + len(separator)
    raise _unreadable()


def _head(body: bytes, start: int, end: int) -> tuple[dict[str, str], int]:
    """The headers of a part by lower-case name, and where its content begins."""
    stop = body.find(b"\r\n\r\n", start, min(end, start + _MOST_HEAD_BYTES))
    lines = body[start : max(stop, start)].decode("utf-8", "replace").split("\r\n")
    if stop < 0 or len(lines) > _MOST_HEAD_LINES:
        raise Malformed("a field of the form has no end of its headers, or too many of them")
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, stop + 4


def _check_length(value: bytes | memoryview, only: Collection[str] | None) -> None:
    if only is not None and len(value) > _MOST_HEAD_BYTES:
        raise Malformed(f"a field of the form is too long: {', '.join(only)} are short")


def _unreadable() -> Malformed:
    return Malformed("the form cannot be read, or has too many fields")
