"""What a mail says of itself as a key of an index: of any length, as a mail may say anything."""

from __future__ import annotations

import hashlib

MOST_KEY_BYTES = 998
"""A line of a mail has no more (RFC 5322 §2.1.1), and a row of an index of PostgreSQL 2,704."""

_KEPT = 200


def as_key(text: str) -> str:
    """The text itself, or of a longer one its beginning and its hash.

    The sign between them is not ASCII: no header of ours can carry such an id as if it were real.
    """
    if len(text) * 4 <= MOST_KEY_BYTES:
        return text
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= MOST_KEY_BYTES:
        return text
    return f"{text[:_KEPT]}…{hashlib.sha256(whole).hexdigest()}"
