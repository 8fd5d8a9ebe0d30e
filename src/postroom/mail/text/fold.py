"""Folding, the form in which text is compared; and the filters `from`, `to`, `subject` and `q`.

A filter is a string that the `SearchTexts` of a message contain: folded fields with a separator
around each field and after each address. A database can search for it, and so can code that has a
single message.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from postroom.model.mail.message import AddressLine
from postroom.model.mail.storage import FIELD_BORDER, SearchTexts
from postroom.model.values import dataclass, late_pattern

# Default_Ignorable_Code_Point of the Unicode character database: they show nothing, so a
# search must not trip over them.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IGNORED = late_pattern(f"[{IGNORABLE}]+")


def fold(text: str) -> str:
    """The form in which text is compared.

    Folding twice changes nothing: removing an invisible character can bring two others
    together that compose, so folding repeats until nothing changes.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    if "\n" not in text:
        return _fold_line(text)
    # No character composes with one beyond a line feed, so each line is folded by itself.
    lines = [line.lower() if line.isascii() else _fold_line(line) for line in text.split("\n")]
    return " ".join("\n".join(lines).split())


def _fold_line(line: str) -> str:
    folded = _fold_pass(line)
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


ADDRESS_END = "\x1e"
"""Between an address and its name; like `FIELD_BORDER`, folding never leaves one inside."""


def folded_fields(fields: Iterable[str]) -> str:
    """The fields that `q` looks at, the subject first; a match lies within one of them."""
    return FIELD_BORDER.join(map(fold, fields))


_MAX_SHORT = 100
_fold_cached = lru_cache(8192)(fold)


def _fold_short(text: str) -> str:
    """`fold` for addresses and names, most of which come again."""
    return _fold_cached(text) if len(text) <= _MAX_SHORT else fold(text)


def folded_addresses(addresses: Iterable[AddressLine], roles: tuple[str, ...]) -> str:
    """The addresses and names that `from` or `to` looks at."""
    lines = [
        f"{_fold_short(a.address)}{ADDRESS_END}{_fold_short(a.name)}"
        for a in addresses
        if a.role in roles
    ]
    return FIELD_BORDER + FIELD_BORDER.join(lines) + FIELD_BORDER if lines else ""


def address_pattern(folded: str) -> str:
    """What to look for among folded addresses: all of one, a whole domain, or any part."""
    local, at, domain = folded.partition("@")
    if not at or not domain or " " in folded or "@" in domain:
        return folded
    return f"{FIELD_BORDER if local else ''}{folded}{ADDRESS_END}"


def is_address_or_domain(folded: str) -> bool:
    """Whether a filter means one address, or all of a domain, and no part of anything."""
    return address_pattern(folded) != folded


def is_at(address: str, folded: str) -> bool:
    """Whether an address is the one, or in the domain, that a filter means."""
    return address_pattern(folded) in f"{FIELD_BORDER}{fold(address)}{ADDRESS_END}"


MAX_WORDS = 32
_WORD = late_pattern(r'"([^"]+)"|(\S+)')


def words_of(folded: str) -> tuple[str, ...]:
    """The words of a folded text; a phrase in double quotes is one of them.

    A word that is part of another one asks for nothing more, and is left out.
    """
    found = [(match[1] or match[2].strip('"')).strip() for match in _WORD.finditer(folded)]
    words = list(dict.fromkeys(word for word in found if word)) or [folded]
    return tuple(w for w in words if not any(w in other for other in words if other != w))


@dataclass(frozen=True, slots=True)
class TextFilter:
    """What a message must contain, folded; None and () ask for nothing."""

    sender: str | None = None
    recipient: str | None = None
    subject: str | None = None
    q: str | None = None
    words: tuple[str, ...] = ()
    sender_words: tuple[str, ...] = ()

    def matches(self, texts: SearchTexts) -> bool:
        """Whether it has all of it."""
        return all(pattern in text for pattern, text in self._patterns(texts))

    def _patterns(self, texts: SearchTexts) -> Iterator[tuple[str, str]]:
        if self.sender is not None:
            yield address_pattern(self.sender), texts.senders
        if self.recipient is not None:
            yield address_pattern(self.recipient), texts.recipients
        if self.subject is not None:
            yield self.subject, texts.searchable.partition(FIELD_BORDER)[0]
        if self.q is not None:
            yield self.q, texts.searchable
        for word in self.words:
            yield word, texts.searchable
        for word in self.sender_words:
            yield address_pattern(word), texts.senders
