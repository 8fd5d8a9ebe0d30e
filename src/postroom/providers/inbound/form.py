"""A form as browsers and providers post it: fields, and files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from postroom.errors import Malformed

_MOST_PARTS = 500
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


def read_form(content_type: str, body: bytes) -> Form:
    """Take a form apart, in either of the two ways to write one. Raises Malformed."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return _urlencoded(body)
    boundary = _BOUNDARY.search(content_type)
    if kind != "multipart/form-data" or boundary is None:
        raise Malformed("send a form: multipart/form-data or application/x-www-form-urlencoded")
    return _multipart(b"--" + boundary[1].encode("latin-1"), body)


def _urlencoded(body: bytes) -> Form:
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            encoding="latin-1",
            max_num_fields=_MOST_PARTS,
        )
    except ValueError:
        raise Malformed("the form cannot be read, or has too many fields") from None
    fields: dict[str, bytes] = {}
    for name, value in pairs:
        fields.setdefault(name, value.encode("latin-1"))
    return Form(fields)


def _multipart(marker: bytes, body: bytes) -> Form:
    pieces = (b"\r\n" + body).split(b"\r\n" + marker, _MOST_PARTS + 1)
    if len(pieces) < 2 or len(pieces) > _MOST_PARTS + 1 or not pieces[-1].startswith(b"--"):
        raise Malformed("the form cannot be read, or has too many fields")
    form = Form()
    for piece in pieces[1:-1]:
        _add(form, piece)
    return form


def _add(form: Form, piece: bytes) -> None:
    head, separator, content = piece.partition(b"\r\n\r\n")
    if not separator:
        raise Malformed("a field of the form has no end of its headers")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (
            line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n")
        )
    }
    said = {
        name.lower(): re.sub(r"\\(.)", r"\1", value)
        for name, value in _PARAMETER.findall(headers.get("content-disposition", ""))
    }
    name = said.get("name", "")
    if "filename" in said:
        kind = headers.get("content-type", "application/octet-stream")
        form.files.append(FormFile(name, said["filename"], kind, content))
    else:
        form.fields.setdefault(name, content)
