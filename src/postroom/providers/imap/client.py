"""An IMAP client: the commands of RFC 3501 and its extensions. It knows nothing of our model.

Concurrent commands are pipelined in order:
`await gather_both(client.open(name), client.search(keys))` is one round trip.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from postroom.providers.imap.connection import Connection, FrameHandler
from postroom.providers.imap.errors import (
    ImapFault,
    LoginRefused,
    NotSecure,
    Refused,
    Status,
    printable,
)
from postroom.providers.imap.responses import MailboxStatus, NewUid, Row, SearchResult, read_row
from postroom.providers.imap.syntax import (
    Frame,
    Literal,
    Piece,
    Value,
    append_time,
    flag_list,
    mailbox_name,
    parse_values,
    quoted,
    uid_sets,
)

RowHandler = Callable[[Row], None]
A = TypeVar("A")
B = TypeVar("B")
LOGOUT_S = 0.5
"""How long to wait for the response to LOGOUT, which is optional."""

IDLE_S = 240.0
"""The duration of an IDLE: a dead connection is noticed within five minutes."""

_REV2 = frozenset(("ENABLE", "ESEARCH", "IDLE", "LITERAL-", "MOVE", "UIDPLUS", "UNSELECT"))
_TEMPORARY = ("INUSE", "LIMIT", "SERVERBUG", "UNAVAILABLE")
"""The codes of a login that is refused although its password may be right (RFC 5530)."""

_MAX_LISTED = 10_000
_MAX_CAPABILITIES = 1_000


async def gather_both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Wait for both; an error of the first takes precedence."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other


@dataclass(frozen=True, slots=True)
class ListedMailbox:
    """A LIST response; attributes in lower case."""

    attributes: frozenset[str]
    delimiter: str | None
    name: bytes


@dataclass(slots=True)
class Client:
    """A connection and the capabilities of its server.

    `has_working_esearch` and `has_broken_esearch` are set once a result of ESEARCH was verified.
    `has_previews` is unset after the server had none.
    """

    connection: Connection
    capabilities: tuple[str, ...] = ()
    has_working_esearch: bool = False
    has_broken_esearch: bool = False
    has_previews: bool = True
    leases: int = 0
    _known: frozenset[str] = field(default=frozenset())

    def can(self, capability: str) -> bool:
        """Whether the server has an extension, which may be a part of IMAP4rev2 (RFC 9051)."""
        is_rev2 = "IMAP4REV2" in self._known
        return capability in self._known or (is_rev2 and capability in _REV2)

    @property
    def literals(self) -> str:
        """The non-synchronizing literals of the server: "+", "-" or none (RFC 7888)."""
        if self.can("LITERAL+"):
            return "+"
        return "-" if self.can("LITERAL-") else ""

    @property
    def can_count(self) -> bool:
        """Whether the server can count matches without listing them."""
        return self.can("ESEARCH") and not self.has_broken_esearch

    @property
    def has_utf8_names(self) -> bool:
        """Whether mailbox names are UTF-8: in IMAP4rev2 without IMAP4rev1."""
        return self.can("IMAP4REV2") and not self.can("IMAP4REV1")

    # Login and logout.

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout_s: float) -> None:
        """Start TLS and request the capabilities again. Raises NotSecure."""
        if not self.can("STARTTLS"):
            raise NotSecure("the server does not offer STARTTLS")
        await self.connection.run("STARTTLS", changes_stream=True)
        await self.connection.start_tls(context, host, timeout_s)
        await self.request_capabilities()

    async def login(self, user: str, password: str) -> None:
        """Log in with a password. Raises LoginRefused."""
        plain = user.isascii() and password.isascii()
        if plain and not self.can("LOGINDISABLED"):
            pieces = (quoted(user.encode()), quoted(password.encode()))
            await self._log_in(self.connection.run("LOGIN", *pieces))
        else:
            await self._authenticate("PLAIN", f"\0{user}\0{password}")

    async def login_with_token(self, user: str, token: str) -> None:
        """Log in with an access token by XOAUTH2. Raises LoginRefused."""
        await self._authenticate("XOAUTH2", f"user={user}\x01auth=Bearer {token}\x01\x01")

    async def _authenticate(self, mechanism: str, secret: str) -> None:
        replies = iter((b64encode(secret.encode()),))
        pieces = [mechanism.encode()]
        if self.can("SASL-IR"):
            pieces.append(next(replies))
        # A second challenge holds an error; the server refuses after an empty line.
        reply = self.connection.send_with_challenges(
            "AUTHENTICATE", *pieces, reply=lambda _: next(replies, b"")
        )
        await self._log_in(reply)

    async def _log_in(self, answer: Awaitable[Status]) -> None:
        try:
            status = await answer
        except Refused as refusal:
            if refusal.code in _TEMPORARY:
                raise
            raise LoginRefused("LOGIN", refusal.word, refusal.code, refusal.text) from None
        if not self.read_capabilities(status):
            await self.request_capabilities()

    async def send_id(self) -> None:
        """Send ID (RFC 2971). QUIRK: 163.com opens no mailbox without it."""
        if self.can("ID"):
            await self.connection.run("ID", b'("name" "Postroom")')

    async def compress(self) -> None:
        """Compress the connection from here on, if the server supports it."""
        if not self.can("COMPRESS=DEFLATE"):
            return
        try:
            await self.connection.run("COMPRESS", b"DEFLATE", changes_stream=True)
        except Refused:
            return
        self.connection.start_compression()

    async def request_capabilities(self) -> None:
        """Request the capabilities, which may change after the login."""
        found: list[bytes] = []

        def take(frame: Frame) -> None:
            words = frame.line.split(b" ", _MAX_CAPABILITIES)
            if words[1].upper() == b"CAPABILITY":
                found[:] = words[2:]

        await self.connection.run("CAPABILITY", take=take)
        self._set_capabilities(found)

    def read_capabilities(self, status: Status) -> bool:
        """Read the capabilities in a response code; False if it has none."""
        if status.code != "CAPABILITY":
            return False
        self._set_capabilities(status.data.split())
        return True

    def _set_capabilities(self, words: Iterable[bytes]) -> None:
        shown_words = (printable(word.decode("utf-8", "replace")) for word in words)
        self.capabilities = tuple(dict.fromkeys(word[:100] for word in shown_words if word))
        self._known = frozenset(word.upper() for word in self.capabilities)

    async def logout(self) -> None:
        """Log out and close, without insisting on a response."""
        if not self.connection.is_closed:
            with suppress(ImapFault):
                await self.connection.run("LOGOUT", timeout_s=LOGOUT_S)
        self.connection.close("logged out")

    async def noop(self, *, timeout_s: float) -> None:
        await self.connection.run("NOOP", timeout_s=timeout_s)

    # Mailboxes.

    async def open(
        self, name: bytes, *, for_writing: bool = False, condstore: bool = False
    ) -> MailboxStatus:
        """Open a mailbox; *condstore* requests its modification sequence (RFC 7162)."""
        mailbox_status = MailboxStatus()
        extras = [b"(CONDSTORE)"] if condstore and self.can("CONDSTORE") else []
        status = await self.connection.run(
            "SELECT" if for_writing else "EXAMINE",
            mailbox_name(name),
            *extras,
            take=mailbox_status.take,
            literals=self.literals,
        )
        mailbox_status.is_read_only = status.code == "READ-ONLY"
        return mailbox_status

    async def list(self) -> list[ListedMailbox]:
        """List the mailboxes, up to ten thousand."""
        found: list[ListedMailbox] = []

        def take(frame: Frame) -> None:
            if frame.line[2:7].upper() != b"LIST " or len(found) >= _MAX_LISTED:
                return
            attributes, delimiter, name = (*parse_values(frame, 7)[:3], None, None, None)[:3]
            words = attributes if isinstance(attributes, list) else []
            name = b"%d" % name if isinstance(name, int) else name
            found.append(
                ListedMailbox(
                    frozenset(_plain(word).lower() for word in words),
                    _plain(delimiter) or None,
                    name if isinstance(name, bytes) else b"",
                )
            )

        everything = b'"" "*"'
        if self.can("LIST-EXTENDED") and self.can("SPECIAL-USE"):
            # QUIRK: a proxy may announce extensions that its server does not have.
            with suppress(Refused):
                extras = b"RETURN (SPECIAL-USE)"
                await self.connection.run("LIST", everything, extras, take=take)
                return found
        await self.connection.run("LIST", everything, take=take)
        return found

    async def status(self, name: bytes, items: bytes) -> MailboxStatus:
        """The state of a mailbox, without opening it."""
        status = MailboxStatus()
        pieces = (mailbox_name(name), b"(" + items + b")")
        await self.connection.run("STATUS", *pieces, take=status.take, literals=self.literals)
        return status

    # Messages.

    async def search(
        self, keys: Sequence[Piece], *, returning: bytes | None = None
    ) -> SearchResult:
        """Search by UID; *returning* are the options of ESEARCH (RFC 4731)."""
        result = SearchResult()
        options = [b"RETURN (" + returning + b")"] if returning is not None else []
        await self.connection.run(
            "UID SEARCH", *options, *keys, take=result.take, literals=self.literals
        )
        return result

    async def fetch(
        self, uids: Sequence[int], items: bytes, take: RowHandler, *, literal_bytes: int = 0
    ) -> None:
        """Fetch items of messages; *take* gets each row."""
        for uid_set in uid_sets(uids):
            await self.fetch_set("UID FETCH", uid_set, items, take, literal_bytes)

    async def fetch_set(
        self, command: str, which: bytes, items: bytes, take: RowHandler, literal_bytes: int = 0
    ) -> None:
        """Fetch items of a set of messages, by UID or (with FETCH) by sequence number."""

        def take_frame(frame: Frame) -> None:
            row = read_row(frame)
            if row is not None:
                take(row)

        await self.connection.run(
            command, which, b"(" + items + b")", take=take_frame, literal_bytes=literal_bytes
        )

    async def store(self, uid: int, change: str, flags: Iterable[str]) -> None:
        """Change flags; *change* is `+` or `-`."""
        item = change.encode() + b"FLAGS.SILENT"
        await self.connection.run("UID STORE", b"%d" % uid, item, flag_list(flags))

    async def copy(self, uid: int, name: bytes, *, removes: bool = False) -> tuple[int, int] | None:
        """Copy a message, or move it if *removes* is set (RFC 6851).

        Returns its new UIDVALIDITY and UID, if the server reports them.
        """
        new = NewUid("COPYUID")
        command, pieces = "UID MOVE" if removes else "UID COPY", (b"%d" % uid, mailbox_name(name))
        new.read(await self.connection.run(command, *pieces, take=new.take, literals=self.literals))
        return new.place

    async def append(
        self, name: bytes, raw: bytes, flags: Iterable[str], moment: datetime | None
    ) -> tuple[int, int] | None:
        """Append a message to a mailbox; its UIDVALIDITY and UID, if the server reports them."""
        new = NewUid("APPENDUID")
        when = [append_time(moment)] if moment is not None else []
        pieces = (mailbox_name(name), flag_list(flags), *when, Literal(raw, is_synchronizing=True))
        new.read(await self.connection.run("APPEND", *pieces, literals=self.literals))
        return new.place

    async def expunge(self, uid: int) -> None:
        """Expunge one message that is flagged as deleted, and no other (RFC 4315)."""
        await self.connection.run("UID EXPUNGE", b"%d" % uid)

    async def watch(self, stop: asyncio.Future[None], take: FrameHandler) -> None:
        """Pass changes of the open mailbox to *take*, until *stop* or for IDLE_S."""
        await self.connection.idle(stop, take, longest_s=IDLE_S)


def _plain(value: Value) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else ""
