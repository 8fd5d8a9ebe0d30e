"""Connecting and logging in, a pool of connections, and IDLE on Inbox on one that stays open."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from postroom.model.account import AnyNetwork
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers import allowed_hosts
from postroom.providers.allowed_hosts import IMAP_PORTS, unreachable_message
from postroom.providers.imap.client import Client
from postroom.providers.imap.connection import Connection
from postroom.providers.imap.errors import (
    Disconnected,
    ImapFault,
    LoginRefused,
    NotSecure,
    Refused,
    TimedOut,
    Unreachable,
    printable,
    read_status,
)
from postroom.providers.imap.responses import MailboxStatus, read_row
from postroom.providers.imap.syntax import Frame


async def connect(account: ImapAccount, timeouts: ImapTimeouts) -> Client:
    """Connect, start TLS and log in.

    Raises:
        NotSecure: TLS failed or is not offered; no secret was sent.
        LoginRefused: the server refused the user or the secret.
        Unreachable: any other failure at a server that a key named.
        ImapFault: anything else.
    """
    try:
        return await _connect(account, timeouts)
    except ImapFault as fault:
        if isinstance(account.network_policy, AnyNetwork):
            raise
        if isinstance(fault, LoginRefused):
            raise LoginRefused(fault.command, fault.word, "", "") from None
        raise Unreachable(unreachable_message(account.host, account.port)) from None


async def _connect(account: ImapAccount, timeouts: ImapTimeouts) -> Client:
    client = Client(await _open(account, timeouts))
    try:
        await _greet(client, account, timeouts)
        if account.auth == "xoauth2":
            await client.login_with_token(account.user, account.secret)
        else:
            await client.login(account.user, account.secret)
        await client.send_id()
        await client.compress()
    except BaseException:
        client.connection.close("the login failed")
        raise
    return client


async def _open(account: ImapAccount, timeouts: ImapTimeouts) -> Connection:
    context = tls_context(account) if account.security == "tls" else None
    try:
        async with asyncio.timeout(timeouts.connect_s):
            target: dict[str, Any] = {"host": account.host, "port": account.port}
            if not isinstance(account.network_policy, AnyNetwork):
                checked = (account.network_policy, account.host, account.port, IMAP_PORTS)
                target = {"sock": await allowed_hosts.connect(*checked)}
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(socket_s=timeouts.socket_s),
                **target,
                ssl=context,
                server_hostname=account.host if context is not None else None,
            )
    except TimeoutError as error:
        raise TimedOut("the connection timed out") from error
    except ssl.SSLError as error:
        raise NotSecure(f"TLS failed: {printable(str(error))}") from error
    except UnicodeError as error:
        raise Disconnected("no connection: invalid host name") from error
    except OSError as error:
        reason = printable(error.strerror or str(error)) or "closed by the server"
        raise Disconnected(f"no connection: {reason}") from error
    is_loopback = ipaddress.ip_address(connection.peer_address).is_loopback
    if (not account.secure or account.is_unverified) and not is_loopback:
        connection.close("not on loopback")
        raise NotSecure("without verified TLS, only servers on this machine are allowed")
    return connection


async def _greet(client: Client, account: ImapAccount, timeouts: ImapTimeouts) -> None:
    try:
        async with asyncio.timeout(timeouts.greeting_s):
            greeting = await client.connection.greeting
    except TimeoutError as error:
        raise TimedOut("the greeting timed out") from error
    if greeting.word != "OK":
        # With PREAUTH, a man in the middle could avoid TLS and the login.
        if greeting.word == "PREAUTH":
            raise NotSecure("the server greets with PREAUTH")
        raise Refused("greeting", greeting.word, greeting.code, printable(greeting.text))
    if not client.read_capabilities(greeting):
        await client.request_capabilities()
    if account.security == "starttls":
        await client.start_tls(tls_context(account), account.host, timeouts.connect_s)


@lru_cache(maxsize=64)
def tls_context(account: ImapAccount) -> ssl.SSLContext:
    """TLS 1.2 or later, with the certificate and the host name verified. Raises NotSecure."""
    try:
        context = ssl.create_default_context(cafile=account.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise NotSecure(f"the CA file is invalid: {printable(str(error))}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if account.is_unverified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


MAX_CONNECTIONS = 4
MAX_IDLE_S = 240.0
"""How long an unused connection stays open; servers close it after 30 minutes."""

STALE_S = 20.0
FIRST_RESPONSE_S = 10.0
"""The timeout of the first response of a connection that was unused for STALE_S."""


class Pool:
    """The connections to one account."""

    def __init__(self, account: ImapAccount, timeouts: ImapTimeouts) -> None:
        self.account = account
        self._timeouts = timeouts
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._leased = 0
        self._idle: list[tuple[Client, float]] = []
        self._idle_timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def lease(self, *, fresh: bool = False, checked: bool = False) -> AsyncIterator[Client]:
        """Lease a connection; *checked* verifies by NOOP that it works. Raises ImapFault."""
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                await self._slots.acquire()
        except TimeoutError as error:
            raise TimedOut("all connections to this account are in use") from error
        self._leased += 1
        try:
            client = await self._client(fresh=fresh, checked=checked)
            client.leases += 1
            try:
                yield client
            finally:
                self._release(client)
        finally:
            self._leased -= 1
            self._slots.release()

    async def _client(self, *, fresh: bool, checked: bool) -> Client:
        while self._idle and not fresh:
            client, since = self._idle.pop()
            if client.connection.is_closed:
                continue
            is_stale = asyncio.get_running_loop().time() - since > STALE_S
            client.connection.first_response_s = FIRST_RESPONSE_S if is_stale else None
            if not checked:
                return client
            try:
                await client.noop(timeout_s=FIRST_RESPONSE_S)
                return client
            except ImapFault:
                client.connection.close("it stopped responding")
        # Close idle connections before the limit is exceeded; servers have limits, too.
        while self._idle and len(self._idle) + self._leased > MAX_CONNECTIONS:
            client, _ = self._idle.pop(0)
            client.connection.close("evicted")
        return await connect(self.account, self._timeouts)

    def _release(self, client: Client) -> None:
        """Return a connection to the pool, unless a command on it was abandoned."""
        if client.connection.is_closed:
            return
        if client.connection.is_busy:
            client.connection.close("a command was abandoned")
            return
        self._idle.append((client, asyncio.get_running_loop().time()))
        self._close_idle_later()

    def _close_idle_later(self) -> None:
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(MAX_IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_timer = None
        oldest = asyncio.get_running_loop().time() - MAX_IDLE_S
        for client, since in self._idle:
            if since <= oldest:
                client.connection.close("idle for too long")
        self._idle = [(c, since) for c, since in self._idle if not c.connection.is_closed]
        if self._idle:
            self._close_idle_later()

    async def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(client.logout() for client, _ in idle))


MAX_EVENTS = 1_000
"""If more messages changed, a full pass is cheaper."""

_MAX_ROUNDS = 5
_ARRIVAL = re.compile(rb"\* \d{1,10} EXISTS$", re.IGNORECASE)
_NO_CHANGE = re.compile(rb"\* (?:\d{1,10} RECENT$|FLAGS )", re.IGNORECASE)


@dataclass(slots=True)
class InboxEvents:
    """Changes of Inbox that the server reported: new mail, and messages with changed flags.

    If they are `is_incomplete`, something else changed too, and a full pass is needed.
    """

    uidvalidity: int = 0
    has_new: bool = False
    is_incomplete: bool = False
    uids: set[int] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether these are all changes."""
        return (self.has_new or bool(self.uids)) and not self.is_incomplete

    def take(self, frame: Frame) -> bool:
        """Add an untagged response; False if it reports no change. Raises InvalidResponse."""
        if read_status(frame.line[2:]) is not None or _NO_CHANGE.match(frame.line):
            return False
        row = read_row(frame)
        if row is not None:
            (self.uids if row.uid else self.sequences).add(row.uid or row.sequence)
        elif _ARRIVAL.match(frame.line):
            self.has_new = True
        else:
            self.is_incomplete = True
        if len(self.uids) + len(self.sequences) > MAX_EVENTS:
            self.is_incomplete = True
        return True


@dataclass(eq=False)
class IdleListener:
    """Waits for changes of Inbox; reconnects when its connection ends."""

    account: ImapAccount
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)
    has_idle: bool = True
    _events: InboxEvents = field(default_factory=InboxEvents)
    _client: Client | None = None
    _changed: asyncio.Future[None] = field(init=False)

    def take_events(self) -> InboxEvents:
        """The changes since the last call; those without a known UID come with the next."""
        events = self._events
        sequences = set() if events.is_incomplete else set(events.sequences)
        self._events = InboxEvents(events.uidvalidity, sequences=sequences)
        return events

    async def close(self) -> None:
        if self._client is not None:
            await self._client.logout()
        self._client = None

    async def wait_for_change(self, has_changed: Callable[[MailboxStatus], bool]) -> None:
        """Return when Inbox changed, or after IDLE_S, since other mailboxes are not watched.

        The mailbox stays open in between: opening a large one is expensive for a server. Raises
        ImapFault.
        """
        client = self._client
        is_new = client is None or client.connection.is_closed
        if client is None or is_new:
            client = self._client = await connect(self.account, self.timeouts)
            self.has_idle = client.can("IDLE")
        if not self.has_idle:
            return
        try:
            if is_new and await self._missed_changes(client, has_changed):
                await asyncio.sleep(0.05)
                return
            if not self._changed.done():
                await client.watch(self._changed, self._take)
            self._events.is_incomplete |= not self._changed.done()
            await self._resolve_sequences(client)
            self._changed = asyncio.get_running_loop().create_future()
        except BaseException:
            client.connection.close("the listener was stopped")
            raise

    async def _missed_changes(
        self, client: Client, has_changed: Callable[[MailboxStatus], bool]
    ) -> bool:
        """Whether Inbox changed while it was not watched."""
        status = await client.open(b"INBOX", condstore=True)
        client.connection.on_unsolicited = self._take
        self._changed = asyncio.get_running_loop().create_future()
        has_events = replace(self._events, uidvalidity=0) != InboxEvents()
        is_incomplete = has_changed(status) or has_events
        self._events = InboxEvents(status.uidvalidity, is_incomplete=is_incomplete)
        return is_incomplete

    def _take(self, frame: Frame) -> None:
        if self._events.take(frame) and not self._changed.done():
            self._changed.set_result(None)

    async def _resolve_sequences(self, client: Client) -> None:
        """Request the UIDs of messages that were reported by sequence number."""
        for _ in range(_MAX_ROUNDS):
            if not self._events.sequences or self._events.is_incomplete:
                return
            which = b",".join(b"%d" % number for number in sorted(self._events.sequences))
            self._events.sequences.clear()
            await client.connection.run("FETCH", which, b"(UID)", take=self._take)
        self._events.is_incomplete |= bool(self._events.sequences)
