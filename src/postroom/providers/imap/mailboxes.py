"""Mailboxes of an account, their special uses (RFC 6154), and the commands that sync needs."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from postroom.errors import Conflict, NotFound, ProviderError, untrusted
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.imap.client import Client, ListedMailbox
from postroom.providers.imap.errors import InvalidResponse, Refused
from postroom.providers.imap.pool import connect
from postroom.providers.imap.responses import MAX_RANGES, MailboxStatus, Row, read_row
from postroom.providers.imap.syntax import Frame, decode_name, has_controls
from postroom.providers.server_text import plain_name

log = logging.getLogger(__name__)

MAX_VANISHED = 1_000
_CANNOT_BE_NAMED = "its name has control characters, which no command can carry; rename it there"
_VANISHED = re.compile(rb"\* VANISHED (?:\(EARLIER\) )?([\d:,]+)$", re.IGNORECASE)


@dataclass(slots=True)
class Vanished:
    """Vanished UIDs as ranges, since there may be four billion of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def take(self, frame: Frame) -> bool:
        found = _VANISHED.match(frame.line)
        if found is None:
            return False
        self.ranges += _ranges(found[1])
        if len(self.ranges) > MAX_RANGES:
            raise InvalidResponse(f"more than {MAX_RANGES} ranges of messages that vanished")
        return True

    def uids(self) -> list[int] | None:
        """The vanished UIDs; None if there are many, as servers also report UIDs never used."""
        if sum(high - low + 1 for low, high in self.ranges) > MAX_VANISHED:
            return None
        return sorted({uid for low, high in self.ranges for uid in range(low, high + 1)})

    def among(self, uids: Iterable[int]) -> list[int]:
        """Those of some UIDs that vanished."""
        self.ranges.sort()
        starts = [low for low, _ in self.ranges]
        ends = list(accumulate((high for _, high in self.ranges), max))
        places = ((uid, bisect_right(starts, uid) - 1) for uid in uids)
        return [uid for uid, place in places if place >= 0 and uid <= ends[place]]


def _ranges(uids: bytes) -> Iterator[tuple[int, int]]:
    for part in uids.split(b","):
        low, _, high = part.partition(b":")
        if low.isdigit() and (high or low).isdigit() and len(low) <= 10 and len(high) <= 10:
            ends = sorted((int(low), int(high or low)))
            yield ends[0], ends[1]


_USES = {rf"\{name.lower()}": name for name in (SENT, DRAFTS, ARCHIVE, JUNK, TRASH)}
_COMMON_NAMES = {
    SENT: ("sent", "sent items", "sent messages", "sent mail"),
    DRAFTS: ("drafts",),
    ARCHIVE: ("archive", "archives"),
    JUNK: ("junk", "junk e-mail", "junk email", "spam", "bulk mail"),
    TRASH: ("trash", "deleted items", "deleted messages", "bin"),
}
_NAMES = {name: ours for ours, names in _COMMON_NAMES.items() for name in names}
"""Common names of these mailboxes, for servers without SPECIAL-USE (RFC 6154)."""

_VIRTUAL = frozenset((r"\all", r"\flagged", r"\important"))
_NOT_SELECTABLE = frozenset((r"\noselect", r"\nonexistent"))


@dataclass(frozen=True, slots=True)
class RemoteMailbox:
    """A mailbox with its name on the wire and our name."""

    wire: bytes
    name: str
    delimiter: str


def remote_mailboxes(listed: Iterable[ListedMailbox]) -> list[RemoteMailbox]:
    """The mailboxes with mail, Inbox first and Sent next; names are unique."""
    usable = (row for row in listed if not row.attributes & (_NOT_SELECTABLE | _VIRTUAL))
    # QUIRK: some servers list a mailbox twice, and some the root, which has no name.
    rows = [*{row.name: row for row in usable if row.name}.values()]
    taken: dict[str, RemoteMailbox] = {}
    for row in rows:
        use = next((ours for use, ours in _USES.items() if use in row.attributes), None)
        use = INBOX if row.name.upper() == b"INBOX" else use
        if use is not None and use not in taken:
            taken[use] = RemoteMailbox(row.name, use, row.delimiter or "/")
    wires = {mailbox.wire for mailbox in taken.values()}
    for row in rows:
        if row.name not in wires:
            name = _plain_name(row)
            standard = _NAMES.get(name.lower())
            name = standard if standard is not None and standard not in taken else name
            if name.casefold() in {other.casefold() for other in taken}:
                name = f"{name} ({row.name.decode('utf-8', 'replace')})"
            taken[name] = RemoteMailbox(row.name, name, row.delimiter or "/")
    return sorted(taken.values(), key=lambda mailbox: (_ORDER.get(mailbox.name, 2), mailbox.name))


_ORDER = {INBOX: 0, SENT: 1, JUNK: 3, TRASH: 4}


def _plain_name(row: ListedMailbox) -> str:
    """A name with slashes, without the INBOX prefix of some servers."""
    name = plain_name(decode_name(row.name))
    delimiter = row.delimiter or "/"
    head, found, tail = name.partition(delimiter)
    if found and head.upper() == "INBOX":
        name = tail
    return name.replace(delimiter, "/") if delimiter != "/" else name


MAX_UIDS = 1_000_000


def key_of(mailbox: RemoteMailbox) -> str:
    """The name of a mailbox in scopes and checkpoints: its bytes as Latin-1."""
    return mailbox.wire.decode("latin-1")


def scope_of(mailbox: RemoteMailbox, uidvalidity: int) -> str:
    """The scope in which the UIDs of a mailbox are valid."""
    return f"{uidvalidity}/{key_of(mailbox)}"


@dataclass(eq=False)
class ImapMailboxes:
    """A connection, renewed when it ends, on which one mailbox is open.

    `listed` are the names that the server listed last, of any kind of mailbox, in upper case.
    """

    account: ImapAccount
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)
    all: list[RemoteMailbox] = field(default_factory=list)
    listed: frozenset[bytes] = frozenset()
    open_status: MailboxStatus = field(default_factory=MailboxStatus)
    has_qresync: bool = False
    has_idle: bool = False
    _client: Client | None = None
    _open: tuple[bytes, bool] | None = None
    _skipped: set[bytes] = field(default_factory=set)

    async def client(self) -> Client:
        if self._client is None or self._client.connection.is_closed:
            client = self._client = await connect(self.account, self.timeouts)
            self._open, self.has_qresync, self.has_idle = None, False, client.can("IDLE")
            if client.can("QRESYNC") and client.can("ENABLE"):
                # QRESYNC reports vanished messages.
                with suppress(Refused):
                    await client.connection.run("ENABLE", b"QRESYNC")
                    self.has_qresync = True
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.logout()
        self._client = None

    async def load(self) -> None:
        """Request the list of mailboxes. Raises ProviderError if it is incomplete."""
        client = await self.client()
        listed = await client.list()
        self.listed = frozenset(row.name.upper() for row in listed)
        if b"INBOX" not in self.listed:
            raise ProviderError(f"{self.account.account_id}: the server does not list INBOX")
        unusable = {row.name for row in listed if has_controls(row.name)}
        for name in unusable - self._skipped:
            context = {"account": self.account.account_id, "mailbox": repr(name)}
            log.warning("imap.mailbox_skipped", extra={**context, "error": _CANNOT_BE_NAMED})
        self._skipped |= unusable
        self.all = remote_mailboxes(row for row in listed if row.name not in unusable)

    async def open(self, mailbox: RemoteMailbox, *, writing: bool = False) -> MailboxStatus:
        """Open a mailbox and return its status."""
        client = await self.client()
        self._open = None
        self.open_status = await client.open(mailbox.wire, for_writing=writing, condstore=True)
        self._open = (mailbox.wire, writing)
        return self.open_status

    async def open_for_read(
        self, mailbox: RemoteMailbox, known: MailboxStatus | None = None
    ) -> MailboxStatus:
        """Open a mailbox, unless *known* is the status of the open mailbox.

        QUIRK: some servers do not report UIDNEXT, which RFC 3501 §6.3.1 requires; then it is the
        UID after the newest message.
        """
        is_open = self._open is not None and self._open[0] == mailbox.wire
        status = known if is_open and known is self.open_status else await self.open(mailbox)
        if not status.uidnext:
            newest = await self.uids_between(scope_of(mailbox, status.uidvalidity), 1, 2**32)
            status.uidnext = max(newest, default=0) + 1
        return status

    async def is_gone(self, scope: str) -> bool:
        """Whether the mailbox of a scope is gone, and not only missing in the list."""
        wire = scope.partition("/")[2].encode("latin-1")
        # Some names are the same in other case, at least INBOX at the start.
        if wire.upper() in self.listed:
            return True
        client = await self.client()
        try:
            await client.status(wire, b"MESSAGES")
        except Refused:
            return True
        return False

    def get(self, name: str) -> RemoteMailbox:
        for mailbox in self.all:
            if mailbox.name.casefold() == name.casefold():
                return mailbox
        raise untrusted(NotFound(f"{self.account.account_id}: no mailbox {name}"))

    async def select(self, scope: str, *, writing: bool = False) -> Client:
        """Open the mailbox of a scope. Raises Conflict if its UIDVALIDITY changed."""
        uidvalidity, _, name = scope.partition("/")
        wire = name.encode("latin-1")
        client = await self.client()
        if self._open is None or self._open[0] != wire or (writing and not self._open[1]):
            await self.open(RemoteMailbox(wire, name, "/"), writing=writing)
        if self.open_status.uidvalidity != int(uidvalidity):
            self._open = None
            account_id = self.account.account_id
            message = f"{account_id}: UIDVALIDITY of {name} changed; it is read again"
            raise untrusted(Conflict(message))
        return client

    async def select_fresh(self, scope: str) -> Client:
        """Open the mailbox of a scope, or refresh it by NOOP, which is cheap, if it is open."""
        was_open = self._open is not None
        before = self.open_status
        client = await self.select(scope)
        if was_open and before is self.open_status:
            await client.noop(timeout_s=self.timeouts.socket_s)
        return client

    async def changed_since(
        self, client: Client, modseq: int, below: int, items: bytes
    ) -> tuple[list[Row], Vanished]:
        """The messages below a UID that changed since a modification sequence, or vanished."""
        rows, vanished = list[Row](), Vanished()

        def take(frame: Frame) -> None:
            if not vanished.take(frame) and (row := read_row(frame)) is not None:
                rows.append(row)

        modifier = b"(CHANGEDSINCE %d%s)" % (modseq, b" VANISHED" if self.has_qresync else b"")
        pieces = (b"1:%d" % max(below - 1, 1), b"(" + items + b")", modifier)
        await client.connection.run("UID FETCH", *pieces, take=take)
        return rows, vanished

    async def uids_between(self, scope: str, low: int, high: int) -> list[int]:
        """The UIDs from *low* to below *high*, newest first.

        QUIRK: some servers find nothing although there is mail. An empty result is verified by a
        list without a search, since mail would be missed or removed here.
        """
        client = await self.select(scope)
        last = b"%d" % (high - 1) if high < 2**32 else b"*"
        uids = (await client.search([b"UID", b"%d:%s" % (low, last)])).newest(MAX_UIDS)
        if not uids and self.open_status.exists:
            found: set[int] = set()
            await client.fetch_set("FETCH", b"1:*", b"UID", lambda row: found.add(row.uid))
            uids = sorted(found, reverse=True)
            if low == 1 and high == 2**32 and not uids:
                raise ProviderError(
                    f"{self.account.account_id}: the server counts {self.open_status.exists} "
                    "messages but lists none"
                )
        return [uid for uid in uids if uid and low <= uid < high]

    async def statuses(
        self, mailboxes: list[RemoteMailbox]
    ) -> list[tuple[RemoteMailbox, MailboxStatus | None]]:
        """The statuses of mailboxes; None for one that cannot be opened.

        The first, Inbox, is opened, since it is read next and STATUS costs as much. If it seems
        empty, it is verified by STATUS.
        """
        client = await self.client()
        modseq = b" HIGHESTMODSEQ" if client.can("CONDSTORE") else b""
        found: dict[RemoteMailbox, MailboxStatus | None] = dict.fromkeys(mailboxes)
        for mailbox in mailboxes[:1]:
            with suppress(Refused):
                found[mailbox] = await self.open(mailbox)
        for mailbox in mailboxes:
            if (known := found[mailbox]) is not None and known.exists:
                continue
            if mailbox is mailboxes[0] and self._open is not None and client.can("UNSELECT"):
                # QUIRK: STATUS of the open mailbox may be outdated (RFC 3501 §6.3.10).
                await client.connection.run("UNSELECT")
                self._open = None
            found[mailbox] = None
            with suppress(Refused):
                status = await client.status(mailbox.wire, b"MESSAGES UIDNEXT UIDVALIDITY" + modseq)
                found[mailbox] = status if status.uidvalidity else await self.open(mailbox)
        return list(found.items())
