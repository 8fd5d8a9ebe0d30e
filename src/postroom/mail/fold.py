"""Folding: the one form in which text is compared, stored for search and searched for."""

from __future__ import annotations

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
    """Bring text to the form in which two texts that look the same are the same.

    Folding twice changes nothing: removing an invisible character can bring two others
    together that compose, so we go round until nothing moves.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    folded = _fold_once(text)
    while not folded.isascii() and (again := _fold_once(folded)) != folded:
        folded = again
    return folded


def _fold_once(text: str) -> str:
    seen = unicodedata.normalize("NFKC", text).casefold()
    seen = _IGNORED.sub("", unicodedata.normalize("NFKC", seen))
    return unicodedata.normalize("NFKC", " ".join(seen.split()))
