"""Mailbox names on the wire: modified UTF-7 (RFC 3501 §5.1.3), and what servers send instead."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode

from postroom.providers.imap.arguments import refuse_controls

_SHIFTED = re.compile(r"[^\x20-\x7e]+")
_ENCODED = re.compile(r"&([A-Za-z0-9+,]*)-")


def encode_name(name: str) -> str:
    """A mailbox name as servers before IMAP4rev2 want it."""
    return _SHIFTED.sub(lambda run: _shift(run[0]), name.replace("&", "&-"))


def _shift(run: str) -> str:
    data = b64encode(run.encode("utf-16-be")).decode()
    return f"&{data.rstrip('=').replace('/', ',')}-"


def decode_name(data: bytes) -> str:
    """A mailbox name for people; what is not modified UTF-7 is shown as it is.

    The second case is told apart when the name comes back: see `spellings`.
    """
    text = data.decode("utf-8", "replace")
    if "&" not in text:
        return text
    try:
        name = _ENCODED.sub(_unshift, text)
    except ValueError:
        return text
    return name if encode_name(name) == text else text


def _unshift(run: re.Match[str]) -> str:
    if not run[1]:
        return "&"
    data = run[1].replace(",", "/")
    return b64decode(data + "=" * (-len(data) % 4), validate=True).decode("utf-16-be")


def spellings(name: str, *, is_utf8: bool) -> list[bytes]:
    """The ways in which a server may know this name, the right one first. Raises ValueError.

    Control characters are refused although modified UTF-7 could carry them: no mailbox has them.
    """
    raw, encoded = refuse_controls(name.encode()), encode_name(name).encode()
    if is_utf8 or raw == encoded:
        return [raw]
    # QUIRK: some servers list names in plain UTF-8, or with an "&" that begins nothing.
    return [encoded, raw]
