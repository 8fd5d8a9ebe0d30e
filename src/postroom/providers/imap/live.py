"""Live access to IMAP accounts: the ports `LiveImap` and `ImapSession`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from postroom.errors import Conflict, NotFound, ProviderError, TooLarge, untrusted
from postroom.mail.mime.decoding import clean, decode_unknown
from postroom.model.imap import (
    ImapAccount,
    ImapCopyOf,
    ImapCriteria,
    ImapDescription,
    ImapFound,
    ImapLocator,
    ImapMailbox,
    ImapPieces,
    ImapSection,
    ImapSummary,
    ImapTimeouts,
)
from postroom.ports.imap import ImapSession
from postroom.providers.imap.client import Client, gather_both
from postroom.providers.imap.errors import (
    Disconnected,
    InvalidResponse,
    PermanentError,
    Refused,
    TimedOut,
    imap_errors,
)
from postroom.providers.imap.pool import Pool
from postroom.providers.imap.responses import MailboxStatus, Row, read_structure
from postroom.providers.imap.search import Search, SearchRequest
from postroom.providers.imap.syntax import decode_name, is_flag, name_encodings

_USES = {
    use.lower(): use
    for use in (r"\All", r"\Archive", r"\Drafts", r"\Flagged", r"\Junk", r"\Sent", r"\Trash")
}


T = TypeVar("T")
PREVIEW_CHARS = 200
"""The maximum length of PREVIEW (RFC 8970)."""

HEADER_BYTES = 32 * 1024
_STRUCTURE_BYTES = 512 * 1024
"""File names that are not ASCII come as literals."""

_FIELDS_BYTES = 8_192
_FIELDS = (
    b"BODY.PEEK[HEADER.FIELDS (DATE FROM SUBJECT CONTENT-TYPE CONTENT-TRANSFER-ENCODING)]<0.%d>"
    % _FIELDS_BYTES
)
_TEXT_BYTES = 6_144
_TEXT = b"BODY.PEEK[TEXT]<0.%d>" % _TEXT_BYTES
_CHUNK_BYTES = 1024 * 1024
_NOT_SELECTABLE = frozenset((r"\noselect", r"\nonexistent"))


@dataclass(slots=True)
class Session:
    """A connection to one account for one task."""

    account: ImapAccount
    client: Client
    _open: tuple[str, int] | None = None
    _is_writable: bool = False
    _names: dict[str, bytes] = field(default_factory=dict)

    @property
    def capabilities(self) -> tuple[str, ...]:
        return self.client.capabilities

    async def mailboxes(self) -> list[ImapMailbox]:
        with imap_errors(self.account):
            listed = await self.client.list()
        found: dict[str, ImapMailbox] = {}
        for row in listed:
            if row.name and not row.attributes & _NOT_SELECTABLE:
                use = next((use for name, use in _USES.items() if name in row.attributes), None)
                name = clean(decode_name(row.name))
                name = "INBOX" if name.upper() == "INBOX" else name
                found.setdefault(name, ImapMailbox(name, row.delimiter, use))
        return sorted(
            found.values(),
            key=lambda mailbox: (
                mailbox.name != "INBOX",
                mailbox.special_use is None,
                mailbox.name,
            ),
        )

    # Searching.

    async def find(
        self,
        mailbox: str,
        criteria: ImapCriteria,
        *,
        limit: int,
        max_matches: int,
        uidvalidity: int | None = None,
        below: int | None = None,
    ) -> ImapFound:
        request = SearchRequest(criteria, limit, max_matches, below)

        async def search(name: bytes) -> ImapFound:
            def check(opened: MailboxStatus) -> None:
                self._note_open(mailbox, opened, expected=uidvalidity)

            return await Search(self.client, name, check).run(request)

        with imap_errors(self.account):
            return await self._with_name_encoding(mailbox, search)

    async def summaries(
        self,
        mailbox: str,
        uidvalidity: int,
        uids: Sequence[int],
        *,
        snippet_chars: int | None,
        into: dict[int, ImapSummary],
    ) -> None:
        by_preview = (
            snippet_chars is not None
            and snippet_chars <= PREVIEW_CHARS
            and self.client.can("PREVIEW")
            and self.client.has_previews
        )
        with imap_errors(self.account):
            await self._ensure_open(mailbox, uidvalidity)
            extra = b"" if snippet_chars is None else b"PREVIEW" if by_preview else _TEXT
            await self._summarise(uids, extra, into)
            bare = [uid for uid in uids if uid in into and into[uid].preview is None]
            if by_preview and bare:
                # QUIRK: Cyrus has previews only of mail that was delivered since they are enabled.
                self.client.has_previews = len(bare) < len(uids)
                await self._summarise(bare, _TEXT, into)

    async def _summarise(
        self, uids: Sequence[int], extra: bytes, into: dict[int, ImapSummary]
    ) -> None:
        found = {uid: Row(0, {}) for uid in uids}

        def take(part: Row) -> None:
            row = found.get(part.uid)
            if row is None:
                return
            # QUIRK: some servers answer one FETCH with several responses.
            row.items.update(part.items)
            header = row.header_fields
            if header is None or row.is_gone:
                return
            preview = row.items.get(b"PREVIEW")
            into[row.uid] = ImapSummary(
                row.uid,
                row.flags or (),
                row.arrived_at,
                header,
                preview=decode_unknown(preview) if isinstance(preview, bytes) else None,
                text=row.data(b"BODY[TEXT]") if row.has(b"BODY[TEXT]") else None,
            )

        items = b" ".join((b"UID FLAGS INTERNALDATE", _FIELDS, extra)).rstrip()
        await self.client.fetch(uids, items, take, literal_bytes=2 * (_FIELDS_BYTES + _TEXT_BYTES))

    # Reading.

    async def describe(self, at: ImapLocator) -> ImapDescription | None:
        with imap_errors(self.account):
            try:
                return await self._describe(at, b"BODYSTRUCTURE")
            except InvalidResponse:
                if self.client.connection.is_closed:
                    raise
                # QUIRK: some servers send an invalid BODYSTRUCTURE for a broken mail.
                return await self._describe(at, b"")

    async def _describe(self, at: ImapLocator, structure: bytes) -> ImapDescription | None:
        fetched = b"BODY.PEEK[HEADER]<0.%d>" % HEADER_BYTES
        items = b" ".join((b"UID FLAGS INTERNALDATE RFC822.SIZE", fetched, structure)).rstrip()
        row = await self._fetch_row(
            at, items, 2 * HEADER_BYTES + (_STRUCTURE_BYTES if structure else 0)
        )
        if row is None:
            return None
        header, structured = row.data(b"BODY[HEADER]"), None
        if row.has(b"BODYSTRUCTURE"):
            with suppress(InvalidResponse):
                structured = read_structure(row.items[b"BODYSTRUCTURE"])
        return ImapDescription(
            row.flags or (),
            row.arrived_at,
            row.number(b"RFC822.SIZE"),
            header,
            len(header) >= HEADER_BYTES,
            structured,
        )

    async def fetch_sections(
        self, at: ImapLocator, sections: Sequence[ImapSection], sized: Sequence[str] = ()
    ) -> ImapPieces:
        sized = sized if self.client.can("BINARY") else ()
        sizes = [b"BINARY.SIZE[%s]" % number.encode() for number in sized]
        ranges = (
            b"BODY.PEEK[%s]<%d.%d>" % (s.number.encode(), s.offset, s.size_bytes) for s in sections
        )
        items = b" ".join((b"UID", *ranges, *sizes))
        literal_bytes = 2 * sum(section.size_bytes for section in sections) + 1024
        with imap_errors(self.account):
            try:
                row = await self._fetch_row(at, items, literal_bytes)
            except Refused:
                if not sized:
                    raise
                return await self.fetch_sections(at, sections)
        if row is None:
            account_id = self.account.account_id
            raise untrusted(NotFound(f"{account_id}: the message is no longer in {at.mailbox}"))
        return ImapPieces(
            {
                s: row.data(b"BODY[%s]" % s.number.encode().upper())[: s.size_bytes]
                for s in sections
            },
            {n: row.number(b"BINARY.SIZE[%s]" % n.encode()) for n in sized},
        )

    async def source(self, at: ImapLocator, max_bytes: int) -> tuple[bytes, int] | None:
        items = b"UID RFC822.SIZE BODY.PEEK[]<0.%d>" % max_bytes
        with imap_errors(self.account):
            row = await self._fetch_row(at, items, 2 * max_bytes)
            if row is None:
                return None
            raw, size = row.data(b"BODY[]")[:max_bytes], row.number(b"RFC822.SIZE")
            if len(raw) < min(size, max_bytes):
                raw += await self._content(at, len(raw), max_bytes, size)
        # QUIRK: some servers estimate RFC822.SIZE; the length of a whole message is exact.
        return raw, max(size, len(raw)) if len(raw) == max_bytes else len(raw)

    async def fetch_message(self, at: ImapLocator, max_bytes: int) -> ImapCopyOf | None:
        with imap_errors(self.account):
            row = await self._fetch_row(at, b"UID FLAGS INTERNALDATE RFC822.SIZE", 0)
            if row is None:
                return None
            raw = await self._content(at, 0, max_bytes + 1, row.number(b"RFC822.SIZE"))
        if len(raw) > max_bytes:
            raise TooLarge(f"the message is over the limit of {max_bytes} bytes")
        flags = tuple(f for f in row.flags or () if is_flag(f) and f.lower() != r"\recent")
        return ImapCopyOf(raw, flags, row.arrived_at)

    async def _content(self, at: ImapLocator, start: int, end: int, size_bytes: int) -> bytes:
        """A range of a message. Raises InvalidResponse if it is empty and should not be.

        QUIRK: some servers return less than is requested, and some report a wrong size.
        """
        raw = bytearray()
        while (offset := start + len(raw)) < end:
            section = ImapSection("", min(_CHUNK_BYTES, end - offset), offset)
            chunk = (await self.fetch_sections(at, [section])).sections[section]
            raw += chunk
            is_short = len(chunk) < section.size_bytes
            if not chunk or (is_short and start + len(raw) >= size_bytes):
                break
        if size_bytes and not (start or raw):
            raise InvalidResponse(f"no content of a message of {size_bytes} bytes")
        return bytes(raw)

    async def _fetch_row(self, at: ImapLocator, items: bytes, literal_bytes: int) -> Row | None:
        """Fetch items of one message, and open its mailbox in the same round trip."""
        rows: list[Row] = []

        def take(row: Row) -> None:
            # Servers may report changed flags of other messages at any time.
            if row.uid == at.uid:
                rows.append(row)

        async def fetch(name: bytes) -> None:
            fetching = self.client.fetch([at.uid], items, take, literal_bytes=literal_bytes)
            if self._open == (at.mailbox, at.uidvalidity):
                await fetching
                return
            opened, _ = await gather_both(self.client.open(name), fetching)
            self._note_open(at.mailbox, opened, expected=at.uidvalidity)

        if at.uid == 0:
            await self._ensure_open(at.mailbox, at.uidvalidity)
            return None
        await self._with_name_encoding(at.mailbox, fetch)
        if not rows:
            return None
        # QUIRK: some servers answer one FETCH with several responses.
        merged = {name: value for row in rows for name, value in row.items.items()}
        whole = Row(rows[0].sequence, merged)
        return None if whole.is_gone else whole

    # Writing: UIDVALIDITY is verified before anything is changed.

    async def exists(self, at: ImapLocator, *, for_writing: bool = True) -> bool:
        with imap_errors(self.account):
            await self._ensure_open(at.mailbox, at.uidvalidity, for_writing=for_writing)
            return at.uid != 0 and await self._fetch_row(at, b"UID", 0) is not None

    async def change_flags(
        self, at: ImapLocator, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        with imap_errors(self.account):
            await self._ensure_open(at.mailbox, at.uidvalidity, for_writing=True)
            for change, flags in (("+", add), ("-", remove)):
                if flags:
                    await self.client.store(at.uid, change, flags)

    async def flags(self, at: ImapLocator) -> tuple[str, ...] | None:
        with imap_errors(self.account):
            row = await self._fetch_row(at, b"UID FLAGS", 0)
        return row.flags if row is not None else None

    async def copy(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        return await self._copy(at, mailbox, removes=False)

    async def move(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        return await self._copy(at, mailbox, removes=True)

    async def _copy(self, at: ImapLocator, mailbox: str, *, removes: bool) -> ImapLocator | None:
        with imap_errors(self.account):
            await self._ensure_open(at.mailbox, at.uidvalidity, for_writing=removes)
            place = await self._with_name_encoding(
                mailbox, lambda name: self.client.copy(at.uid, name, removes=removes)
            )
        return self._locator(mailbox, place)

    async def append(self, mailbox: str, message: ImapCopyOf) -> ImapLocator | None:
        with imap_errors(self.account):
            content = message.raw, message.flags, message.arrived_at
            place = await self._with_name_encoding(
                mailbox, lambda name: self.client.append(name, *content)
            )
        return self._locator(mailbox, place)

    async def expunge(self, at: ImapLocator) -> None:
        with imap_errors(self.account):
            await self._ensure_open(at.mailbox, at.uidvalidity, for_writing=True)
            await self.client.expunge(at.uid)

    def _locator(self, mailbox: str, place: tuple[int, int] | None) -> ImapLocator | None:
        return ImapLocator(self.account.account_id, mailbox, *place) if place else None

    # Opening.

    async def _ensure_open(
        self, mailbox: str, uidvalidity: int, *, for_writing: bool = False
    ) -> None:
        """Open a mailbox unless it is open, and check its UIDVALIDITY."""
        if self._open == (mailbox, uidvalidity) and (self._is_writable or not for_writing):
            return
        opened = await self._with_name_encoding(
            mailbox, lambda name: self.client.open(name, for_writing=for_writing)
        )
        self._note_open(mailbox, opened, expected=uidvalidity)
        self._is_writable = for_writing
        if for_writing and opened.is_read_only:
            raise PermanentError(f"{self.account.account_id}: {mailbox} is read-only")

    def _note_open(self, mailbox: str, opened: MailboxStatus, *, expected: int | None) -> None:
        self._open, self._is_writable = None, False
        if expected is not None and opened.uidvalidity != expected:
            changed = Conflict(
                f"UIDVALIDITY of {mailbox} is {opened.uidvalidity}, not {expected}; old ids may "
                "name other messages; search again",
                uidvalidity=opened.uidvalidity,
                expected=expected,
            )
            raise untrusted(changed)
        self._open = mailbox, opened.uidvalidity

    async def _with_name_encoding(self, mailbox: str, action: Callable[[bytes], Awaitable[T]]) -> T:
        """Run *action* with the encoding of a mailbox name that the server accepts."""
        if mailbox in self._names:
            return await action(self._names[mailbox])
        first: Refused | None = None
        for name in name_encodings(mailbox, is_utf8=self.client.has_utf8_names):
            try:
                result = await action(name)
            except Refused as refusal:
                first = first or refusal
                if refusal.word != "NO":
                    break
                continue
            self._names[mailbox] = name
            return result
        assert first is not None
        raise first


class ImapAccounts:
    """The configured accounts with their connection pools."""

    def __init__(
        self,
        accounts: Iterable[ImapAccount],
        timeouts: ImapTimeouts,
        *,
        is_write_enabled: bool = False,
    ) -> None:
        self.accounts = tuple(sorted(accounts, key=lambda account: account.account_id))
        self.is_write_enabled = is_write_enabled
        self._pools = {account.account_id: Pool(account, timeouts) for account in self.accounts}

    async def read(self, account_id: str, work: Callable[[ImapSession], Awaitable[T]]) -> T:
        session: Session | None = None
        try:
            async with self._lease(account_id) as session:
                return await work(session)
        except ProviderError as error:
            # Retry after a lost connection, or a timeout of one that was used before.
            was_used = session is not None and session.client.leases > 1
            is_timeout = was_used and isinstance(error.__cause__, TimedOut)
            if not is_timeout and not isinstance(error.__cause__, Disconnected):
                raise
        async with self._lease(account_id, fresh=True) as session:
            return await work(session)

    def session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        return self._lease(account_id, checked=True)

    def fresh_session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        return self._lease(account_id, fresh=True)

    @asynccontextmanager
    async def _lease(
        self, account_id: str, *, fresh: bool = False, checked: bool = False
    ) -> AsyncIterator[Session]:
        pool = self._pools[account_id]
        with imap_errors(pool.account):
            async with pool.lease(fresh=fresh, checked=checked) as client:
                yield Session(pool.account, client)

    async def close(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
