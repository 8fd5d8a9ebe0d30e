"""DKIM (RFC 6376): what of a mail is signed, in the form in which it is signed."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable

from postroom.mail.canonical import relaxed_body, relaxed_field, split_fields

Sign = Callable[[bytes], bytes]

SIGNED = (
    "from", "to", "cc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references",
    "mime-version", "content-type", "content-transfer-encoding",
)  # fmt: skip


def add_signature(raw: bytes, sign: Sign, *, algorithm: str, domain: str, selector: str) -> bytes:
    """Put a DKIM-Signature in front of a mail whose lines end in CR LF; relaxed/relaxed."""
    header, _, body = raw.partition(b"\r\n\r\n")
    fields = split_fields(header)
    names = [name for name in SIGNED if any(found == name for found, _ in fields)]
    # Naming From once more than it is there keeps anyone from adding a second one.
    listed = [*names, "from"]
    body_hash = b64encode(hashlib.sha256(relaxed_body(body)).digest()).decode()
    value = (
        f" v=1; a={algorithm}; c=relaxed/relaxed; d={domain}; s={selector};\r\n"
        f"\th={':'.join(listed)};\r\n\tbh={body_hash};\r\n\tb="
    )
    signed = signed_bytes(fields, listed, value.encode())
    signature = b64encode(sign(signed)).decode()
    lines = "\r\n\t".join(signature[at : at + 72] for at in range(0, len(signature), 72))
    return f"DKIM-Signature:{value}{lines}\r\n".encode() + raw


def signed_bytes(fields: list[tuple[str, bytes]], names: list[str], signature: bytes) -> bytes:
    """The header fields that are signed, the last of each name first, and the signature's own."""
    left = list(reversed(fields))
    parts = []
    for name in names:
        place = next((at for at, (found, _) in enumerate(left) if found == name), None)
        if place is not None:
            parts.append(relaxed_field(left.pop(place)[1]) + b"\r\n")
    return b"".join(parts) + relaxed_field(b"DKIM-Signature:" + signature)
