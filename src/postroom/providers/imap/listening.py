"""A connection that listens: Inbox stays open on it, and the server tells what happens there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.client import Client
from postroom.providers.imap.connecting import connect
from postroom.providers.imap.framing import Frame
from postroom.providers.imap.mirroring import Position, open_at
from postroom.providers.imap.responses import read_row
from postroom.providers.imap.status import read_status

MOST_HEARD = 1_000
"""Where more messages changed at once, one look at all of them is cheaper."""

_MOST_ROUNDS = 5
_ARRIVAL = re.compile(rb"\* \d{1,10} EXISTS$", re.IGNORECASE)
_NOTHING = re.compile(rb"\* (?:\d{1,10} RECENT$|FLAGS )", re.IGNORECASE)


@dataclass(slots=True)
class Heard:
    """What was told of Inbox: that there is new mail, and which messages have other flags.

    Where it `is_vague`, something else happened, and one has to look at all of it.
    """

    uidvalidity: int = 0
    has_new: bool = False
    is_vague: bool = False
    uids: set[int] = field(default_factory=set)
    places: set[int] = field(default_factory=set)

    @property
    def is_something(self) -> bool:
        return self.has_new or self.is_vague or bool(self.uids) or bool(self.places)

    @property
    def is_enough(self) -> bool:
        """Whether it is known where to look."""
        return (self.has_new or bool(self.uids)) and not self.is_vague

    def take(self, frame: Frame) -> bool:
        """Note what a response tells; False if it is nothing. Raises Unreadable."""
        if read_status(frame.line[2:]) is not None or _NOTHING.match(frame.line):
            return False
        row = read_row(frame)
        if row is not None:
            (self.uids if row.uid else self.places).add(row.uid or row.sequence)
        elif _ARRIVAL.match(frame.line):
            self.has_new = True
        else:
            self.is_vague = True
        if len(self.uids) + len(self.places) > MOST_HEARD:
            self.is_vague = True
        return True


@dataclass(eq=False)
class Ear:
    """Listens to Inbox; made anew when its connection ends."""

    account: ImapAccount
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)
    has_idle: bool = True
    _heard: Heard = field(default_factory=Heard)
    _client: Client | None = None
    _rung: asyncio.Future[None] = field(init=False)

    def taken(self) -> Heard:
        """What was told since this was asked last; what has no UID yet comes with the next."""
        heard = self._heard
        places = set() if heard.is_vague else set(heard.places)
        self._heard = Heard(heard.uidvalidity, places=places)
        return heard

    async def close(self) -> None:
        if self._client is not None:
            await self._client.logout()
        self._client = None

    async def listen(self, has_moved_on: Callable[[Position], bool]) -> None:
        """Return when Inbox changed, or after a while: other mailboxes have no IDLE.

        The mailbox stays open in between: to open a large one costs a server more than to tell
        what changed in it. Raises ImapFault.
        """
        client = self._client
        is_new = client is None or client.connection.is_closed
        if client is None or is_new:
            client = self._client = await connect(self.account, self.timeouts)
            self.has_idle = client.can("IDLE")
        if not self.has_idle:
            return
        try:
            if is_new and await self._has_missed(client, has_moved_on):
                await asyncio.sleep(0.05)
            else:
                await self._idle(client)
        except BaseException:
            client.connection.close("nobody listens any more")
            raise

    async def _has_missed(self, client: Client, has_moved_on: Callable[[Position], bool]) -> bool:
        """Whether something has happened while nobody listened."""
        position = await open_at(client, b"INBOX")
        client.connection.unasked = self._take
        self._rung = asyncio.get_running_loop().create_future()
        is_vague = has_moved_on(position) or self._heard.is_something
        self._heard = Heard(position.uidvalidity, is_vague=is_vague)
        return is_vague

    def _take(self, frame: Frame) -> None:
        if self._heard.take(frame) and not self._rung.done():
            self._rung.set_result(None)

    async def _idle(self, client: Client) -> None:
        if not self._rung.done():
            await client.watch(self._rung, self._take)
        self._heard.is_vague |= not self._rung.done()
        await self._name_places(client)
        self._rung = asyncio.get_running_loop().create_future()

    async def _name_places(self, client: Client) -> None:
        """Find the UIDs of what was told by its place in the mailbox, while the places hold."""
        for _ in range(_MOST_ROUNDS):
            if not self._heard.places or self._heard.is_vague:
                return
            which = b",".join(b"%d" % place for place in sorted(self._heard.places))
            self._heard.places.clear()
            await client.connection.run("FETCH", which, b"(UID)", take=self._take)
        self._heard.is_vague |= bool(self._heard.places)
