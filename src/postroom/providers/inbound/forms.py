"""Parsing of posted forms and JSON, and verification of signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from binascii import a2b_qp
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.errors import InvalidInput, Malformed, Unauthenticated
from postroom.mail.composing.compose import OutgoingAttachment
from postroom.model.limits import TOO_DEEP, is_shallow

_MAX_PARTS = 500
_MAX_HEAD_BYTES = 8_192
_MAX_HEAD_LINES = 20
_BOUNDARY = re.compile(r'boundary="?([^",;\s]{1,70})"?', re.IGNORECASE)
_PARAMETER = re.compile(r'(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file in a form."""

    name: str
    filename: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """A form: the first value of each field, as bytes, and the files in order."""

    fields: dict[str, bytes] = field(default_factory=dict)
    files: list[FormFile] = field(default_factory=list)

    def text(self, name: str, charset: str = "utf-8") -> str:
        """A field as text; empty if the field is missing."""
        data = self.fields.get(name, b"")
        try:
            return data.decode(charset, "replace")
        except LookupError:
            return data.decode("utf-8", "replace")


def read_form(content_type: str, body: bytes, only: Collection[str] | None = None) -> Form:
    """Parse a form, URL-encoded or multipart. Raises Malformed.

    With *only*, just these fields are read, and they must be short.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return _urlencoded(body, only)
    boundary = _BOUNDARY.search(content_type)
    if kind != "multipart/form-data" or boundary is None:
        raise Malformed("send a form: multipart/form-data or application/x-www-form-urlencoded")
    return _multipart(b"--" + boundary[1].encode("latin-1"), body, only)


def _urlencoded(body: bytes, only: Collection[str] | None) -> Form:
    pairs = body.split(b"&", _MAX_PARTS)
    if len(pairs) > _MAX_PARTS or not body.isascii():
        raise _unreadable()
    form = Form()
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if len(name) > _MAX_HEAD_BYTES:
            raise Malformed("the name of a form field is too long")
        field_name = _unquoted(name).decode("utf-8", "replace")
        if only is None or field_name in only:
            _check_length(value, only)
            form.fields.setdefault(field_name, _unquoted(value))
    return form


def _unquoted(data: bytes) -> bytes:
    """Decode percent-encoding.

    As quoted-printable, which differs in one character, the standard library decodes it a hundred
    times faster; a mail can have a million of them.
    """
    if b"%" not in data:
        return data.replace(b"+", b" ")
    return a2b_qp(data.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"="))


def _multipart(marker: bytes, body: bytes, only: Collection[str] | None) -> Form:
    form = Form()
    for start, end in _spans(marker, body):
        head, content = _head(body, start, end)
        parameters = {
            name.lower(): re.sub(r"\\(.)", r"\1", value)
            for name, value in _PARAMETER.findall(head.get("content-disposition", ""))
        }
        name = parameters.get("name", "")
        if only is not None and name not in only:
            continue
        _check_length(memoryview(body)[content:end], only)
        if "filename" in parameters:
            kind = head.get("content-type", "application/octet-stream")
            form.files.append(FormFile(name, parameters["filename"], kind, body[content:end]))
        else:
            form.fields.setdefault(name, body[content:end])
    return form


def _spans(marker: bytes, body: bytes) -> Iterator[tuple[int, int]]:
    """The start and end of each part."""
    separator = b"\r\n" + marker
    start = 0 if body.startswith(marker) else body.find(separator) + 2
    if start == 1:
        raise _unreadable()
    start += len(marker)
    for _ in range(_MAX_PARTS + 1):
        if body.startswith(b"--", start):
            return
        end = body.find(separator, start)
        if end < 0:
            break
        yield start, end
        start = end + len(separator)
    raise _unreadable()


def _head(body: bytes, start: int, end: int) -> tuple[dict[str, str], int]:
    """The headers of a part by lower-case name, and the start of its content."""
    stop = body.find(b"\r\n\r\n", start, min(end, start + _MAX_HEAD_BYTES))
    lines = body[start : max(stop, start)].decode("utf-8", "replace").split("\r\n")
    if stop < 0 or len(lines) > _MAX_HEAD_LINES:
        raise Malformed("a form field has unterminated or too many headers")
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, stop + 4


def _check_length(value: bytes | memoryview, only: Collection[str] | None) -> None:
    if only is not None and len(value) > _MAX_HEAD_BYTES:
        raise Malformed(f"a form field is too long: one of {', '.join(only)}")


def _unreadable() -> Malformed:
    return Malformed("the form is malformed or has too many fields")


INVALID_SIGNATURE = "the signature is invalid"
INVALID_TIMESTAMP = "its timestamp is missing or invalid"
NOTICE_BYTES = 1_048_576
"""The limit of a notification that does not contain the mail."""


def refuse(provider: str, reason: str) -> Unauthenticated:
    """The error for a request that is not authenticated."""
    return Unauthenticated(f"not a request of {provider}: {reason}")


def check_time(provider: str, timestamp: str, now: datetime, window: timedelta) -> None:
    """Refuse a timestamp outside of the window. Raises Unauthenticated."""
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 11:
        raise refuse(provider, INVALID_TIMESTAMP)
    check_age(provider, datetime.fromtimestamp(int(timestamp), UTC), now, window)


def check_age(provider: str, signed_at: datetime, now: datetime, window: timedelta) -> None:
    """Refuse a time outside of the window. Raises Unauthenticated."""
    if abs(now - signed_at) > window:
        raise refuse(provider, "its timestamp is too old or in the future; check the clocks")


def check_hmac(provider: str, key: bytes, signed: bytes, signatures: list[bytes]) -> None:
    """Refuse data unless one of the signatures is valid. Raises Unauthenticated."""
    expected = hmac.digest(key, signed, hashlib.sha256)
    if not any(hmac.compare_digest(expected, signature) for signature in signatures):
        raise refuse(provider, INVALID_SIGNATURE)


def decode_base64(text: str) -> bytes:
    """Decode base64; empty if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def decode_content(text: str, what: str) -> bytes:
    """Decode base64 that may have line breaks. Raises Malformed."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Malformed(f"{what}: not valid base64") from None


def encode_mail(text: str) -> bytes:
    """Encode a mail from JSON; lone surrogates become question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def decode_hex(text: str) -> bytes:
    """Decode hexadecimal digits; empty if they are invalid."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def read_json(body: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Raises Malformed, InvalidInput."""
    try:
        value = json.loads(body)
    except RecursionError:
        raise InvalidInput(f"the body is {TOO_DEEP}") from None
    except ValueError:
        raise Malformed("the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object")
    if not is_shallow(value):
        raise InvalidInput(f"the body is {TOO_DEEP}")
    return value


def form_parts(form: Form, ids_field: str) -> list[OutgoingAttachment]:
    """The files of a form; the field *ids_field* maps content ids of the HTML to files."""
    ids = read_json(form.text(ids_field) or "{}")
    of_file = {str(name): str(content_id) for content_id, name in ids.items()}
    return [
        OutgoingAttachment(f.filename, f.content_type, f.content, of_file.get(f.name))
        for f in form.files
    ]


def text_of(value: object) -> str:
    """A JSON value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def objects_of(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON value if it is a list, else none."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def object_of(value: object) -> dict[str, Any]:
    """A JSON value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def texts_of(value: object) -> tuple[str, ...]:
    """The values in a JSON list as strings; none if it is not a list."""
    return tuple(map(text_of, value)) if isinstance(value, list) else ()
