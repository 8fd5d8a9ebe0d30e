"""Parsing of posted JSON and files, and verification of signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.errors import InvalidInput, Malformed, Unauthenticated
from postroom.mail.composing.compose import OutgoingAttachment
from postroom.mail.mime.forms import Form
from postroom.model.limits import TOO_DEEP, is_shallow

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
