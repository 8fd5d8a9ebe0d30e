"""Flags and labels as IMAP and JMAP keep them: system flags, and keywords."""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from binascii import Error
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_PREFIX = "label."
SYSTEM = {"seen": "\\Seen", "flagged": "\\Flagged", "answered": "\\Answered", "draft": "\\Draft"}
_FLAGS = {keyword.lower(): flag for flag, keyword in SYSTEM.items()}
_MACHINES = frozenset(
    ("nonjunk", "notjunk", "junk", "forwarded", "mdnsent", "redirected", "submitted")
)
"""Keywords that programs set for themselves; they are nobody's labels."""


def keyword_of(label: str) -> str:
    """A keyword that stands for a label; what no keyword can hold is encoded, reversibly."""
    if _PLAIN.fullmatch(label) and not label.lower().startswith(_PREFIX):
        return label
    packed = b32encode(label.encode()).decode().rstrip("=").lower()
    return _PREFIX + packed


def label_of(keyword: str) -> str | None:
    """The label that a keyword stands for; None for those of machines."""
    if keyword.startswith(("$", "\\")) or keyword.lower() in _MACHINES:
        return None
    packed = keyword.lower().removeprefix(_PREFIX)
    if packed == keyword.lower():
        return keyword[:128]
    try:
        return b32decode(packed.upper() + "=" * (-len(packed) % 8)).decode()[:128]
    except (Error, UnicodeDecodeError):
        return keyword[:128]


def flags_in(keywords: Iterable[str]) -> tuple[str, ...]:
    """The flags among what a server has set."""
    return tuple(dict.fromkeys(_FLAGS[k.lower()] for k in keywords if k.lower() in _FLAGS))


def labels_in(keywords: Iterable[str]) -> tuple[str, ...]:
    """The labels among what a server has set."""
    found = (label_of(keyword) for keyword in keywords)
    return tuple(dict.fromkeys(label for label in found if label))
