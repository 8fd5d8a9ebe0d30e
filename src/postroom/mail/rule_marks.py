"""The signed header of mail that a rule forwarded, which prevents mail loops.

    X-Postroom-Rule: rul_6c1k8d; t=forward; s=<signature over rule, type and Message-ID>

The signature covers the Message-ID, so a copied header is invalid on another mail. Only forwards
are recognised by it; replies carry `Auto-Submitted: auto-replied`. Otherwise the recipient of a
reply could disable forwarding by sending its header back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

from postroom.mail.identifiers import parse_message_id
from postroom.model.rule import OWN_MARK

_PURPOSE = b"postroom rule mark"
_MAX_MARKS = 20


def mark_key(secret: bytes) -> bytes:
    """The signing key, derived from the secret of the installation."""
    return hmac.digest(secret, _PURPOSE, hashlib.sha256)


def rule_mark(key: bytes, rule_id: str, kind: str, message_id: str) -> str:
    """The header value for a mail with this Message-ID (without brackets)."""
    signed = f"{rule_id}\n{kind}\n{message_id}".encode("utf-8", "surrogatepass")
    signature = base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)[:18]).decode()
    return f"{rule_id}; t={kind}; s={signature}"


def is_own_forward(key: bytes, headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a mail was forwarded by a rule of this installation, proven by the signature."""
    found = [(name.lower(), value) for name, value in headers]
    marks = [value for name, value in found if name == OWN_MARK.lower()]
    ids = [value for name, value in found if name == "message-id"]
    message_id = parse_message_id(ids[0]) if marks and len(ids) == 1 else None
    if not key or message_id is None:
        return False
    return any(_is_signed(key, mark, message_id) for mark in marks[:_MAX_MARKS])


def _is_signed(key: bytes, mark: str, message_id: str) -> bool:
    rule_id = mark.partition(";")[0].strip()
    wanted = rule_mark(key, rule_id, "forward", message_id)
    return hmac.compare_digest(
        " ".join(mark.split()).encode("utf-8", "surrogatepass"),
        wanted.encode("utf-8", "surrogatepass"),
    )
