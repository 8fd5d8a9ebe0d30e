"""SEARCH, on servers that differ in what they support."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.mail.mime.parts import Fields, split_header
from postroom.mail.text.fold import fold
from postroom.model.imap import ImapCriteria, ImapFound, ImapNote
from postroom.model.limits import Limits
from postroom.providers.imap.client import Client, gather_both
from postroom.providers.imap.errors import Refused
from postroom.providers.imap.responses import MailboxStatus, Row, SearchResult
from postroom.providers.imap.syntax import Piece, search_date, search_text

_ASCII_RUN = re.compile(r"[\x20-\x7e]+")
_TEXTS = {b"TEXT": "query", b"FROM": "from_", b"TO": "to", b"SUBJECT": "subject"}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search for the newest *limit* matches; *below* excludes those of earlier pages."""

    criteria: ImapCriteria
    limit: int
    max_total: int
    below: int | None = None

    @property
    def matches_all(self) -> bool:
        return self.criteria == ImapCriteria() and self.below is None

    @property
    def is_ascii(self) -> bool:
        return all(text.isascii() for text in self._texts().values())

    def keys(self) -> list[Piece]:
        """The search keys, with a charset only if they are not ASCII.

        QUIRK: some servers refuse every CHARSET, although RFC 3501 requires US-ASCII.
        """
        keys = self._other_keys()
        for key, text in self._texts().items():
            keys += [key, search_text(text)]
        charset: list[Piece] = [] if self.is_ascii else [b"CHARSET UTF-8"]
        return [*charset, *(keys or [b"ALL"])]

    def _texts(self) -> dict[bytes, str]:
        pairs = ((key, getattr(self.criteria, name)) for key, name in _TEXTS.items())
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

    def in_ascii(self, limit: int) -> SearchRequest:
        """A wider search without a charset: the longest ASCII run of each text."""
        texts: dict[str, Any] = {
            n: _longest_ascii_run(getattr(self.criteria, n)) for n in _TEXTS.values()
        }
        return replace(self, criteria=replace(self.criteria, **texts), limit=limit)

    def matches(self, fields: Fields) -> bool:
        """Whether the header of a message matches the header criteria."""
        texts = ((key.decode().lower(), text) for key, text in self._texts().items())
        return all(fold(text) in fold(fields.decoded(k)) for k, text in texts if k != "text")


def _longest_ascii_run(text: str | None) -> str | None:
    runs = (run.strip() for run in _ASCII_RUN.findall(text or ""))
    return max(runs, key=len, default="") or None


MAX_COMPARED = 2_000
"""How many messages are compared here if the server cannot search the text."""

_HEADER_BYTES = 8_192
_LIMITS = Limits()


@dataclass(slots=True)
class Search:
    """A search in one mailbox, with notes on unexpected behaviour of the server.

    `name` is the mailbox as the server spells it; `check` refuses an unexpected UIDVALIDITY.
    """

    client: Client
    name: bytes
    check: Callable[[MailboxStatus], None]
    notes: list[ImapNote] = field(default_factory=list)
    opened: MailboxStatus = field(default_factory=MailboxStatus)

    async def run(self, request: SearchRequest) -> ImapFound:
        """Open the mailbox and search it, in one round trip."""
        returning = None
        if self.client.can_count:
            # Count the matches, and save them for the next search (RFC 5182).
            returning = b"SAVE COUNT" if self.client.can("SEARCHRES") else b"COUNT"
        keys = request.keys()
        opened, result = await asyncio.gather(
            self.client.open(self.name),
            self.client.search(keys, returning=returning),
            return_exceptions=True,
        )
        if isinstance(opened, BaseException):
            raise opened
        self.check(opened)
        self.opened = opened
        if isinstance(result, Refused) and not request.is_ascii:
            return await self._filter_headers(request, result)
        if isinstance(result, BaseException):
            raise result
        return await self._result_of(request, result)

    async def _result_of(self, request: SearchRequest, result: SearchResult) -> ImapFound:
        if self.client.can_count and result.is_extended:
            result = await self._list_page(request, result)
        if not result.count and request.matches_all and self.opened.exists:
            result = await self._list_by_sequence(request.max_total)
        total = result.count or 0
        uids = result.newest(request.limit) if total <= request.max_total else []
        return ImapFound(self.opened.uidvalidity, total, tuple(uids), tuple(self.notes))

    async def _list_page(self, request: SearchRequest, counted: SearchResult) -> SearchResult:
        """Request the UIDs of a page after the count."""
        total = counted.count or 0
        if total > request.max_total:
            return counted
        if total == 0:
            return counted if await self._is_empty(request) else await self._plain_search(request)
        self.client.has_working_esearch = True
        keys = [b"$"] if self.client.can("SEARCHRES") else request.keys()
        page = b"ALL"
        if self.client.can("CONTEXT=SEARCH"):
            # Only the end of the list (RFC 5267).
            page = b"PARTIAL %d:%d" % (max(1, total - request.limit + 1), total)
        listed = await self.client.search(keys, returning=page)
        if not listed.newest(1):
            return await self._plain_search(request)
        listed.count = total
        return listed

    async def _is_empty(self, request: SearchRequest) -> bool:
        """Whether an empty result is right.

        QUIRK: on some servers ESEARCH never finds anything. Until it has found something once, its
        count of all messages is compared with that of STATUS.
        """
        if self.client.has_working_esearch and not request.matches_all:
            return True
        everything = self.client.search([b"ALL"], returning=b"COUNT")
        result, status = await gather_both(everything, self.client.status(self.name, b"MESSAGES"))
        self.opened.exists = max(self.opened.exists, status.exists)
        self.client.has_working_esearch = bool(result.count)
        return self.client.has_working_esearch or not self.opened.exists

    async def _plain_search(self, request: SearchRequest) -> SearchResult:
        """Search without ESEARCH, whose results are inconsistent."""
        self.client.has_broken_esearch = True
        self._note(
            "search_inconsistent",
            "the server's extended search contradicts its own count of messages; "
            "the plain search was used instead",
        )
        return await self.client.search(request.keys())

    async def _list_by_sequence(self, max_total: int) -> SearchResult:
        """List all messages without a search."""
        self._note(
            "search_inconsistent",
            f"the server finds nothing in a mailbox of {self.opened.exists} messages; "
            "they were listed without its search",
        )
        if self.opened.exists > max_total:
            return SearchResult(self.opened.exists)
        uids: set[int] = set()
        await self.client.fetch_set("FETCH", b"1:*", b"UID", lambda row: uids.add(row.uid))
        uids.discard(0)
        return SearchResult(len(uids), [(uid, uid) for uid in uids])

    async def _filter_headers(self, request: SearchRequest, refusal: Refused) -> ImapFound:
        """Search for the ASCII runs of the texts, and compare the headers here.

        QUIRK: Exchange refuses CHARSET UTF-8.
        """
        wide = request.in_ascii(MAX_COMPARED)
        if request.criteria.query is not None and wide.criteria.query is None:
            raise refusal
        result = await self.client.search(wide.keys())
        if (result.count or 0) > MAX_COMPARED:
            self._note(
                "search_incomplete",
                f"the server supports only ASCII; of {result.count} messages that may match, the "
                f"newest {MAX_COMPARED} were compared. Narrow the search, by date for example",
            )
        if request.criteria.query != wide.criteria.query:
            self._note(
                "search_widened",
                f"the server supports only ASCII; it searched for {wide.criteria.query!r} "
                "instead of "
                "query, so that some of these messages may not match",
            )
        found = await self._filter_candidates(request, result.newest(MAX_COMPARED))
        matching = sorted(found, reverse=True)
        uids = tuple(matching[: request.limit])
        return ImapFound(self.opened.uidvalidity, len(matching), uids, tuple(self.notes))

    async def _filter_candidates(self, request: SearchRequest, candidates: list[int]) -> list[int]:
        matching: list[int] = []

        def compare(row: Row) -> None:
            header = row.header_fields or b""
            fields = split_header(header, 0, len(header), limits=_LIMITS).fields
            if row.uid and request.matches(fields):
                matching.append(row.uid)

        items = b"UID BODY.PEEK[HEADER.FIELDS (FROM TO SUBJECT)]<0.%d>" % _HEADER_BYTES
        await self.client.fetch(candidates, items, compare, literal_bytes=2 * _HEADER_BYTES)
        return matching

    def _note(self, code: str, message: str) -> None:
        self.notes.append(ImapNote(code, message))
