"""The signed header of mail that a rule forwarded, which prevents mail loops.

    X-Postroom-Rule: t=forward; s=<signature over type and Message-ID>

The signature covers the Message-ID, so a copied header is invalid on another mail. Recipients do
not learn which rule it was; we find it by the Message-ID of the stored mail. Only forwards
are recognised by it; replies carry `Auto-Submitted: auto-replied`. Otherwise the recipient of a
reply could disable forwarding by sending its header back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

from postroom.mail.message import parse_message_id
from postroom.model.rule import OWN_MARK

_PURPOSE = b"postroom rule mark"
_MAX_MARKS = 20


def mark_key(secret: bytes) -> bytes:
    """The signing key, derived from the secret of the installation."""
    return hmac.digest(secret, _PURPOSE, hashlib.sha256)


def rule_mark(key: bytes, kind: str, message_id: str) -> str:
    """The header value for a mail with this Message-ID (without brackets)."""
    signed = f"{kind}\n{message_id}".encode("utf-8", "surrogatepass")
    signature = base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)[:18]).decode()
    return f"t={kind}; s={signature}"


def is_own_forward(key: bytes, headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a mail was forwarded by a rule of this installation, proven by the signature."""
    found = [(name.lower(), value) for name, value in headers]
    marks = [value for name, value in found if name == OWN_MARK.lower()]
    ids = [value for name, value in found if name == "message-id"]
    message_id = parse_message_id(ids[0]) if marks and len(ids) == 1 else None
    if not key or message_id is None:
        return False
    wanted = rule_mark(key, "forward", message_id).encode()
    return any(hmac.compare_digest(_plain(mark), wanted) for mark in marks[:_MAX_MARKS])


def _plain(mark: str) -> bytes:
    return " ".join(mark.split()).encode("utf-8", "surrogatepass")
