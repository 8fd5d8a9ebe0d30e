"""What servers write: keywords for flags and labels, names, and answers with a secret in them."""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from binascii import Error
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

_MAX_CHARS = 50
"""QUIRK: the default mail_max_keyword_length of Dovecot."""

_OLD_MAX_CHARS = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PREFIX = "label."
_SHORT_PREFIX = "label-"
_READABLE = re.compile(r"[^a-z0-9]+")
SYSTEM = {"seen": "\\Seen", "flagged": "\\Flagged", "answered": "\\Answered", "draft": "\\Draft"}
_FLAGS = {keyword.lower(): flag for flag, keyword in SYSTEM.items()}
_CLIENT_KEYWORDS = frozenset(
    ("nonjunk", "notjunk", "junk", "forwarded", "mdnsent", "redirected", "submitted")
)
"""Keywords that mail clients set; they are not labels."""


def keyword_of(label: str) -> str:
    """The keyword of a label: the label itself, an encoding, or a hash if that is too long.

    `Labels` maps hashes back to labels.
    """
    keyword = _full_keyword(label)
    if len(keyword) <= _MAX_CHARS:
        return keyword
    folded = label.casefold()
    readable = _READABLE.sub("-", folded).strip("-")[:16].strip("-")
    unique = _base32(sha256(folded.encode()).digest()[:16])
    return _SHORT_PREFIX + "-".join(part for part in (readable, unique) if part)


def longer_keywords_of(label: str) -> tuple[str, ...]:
    """Keywords that older versions used for a label that is hashed now."""
    keyword = _full_keyword(label)
    return (keyword,) if _MAX_CHARS < len(keyword) <= _OLD_MAX_CHARS else ()


def _full_keyword(label: str) -> str:
    is_taken = label.lower().startswith(_PREFIX) or label.lower() in _CLIENT_KEYWORDS
    if _PLAIN.fullmatch(label) and not is_taken:
        return label
    return _PREFIX + _base32(label.encode())


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def label_of(keyword: str) -> str | None:
    """The label of a keyword; None for keywords of mail clients."""
    if keyword.startswith(("$", "\\")) or keyword.lower() in _CLIENT_KEYWORDS:
        return None
    encoded = keyword.lower().removeprefix(_PREFIX)
    if encoded == keyword.lower():
        return keyword[:128]
    try:
        return b32decode(encoded.upper() + "=" * (-len(encoded) % 8)).decode()[:128]
    except (Error, UnicodeDecodeError):
        return keyword[:128]


def flags_in(keywords: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_FLAGS[k.lower()] for k in keywords if k.lower() in _FLAGS))


@dataclass(slots=True)
class Labels:
    """Reads keywords; known labels are needed to read hashed ones."""

    _names: dict[str, str] = field(default_factory=dict)

    def add(self, labels: Iterable[str]) -> None:
        for label in labels:
            keyword = keyword_of(label)
            if keyword.startswith(_SHORT_PREFIX):
                self._names[keyword.lower()] = label

    def labels_in(self, keywords: Iterable[str]) -> tuple[str, ...]:
        found = (self._names.get(keyword.lower()) or label_of(keyword) for keyword in keywords)
        return tuple(dict.fromkeys(label for label in found if label))


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MIN_CHARS = 6


def plain_name(name: str) -> str:
    """A name without control characters: they cannot be stored, shown or typed everywhere."""
    return _CONTROLS.sub("\ufffd", name)


def without_secret(text: str, secret: str | None) -> str:
    """A text of a server without the secret; empty if the secret is short.

    A short secret is not replaced: it could be part of any word, and the gap would reveal it. The
    whole text is dropped instead.
    """
    if not secret:
        return text
    return text.replace(secret, "********") if len(secret) >= _MIN_CHARS else ""
