"""Flags and labels as IMAP and JMAP keep them: system flags, and keywords."""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from binascii import Error
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

_MOST_CHARS = 50
"""QUIRK: Dovecot makes no longer keyword unless it is told to (mail_max_keyword_length)."""

_FORMERLY_CHARS = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PREFIX = "label."
_SHORT_PREFIX = "label-"
_READABLE = re.compile(r"[^a-z0-9]+")
SYSTEM = {"seen": "\\Seen", "flagged": "\\Flagged", "answered": "\\Answered", "draft": "\\Draft"}
_FLAGS = {keyword.lower(): flag for flag, keyword in SYSTEM.items()}
_MACHINES = frozenset(
    ("nonjunk", "notjunk", "junk", "forwarded", "mdnsent", "redirected", "submitted")
)
"""Keywords that programs set for themselves; they are nobody's labels."""


def keyword_of(label: str) -> str:
    """A keyword that stands for a label.

    What no keyword can hold is encoded, reversibly; what is too long for that is shortened, and
    `Labels` knows it again.
    """
    keyword = _whole(label)
    return keyword if len(keyword) <= _MOST_CHARS else _shortened(label)


def longer_keywords_of(label: str) -> tuple[str, ...]:
    """Keywords by which somebody else may have set a label that we shorten."""
    keyword = _whole(label)
    return (keyword,) if _MOST_CHARS < len(keyword) <= _FORMERLY_CHARS else ()


def _whole(label: str) -> str:
    is_taken = label.lower().startswith(_PREFIX) or label.lower() in _MACHINES
    if _PLAIN.fullmatch(label) and not is_taken:
        return label
    return _PREFIX + _packed(label.encode())


def _shortened(label: str) -> str:
    folded = label.casefold()
    readable = _READABLE.sub("-", folded).strip("-")[:16].strip("-")
    unique = _packed(sha256(folded.encode()).digest()[:16])
    return _SHORT_PREFIX + "-".join(part for part in (readable, unique) if part)


def _packed(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


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


@dataclass(slots=True)
class Labels:
    """Reads keywords, and remembers the labels whose keywords do not hold their names."""

    _names: dict[str, str] = field(default_factory=dict)

    def learn(self, labels: Iterable[str]) -> None:
        """Get to know labels that are in use here."""
        for label in labels:
            keyword = keyword_of(label)
            if keyword.startswith(_SHORT_PREFIX):
                self._names[keyword.lower()] = label

    def among(self, keywords: Iterable[str]) -> tuple[str, ...]:
        """The labels among what a server has set."""
        found = (self._names.get(keyword.lower()) or label_of(keyword) for keyword in keywords)
        return tuple(dict.fromkeys(label for label in found if label))
