"""An IMAP client: the commands of RFC 3501 and its extensions. It knows nothing of us.

Commands may be started together; they go out in that order without waiting for each other:
`await together(client.examine(name), client.search(keys))` is one round trip.
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

from postroom.providers.imap.arguments import (
    Bytes,
    Piece,
    append_time,
    flag_list,
    mailbox,
    quoted,
    uid_sets,
)
from postroom.providers.imap.connection import Connection, Take
from postroom.providers.imap.faults import ImapFault, LoginRefused, NotSecure, Refused
from postroom.providers.imap.framing import Frame
from postroom.providers.imap.responses import Hits, NewPlace, Opened, Row, read_row
from postroom.providers.imap.status import Status, shown
from postroom.providers.imap.values import Value, parse_values

A = TypeVar("A")
B = TypeVar("B")
LOGOUT_S = 0.5
"""A good-bye is only polite; who stops us does not want to wait for it."""

IDLE_S = 240.0
"""How long one IDLE lasts: a dead link is noticed within five minutes (RFC 2177 asks for 29)."""

_MOST_LISTED = 10_000
_MOST_CAPABILITIES = 1_000


async def together(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Wait for both; what the first raises counts more than what the second raises."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other


@dataclass(frozen=True, slots=True)
class Listed:
    """A mailbox as LIST shows it; attributes in lower case."""

    attributes: frozenset[str]
    delimiter: str | None
    name: bytes


@dataclass(slots=True)
class Client:
    """A connection with what the server at its other end can do.

    `is_trusted` is set when its ESEARCH has proved to be good, `is_deceitful` when it has not;
    `has_previews` is unset when it had none to show.
    """

    connection: Connection
    capabilities: tuple[str, ...] = ()
    is_trusted: bool = False
    is_deceitful: bool = False
    has_previews: bool = True
    leases: int = 0
    _known: frozenset[str] = field(default=frozenset())

    def can(self, capability: str) -> bool:
        return capability in self._known

    @property
    def literals(self) -> str:
        """Which of our literals the server takes without being asked."""
        if self.can("LITERAL+"):
            return "+"
        return "-" if self.can("LITERAL-") or self.can("IMAP4REV2") else ""

    @property
    def counts(self) -> bool:
        """Whether the server counts what it finds without listing it."""
        return (self.can("ESEARCH") or self.can("IMAP4REV2")) and not self.is_deceitful

    @property
    def has_utf8_names(self) -> bool:
        """A server of IMAP4rev2 alone has no modified UTF-7."""
        return self.can("IMAP4REV2") and not self.can("IMAP4REV1")

    # Getting in and out.

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout_s: float) -> None:
        """Make a plain connection secure and forget what was said before. Raises NotSecure."""
        if not self.can("STARTTLS"):
            raise NotSecure("the server does not offer STARTTLS")
        await self.connection.run("STARTTLS", switches=True)
        await self.connection.start_tls(context, host, timeout_s)
        await self.ask_capabilities()

    async def login(self, user: str, password: str) -> None:
        """Log in with a password. Raises LoginRefused."""
        plain = user.isascii() and password.isascii()
        if plain and not self.can("LOGINDISABLED"):
            pieces = (quoted(user.encode()), quoted(password.encode()))
            await self._enter(self.connection.run("LOGIN", *pieces))
        else:
            await self._authenticate("PLAIN", f"\0{user}\0{password}")

    async def login_with_token(self, user: str, token: str) -> None:
        """Log in with an access token, as XOAUTH2. Raises LoginRefused."""
        await self._authenticate("XOAUTH2", f"user={user}\x01auth=Bearer {token}\x01\x01")

    async def _authenticate(self, mechanism: str, secret: str) -> None:
        initial = b64encode(secret.encode())
        replies = iter((initial,))
        pieces = [mechanism.encode()]
        if self.can("SASL-IR"):
            pieces.append(next(replies))
        # A second challenge tells why we are refused; an empty line gets the refusal itself.
        conversation = self.connection.converse(
            "AUTHENTICATE", *pieces, reply=lambda _: next(replies, b"")
        )
        await self._enter(conversation)

    async def _enter(self, answer: Awaitable[Status]) -> None:
        try:
            status = await answer
        except Refused as refusal:
            raise LoginRefused("LOGIN", refusal.word, refusal.code, refusal.text) from None
        if status.code == "CAPABILITY":
            self._learn(status.data.split())
        else:
            await self.ask_capabilities()

    async def introduce(self) -> None:
        """Say who we are (RFC 2971). QUIRK: 163.com opens no mailbox for those who do not."""
        if self.can("ID"):
            await self.connection.run("ID", b'("name" "Postroom")')

    async def compress(self) -> None:
        """Pack what is sent from here on, if the server can."""
        if not self.can("COMPRESS=DEFLATE"):
            return
        try:
            await self.connection.run("COMPRESS", b"DEFLATE", switches=True)
        except Refused:
            return
        self.connection.start_compression()

    async def ask_capabilities(self) -> None:
        """Find out what the server can do now; it may be more after the login."""
        found: list[bytes] = []

        def take(frame: Frame) -> None:
            words = frame.line.split(b" ", _MOST_CAPABILITIES)
            if words[1].upper() == b"CAPABILITY":
                found[:] = words[2:]

        await self.connection.run("CAPABILITY", take=take)
        self._learn(found)

    def learn_from(self, status: Status) -> bool:
        """Take capabilities that came with another answer; False if there were none."""
        if status.code != "CAPABILITY":
            return False
        self._learn(status.data.split())
        return True

    def _learn(self, words: Iterable[bytes]) -> None:
        shown_words = (shown(word.decode("utf-8", "replace")) for word in words)
        self.capabilities = tuple(dict.fromkeys(word[:100] for word in shown_words if word))
        self._known = frozenset(word.upper() for word in self.capabilities)

    async def logout(self) -> None:
        """Say good-bye, but do not insist on an answer."""
        if not self.connection.is_closed:
            with suppress(ImapFault):
                await self.connection.run("LOGOUT", timeout_s=LOGOUT_S)
        self.connection.close("logged out")

    async def noop(self, *, timeout_s: float) -> None:
        await self.connection.run("NOOP", timeout_s=timeout_s)

    # Mailboxes.

    async def examine(self, name: bytes) -> Opened:
        """Open a mailbox for reading."""
        return await self._open("EXAMINE", name)

    async def select(self, name: bytes) -> Opened:
        """Open a mailbox for changes."""
        return await self._open("SELECT", name)

    async def _open(self, command: str, name: bytes) -> Opened:
        opened = Opened()
        status = await self.connection.run(
            command, mailbox(name), take=opened.take, literals=self.literals
        )
        opened.is_read_only = status.code == "READ-ONLY"
        return opened

    async def list(self) -> list[Listed]:
        """Every mailbox, up to ten thousand."""
        found: list[Listed] = []

        def take(frame: Frame) -> None:
            if frame.line[2:7].upper() == b"LIST " and len(found) < _MOST_LISTED:
                found.append(_listed(parse_values(frame, 7)))

        extras = [b"RETURN (SPECIAL-USE)"] if self._lists_special_use() else []
        await self.connection.run("LIST", b'"" "*"', *extras, take=take)
        return found

    def _lists_special_use(self) -> bool:
        return self.can("LIST-EXTENDED") and self.can("SPECIAL-USE")

    async def count_messages(self, name: bytes) -> int:
        """How many messages a mailbox has, by STATUS."""
        counts: list[int] = []

        def take(frame: Frame) -> None:
            if frame.line[2:9].upper() == b"STATUS ":
                values = parse_values(frame, 9)
                pairs = values[-1] if values and isinstance(values[-1], list) else []
                counts.extend(item for item in pairs if isinstance(item, int))

        pieces = (mailbox(name), b"(MESSAGES)")
        await self.connection.run("STATUS", *pieces, take=take, literals=self.literals)
        return counts[0] if counts else 0

    # Messages.

    async def search(self, keys: Sequence[Piece], *, returning: bytes | None = None) -> Hits:
        """Search by UID; *returning* are the options of ESEARCH (RFC 4731)."""
        hits = Hits()
        options = [b"RETURN (" + returning + b")"] if returning is not None else []
        await self.connection.run(
            "UID SEARCH", *options, *keys, take=hits.take, literals=self.literals
        )
        return hits

    async def fetch(
        self,
        uids: Sequence[int],
        items: bytes,
        take: Callable[[Row], None],
        *,
        literal_bytes: int = 0,
    ) -> None:
        """Fetch items of messages; *take* gets each row when it is whole."""
        for uid_set in uid_sets(uids):
            await self._fetch("UID FETCH", uid_set, items, take, literal_bytes)

    async def fetch_from(self, uid: int, items: bytes, take: Callable[[Row], None]) -> None:
        """Fetch items of the messages from a UID on, or of the last one if there are none."""
        await self._fetch("UID FETCH", b"%d:*" % uid, items, take, 0)

    async def fetch_by_place(
        self, places: bytes, items: bytes, take: Callable[[Row], None]
    ) -> None:
        """Fetch items of messages by their sequence numbers."""
        await self._fetch("FETCH", places, items, take, 0)

    async def _fetch(
        self,
        command: str,
        which: bytes,
        items: bytes,
        take: Callable[[Row], None],
        literal_bytes: int,
    ) -> None:
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

    async def copy(self, uid: int, name: bytes) -> tuple[int, int] | None:
        """Copy a message; UIDVALIDITY and UID of the copy, if the server tells."""
        return await self._put("UID COPY", uid, name)

    async def move(self, uid: int, name: bytes) -> tuple[int, int] | None:
        """Move a message (RFC 6851); UIDVALIDITY and UID of the new one, if the server tells."""
        return await self._put("UID MOVE", uid, name)

    async def _put(self, command: str, uid: int, name: bytes) -> tuple[int, int] | None:
        new = NewPlace("COPYUID")
        status = await self.connection.run(
            command, b"%d" % uid, mailbox(name), take=new.take, literals=self.literals
        )
        new.read(status)
        return new.place

    async def append(
        self, name: bytes, raw: bytes, flags: Iterable[str], moment: datetime | None
    ) -> tuple[int, int] | None:
        """Put a message into a mailbox; UIDVALIDITY and UID of it, if the server tells."""
        new = NewPlace("APPENDUID")
        when = [append_time(moment)] if moment is not None else []
        pieces = (mailbox(name), flag_list(flags), *when, Bytes(raw, asks_first=True))
        new.read(await self.connection.run("APPEND", *pieces, literals=self.literals))
        return new.place

    async def expunge(self, uid: int) -> None:
        """Remove one message that is flagged as deleted (RFC 4315), and no other."""
        await self.connection.run("UID EXPUNGE", b"%d" % uid)

    async def watch(self, stop: asyncio.Future[None], take: Take) -> None:
        """Have *take* get what happens in the open mailbox, until *stop* or the end of IDLE_S."""
        await self.connection.idle(stop, take, longest_s=IDLE_S)


def _listed(values: list[Value]) -> Listed:
    attributes, delimiter, name = (*values[:3], None, None, None)[:3]
    words = attributes if isinstance(attributes, list) else []
    return Listed(
        frozenset(_plain(word).lower() for word in words),
        _plain(delimiter) or None,
        name if isinstance(name, bytes) else b"%d" % name if isinstance(name, int) else b"",
    )


def _plain(value: Value) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else ""
