"""Searches on servers of every kind: that count or do not, that lie, that read only ASCII."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.mail.headers import split_header
from postroom.model.imap import ImapFound, ImapNote
from postroom.model.limits import Limits
from postroom.providers.imap.client import Client, together
from postroom.providers.imap.faults import Refused
from postroom.providers.imap.questions import Question
from postroom.providers.imap.responses import Hits, Opened, Row

MOST_COMPARED = 2_000
"""How many messages are compared here when the server cannot read the text searched for."""

_HEADER_BYTES = 8_192
_LIMITS = Limits()


@dataclass(slots=True)
class Search:
    """A search in a mailbox of one connection; it keeps note of what was odd.

    `name` is the mailbox as the server spells it, `check` refuses a mailbox that is not the one
    expected.
    """

    client: Client
    name: bytes
    check: Callable[[Opened], None]
    notes: list[ImapNote] = field(default_factory=list)
    opened: Opened = field(default_factory=Opened)

    async def run(self, question: Question) -> ImapFound:
        """Open the mailbox and search it, in one round trip if it can be."""
        first = self._first(question)
        opened, hits = await asyncio.gather(
            self.client.examine(self.name), first, return_exceptions=True
        )
        if isinstance(opened, BaseException):
            raise opened
        self.check(opened)
        self.opened = opened
        if isinstance(hits, Refused) and not question.is_ascii:
            return await self._compared(question, hits)
        if isinstance(hits, BaseException):
            raise hits
        return await self._found(question, hits)

    async def _first(self, question: Question) -> Hits:
        """Let the server count; what it counted can be named again if it keeps it (RFC 5182)."""
        if not self.client.counts:
            return await self.client.search(question.keys())
        returning = b"SAVE COUNT" if self.client.can("SEARCHRES") else b"COUNT"
        return await self.client.search(question.keys(), returning=returning)

    async def _found(self, question: Question, hits: Hits) -> ImapFound:
        if self.client.counts and hits.is_extended:
            hits = await self._listed(question, hits)
        if not hits.count and question.is_all and self.opened.exists:
            hits = await self._by_place(question.most)
        total = hits.count or 0
        uids = hits.newest(question.limit) if total <= question.most else []
        return ImapFound(self.opened.uidvalidity, total, tuple(uids), tuple(self.notes))

    async def _listed(self, question: Question, counted: Hits) -> Hits:
        """From a count to the UIDs of a page."""
        total = counted.count or 0
        if total > question.most:
            return counted
        if total == 0:
            return counted if await self._is_empty(question) else await self._plainly(question)
        self.client.is_trusted = True
        keys = [b"$"] if self.client.can("SEARCHRES") else question.keys()
        listed = await self.client.search(keys, returning=self._page(question, total))
        if not listed.newest(1):
            return await self._plainly(question)
        listed.count = total
        return listed

    def _page(self, question: Question, total: int) -> bytes:
        """Only the end of the list, if the server can cut it (RFC 5267)."""
        if self.client.can("CONTEXT=SEARCH"):
            return b"PARTIAL %d:%d" % (max(1, total - question.limit + 1), total)
        return b"ALL"

    async def _is_empty(self, question: Question) -> bool:
        """Whether nothing found means that there is nothing.

        QUIRK: there are servers whose ESEARCH finds nothing, ever. One that has found something
        is believed; of another we ask how many messages there are, in two ways.
        """
        if self.client.is_trusted and not question.is_all:
            return True
        everything = self.client.search([b"ALL"], returning=b"COUNT")
        hits, by_status = await together(everything, self.client.count_messages(self.name))
        self.opened.exists = max(self.opened.exists, by_status)
        self.client.is_trusted = bool(hits.count)
        return self.client.is_trusted or not self.opened.exists

    async def _plainly(self, question: Question) -> Hits:
        """Search in the old way, because the new one contradicts itself."""
        self.client.is_deceitful = True
        self._note(
            "search_inconsistent",
            "the server's extended search contradicts its own count of messages; "
            "the plain search was used instead",
        )
        return await self.client.search(question.keys())

    async def _by_place(self, most: int) -> Hits:
        """List everything without a search."""
        self._note(
            "search_inconsistent",
            f"the server finds nothing in a mailbox of {self.opened.exists} messages; "
            "they were listed without its search",
        )
        if self.opened.exists > most:
            return Hits(self.opened.exists)
        uids: set[int] = set()
        await self.client.fetch_by_place(b"1:*", b"UID", lambda row: uids.add(row.uid))
        uids.discard(0)
        return Hits(len(uids), [(uid, uid) for uid in uids])

    async def _compared(self, question: Question, refusal: Refused) -> ImapFound:
        """Search with the ASCII that a text contains, and compare the headers here.

        QUIRK: Exchange refuses CHARSET UTF-8.
        """
        wide = question.in_ascii(MOST_COMPARED)
        if question.criteria.query is not None and wide.criteria.query is None:
            raise refusal
        hits = await self.client.search(wide.keys())
        candidates = hits.newest(MOST_COMPARED)
        self._note_widening(question, wide, hits)
        fitting = await self._fitting(question, candidates)
        total = len(fitting)
        uids = sorted(fitting, reverse=True)[: question.limit]
        return ImapFound(self.opened.uidvalidity, total, tuple(uids), tuple(self.notes))

    def _note_widening(self, question: Question, wide: Question, hits: Hits) -> None:
        if (hits.count or 0) > MOST_COMPARED:
            self._note(
                "search_incomplete",
                f"the server reads only ASCII; of {hits.count} messages that may match, the "
                f"newest {MOST_COMPARED} were compared. Narrow the search, by date for example",
            )
        if question.criteria.query != wide.criteria.query:
            self._note(
                "search_widened",
                f"the server reads only ASCII; it searched for {wide.criteria.query!r} instead of "
                "query, so that some of these messages may not match",
            )

    async def _fitting(self, question: Question, candidates: list[int]) -> list[int]:
        fitting: list[int] = []

        def compare(row: Row) -> None:
            header = row.header_fields()
            fields = split_header(header, 0, len(header), limits=_LIMITS).fields
            if row.uid and question.fits(fields):
                fitting.append(row.uid)

        items = b"UID BODY.PEEK[HEADER.FIELDS (FROM TO SUBJECT)]<0.%d>" % _HEADER_BYTES
        await self.client.fetch(candidates, items, compare, literal_bytes=2 * _HEADER_BYTES)
        return fitting

    def _note(self, code: str, message: str) -> None:
        self.notes.append(ImapNote(code, message))
