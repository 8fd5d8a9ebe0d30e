"""Whether a posting is who it says, and of now."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.errors import Malformed, Unauthenticated

NOTICE_BYTES = 1_048_576
"""More than any provider has to say about a mail that it does not send along."""


def refuse(provider: str, why: str) -> Unauthenticated:
    """What a posting is told that is not to be trusted."""
    return Unauthenticated(f"this is not from {provider}: {why}")


def check_time(provider: str, timestamp: str, now: datetime, window: timedelta) -> None:
    """Refuse what was signed too long ago, or in a time to come. Raises Unauthenticated."""
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 11:
        raise refuse(provider, "its timestamp is missing")
    signed_at = datetime.fromtimestamp(int(timestamp), UTC)
    if abs(now - signed_at) > window:
        raise refuse(provider, "it was signed too long ago, or a clock is wrong")


def check_hmac(provider: str, key: bytes, signed: bytes, signatures: list[bytes]) -> None:
    """Refuse what none of the signatures fits. Raises Unauthenticated."""
    wanted = hmac.digest(key, signed, hashlib.sha256)
    if not any(hmac.compare_digest(wanted, given) for given in signatures):
        raise refuse(provider, "the signature does not fit")


def unbase64(text: str) -> bytes:
    """The bytes of base64, or none where it is not."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def content_of(text: str, what: str) -> bytes:
    """The bytes of base64 that may be broken into lines. Raises Malformed."""
    joined = "".join(text.split())
    try:
        return base64.b64decode(joined, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{what}: it cannot be read as base64") from None


def as_bytes(text: str) -> bytes:
    """A mail out of JSON; half of a character that JSON can hold becomes a question mark."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def unhex(text: str) -> bytes:
    """The bytes of hexadecimal digits, or none where they are not."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def read_json(body: bytes | str) -> dict[str, Any]:
    """A JSON object. Raises Malformed."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("the body cannot be read as JSON") from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object")
    return value


def words(value: object) -> str:
    """A text out of JSON; anything else is empty."""
    return value if isinstance(value, str) else ""


def rows(value: object) -> list[dict[str, Any]]:
    """The objects of a list out of JSON."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
