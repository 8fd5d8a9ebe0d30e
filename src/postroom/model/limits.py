"""Limits of input: sizes, counts, rates, depth of JSON."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from postroom.model.values import dataclass

MB = 1024 * 1024
KB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that surfaces and parsers check first."""

    message_bytes: int = 36 * MB
    attachments_bytes: int = 25 * MB
    attachments_count: int = 20
    header_bytes: int = 256 * KB
    header_count: int = 1_000
    mime_parts: int = 500
    mime_depth: int = 20
    header_addresses: int = 500
    filename_chars: int = 255
    html_bytes: int = 2 * MB
    recipients: int = 50
    request_bytes: int = 40 * MB
    text_chars: int = 1_048_576
    inline_bytes: int = 1 * MB
    requests_per_second: int = 500
    requests_burst: int = 2_000
    sends_per_hour: int = 1_000
    domain_sends_per_hour: int = 10_000
    automatic_replies_per_inbox: int = 1
    automatic_replies_per_day: int = 5
    smtp_per_minute: int = 60_000
    memory_bytes: int = 64 * KB


def attachment_mb(mail_bytes: int) -> int:
    """How many MB of attachments fit into a mail of this size; base64 adds a third."""
    return max(mail_bytes * 3 // 4 // 2**20, 1)


MAX_DEPTH = 64
"""The maximum nesting of JSON; `{}` is one level."""

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

_CONTAINERS = frozenset({dict, list})
"""The container types of parsed JSON; comparing exact types is faster."""

_IRRELEVANT = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = [{"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256)]


def is_shallow(value: object) -> bool:
    """Whether a parsed value is nested at most MAX_DEPTH levels."""
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            for inner in (one.values() if type(one) is dict else one)
            if type(inner) in _CONTAINERS
        ]
        if not level:
            return True
    return False


def is_shallow_json(text: bytes) -> bool:
    """Whether JSON text is nested at most MAX_DEPTH levels, in one pass over its bytes.

    Invalid JSON gets an arbitrary result; its parser refuses it.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return True
    # Without escapes, every quotation mark starts or ends a string.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = b"".join(plain.translate(None, _IRRELEVANT).split(b'"')[::2])
    return max(accumulate(map(_STEPS.__getitem__, outside)), default=0) <= MAX_DEPTH
