"""IDLE on Inbox, on a connection of its own that stays open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.client import Client
from postroom.providers.imap.errors import read_status
from postroom.providers.imap.pool import connect
from postroom.providers.imap.responses import Position, read_row
from postroom.providers.imap.syntax import Frame

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

    async def wait_for_change(self, has_changed: Callable[[Position], bool]) -> None:
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
        self, client: Client, has_changed: Callable[[Position], bool]
    ) -> bool:
        """Whether Inbox changed while it was not watched."""
        position = await client.open(b"INBOX", condstore=True)
        client.connection.on_unsolicited = self._take
        self._changed = asyncio.get_running_loop().create_future()
        has_events = replace(self._events, uidvalidity=0) != InboxEvents()
        is_incomplete = has_changed(position) or has_events
        self._events = InboxEvents(position.uidvalidity, is_incomplete=is_incomplete)
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
