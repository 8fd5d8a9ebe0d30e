"""What a search asks, in the words of SEARCH (RFC 3501 §6.4.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from postroom.mail.fold import fold
from postroom.mail.headers import Fields
from postroom.model.imap import ImapCriteria
from postroom.providers.imap.arguments import Piece, search_date, words

_ASCII_RUN = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Question:
    """A search for the newest *limit* matches; *below* leaves out what earlier pages showed."""

    criteria: ImapCriteria
    limit: int
    most: int
    below: int | None = None

    @property
    def is_all(self) -> bool:
        return self.criteria == ImapCriteria() and self.below is None

    @property
    def is_ascii(self) -> bool:
        return all(text.isascii() for text in self._texts().values())

    def keys(self) -> list[Piece]:
        """The question as a server reads it, with a charset only if it needs one.

        QUIRK: some servers refuse SEARCH with any CHARSET, though RFC 3501 asks for US-ASCII at
        least.
        """
        keys = self._other_keys()
        for key, text in self._texts().items():
            keys += [key, words(text)]
        charset: list[Piece] = [] if self.is_ascii else [b"CHARSET UTF-8"]
        return [*charset, *(keys or [b"ALL"])]

    def _texts(self) -> dict[bytes, str]:
        c = self.criteria
        pairs = ((b"TEXT", c.query), (b"FROM", c.from_), (b"TO", c.to), (b"SUBJECT", c.subject))
        return {key: text for key, text in pairs if text is not None}

    def _other_keys(self) -> list[Piece]:
        c = self.criteria
        keys: list[Piece] = []
        if self.below is not None:
            keys.append(b"UID 1:%d" % max(1, self.below - 1))
        if c.unread_only:
            keys.append(b"UNSEEN")
        if c.since is not None:
            keys.append(b"SINCE " + search_date(c.since))
        if c.before is not None:
            keys.append(b"BEFORE " + search_date(c.before))
        return keys

    def in_ascii(self, limit: int) -> Question:
        """A wider question without a charset: the longest run of ASCII in each text."""
        c = self.criteria
        wide = replace(
            c,
            query=_ascii(c.query),
            from_=_ascii(c.from_),
            to=_ascii(c.to),
            subject=_ascii(c.subject),
        )
        return replace(self, criteria=wide, limit=limit)

    def fits(self, fields: Fields) -> bool:
        """Whether the header of a message fits, as far as texts of the header are asked for."""
        c = self.criteria
        wanted = (("from", c.from_), ("to", c.to), ("subject", c.subject))
        return all(
            fold(text) in fold(fields.decoded(name)) for name, text in wanted if text is not None
        )


def _ascii(text: str | None) -> str | None:
    runs = (run.strip() for run in _ASCII_RUN.findall(text or ""))
    return max(runs, key=len, default="") or None
