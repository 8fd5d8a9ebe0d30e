"""Folding: the form in which text is compared, stored for search and searched for."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Default_Ignorable_Code_Point of the Unicode character database: they show nothing, so a
# search must not trip over them.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IGNORED = re.compile(f"[{IGNORABLE}]+")


def fold(text: str) -> str:
    """The form in which text is compared.

    Folding twice changes nothing: removing an invisible character can bring two others
    together that compose, so folding repeats until nothing changes.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    folded = _fold_pass(text)
    while not folded.isascii() and (again := _fold_pass(folded)) != folded:
        folded = again
    return folded


def _fold_pass(text: str) -> str:
    seen = unicodedata.normalize("NFKC", text).casefold()
    seen = _IGNORED.sub("", unicodedata.normalize("NFKC", seen))
    return unicodedata.normalize("NFKC", " ".join(seen.split()))


MAX_KEY_BYTES = 998
"""A line of a mail has no more (RFC 5322 §2.1.1), and a row of an index of PostgreSQL 2,704."""

_PREFIX_CHARS = 200


def as_key(text: str) -> str:
    """The text itself, or of a longer one its beginning and its hash.

    The sign between them is not ASCII: no header of ours can carry such an id as if it were real.
    """
    if len(text) * 4 <= MAX_KEY_BYTES:
        return text
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= MAX_KEY_BYTES:
        return text
    return f"{text[:_PREFIX_CHARS]}…{hashlib.sha256(whole).hexdigest()}"
