"""The mailboxes of an account that is kept in step: a connection, and what is open on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.errors import Conflict, NotFound, ProviderError
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.client import Client
from postroom.providers.imap.connecting import connect
from postroom.providers.imap.faults import Refused
from postroom.providers.imap.mirroring import Position, enable_qresync, open_at, status_of
from postroom.providers.imap.roles import Box, boxes_of

MOST_UIDS = 1_000_000


def key_of(box: Box) -> str:
    """The name of a mailbox in scopes and checkpoints: its bytes, whatever they are."""
    return box.wire.decode("latin-1")


def scope_of(box: Box, uidvalidity: int) -> str:
    """What the UIDs of a mailbox hold within."""
    return f"{uidvalidity}/{key_of(box)}"


@dataclass(eq=False)
class Mailboxes:
    """One connection, made again when it ends; one of the mailboxes is open on it."""

    account: ImapAccount
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)
    all: list[Box] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    has_qresync: bool = False
    has_idle: bool = False
    _client: Client | None = None
    _open: tuple[bytes, bool] | None = None

    async def client(self) -> Client:
        if self._client is None or self._client.connection.is_closed:
            self._client = await connect(self.account, self.timeouts)
            self._open = None
            self.has_qresync = await enable_qresync(self._client)
            self.has_idle = self._client.can("IDLE")
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.logout()
        self._client = None

    async def learn(self) -> None:
        """Ask which mailboxes there are."""
        client = await self.client()
        self.all = boxes_of(await client.list())

    async def go(self, box: Box, *, writing: bool = False) -> Position:
        """Open a mailbox anew and see where it stands."""
        client = await self.client()
        self._open = None
        self.position = await open_at(client, box.wire, for_writing=writing)
        self._open = (box.wire, writing)
        return self.position

    async def read_from(self, box: Box, standing: Position | None = None) -> Position:
        """Open a mailbox to read what is new in it, unless it was opened to see where it stands.

        QUIRK: not every server tells UIDNEXT, though RFC 3501 §6.3.1 wants it; what comes after
        the newest message is as good.
        """
        is_open = self._open is not None and self._open[0] == box.wire
        position = standing if is_open and standing is self.position else await self.go(box)
        if not position.uidnext:
            newest = await self.between(scope_of(box, position.uidvalidity), 1, 2**32)
            position.uidnext = max(newest, default=0) + 1
        return position

    def named(self, name: str) -> Box:
        for box in self.all:
            if box.name.casefold() == name.casefold():
                return box
        raise NotFound(f"{self.account.account_id}: there is no mailbox {name}")

    async def at(self, scope: str, *, writing: bool = False) -> Client:
        """Have a scope open. Raises Conflict if the mailbox is not the one it was."""
        uidvalidity, _, name = scope.partition("/")
        wire = name.encode("latin-1")
        client = await self.client()
        if self._open is None or self._open[0] != wire or (writing and not self._open[1]):
            await self.go(Box(wire, name, "/"), writing=writing)
        if self.position.uidvalidity != int(uidvalidity):
            self._open = None
            raise Conflict(f"{self.account.account_id}: {name} is not what it was; it is read anew")
        return client

    async def refreshed(self, scope: str) -> Client:
        """Have a scope open as it is now; where it was open that costs a server next to nothing."""
        was_open = self._open is not None
        before = self.position
        client = await self.at(scope)
        if was_open and before is self.position:
            await client.noop(timeout_s=self.timeouts.socket_s)
        return client

    async def between(self, scope: str, low: int, high: int) -> list[int]:
        """The UIDs from *low* to below *high*, newest first.

        QUIRK: some servers answer a search with nothing although there is mail; to believe that
        would be to miss it, or to remove what is here. Without a search all of them are listed.
        """
        client = await self.at(scope)
        last = b"%d" % (high - 1) if high < 2**32 else b"*"
        uids = (await client.search([b"UID", b"%d:%s" % (low, last)])).newest(MOST_UIDS)
        if not uids and self.position.exists:
            found: set[int] = set()
            await client.fetch_by_place(b"1:*", b"UID", lambda row: found.add(row.uid))
            uids = sorted(found, reverse=True)
            if low == 1 and high == 2**32 and not uids:
                raise ProviderError(
                    f"{self.account.account_id}: the server counts {self.position.exists} "
                    "messages and lists none"
                )
        return [uid for uid in uids if uid and low <= uid < high]

    async def standing(self, boxes: list[Box]) -> list[tuple[Box, Position | None]]:
        """Where mailboxes stand, the first of them opened; None for one that is closed to us.

        The first is Inbox, in which most things happen: to open it costs a server no more than
        STATUS, and it is what comes next. One that opens empty is asked for again (test_liars).
        """
        client = await self.client()
        first = [(box, await self._opened(box)) for box in boxes[:1]]
        if any(position is None or not position.exists for _, position in first):
            await self._leave(client)
            first = [(box, await self._status(client, box)) for box in boxes[:1]]
        return [*first, *[(box, await self._status(client, box)) for box in boxes[1:]]]

    async def _opened(self, box: Box) -> Position | None:
        try:
            return await self.go(box)
        except Refused:
            return None

    async def _leave(self, client: Client) -> None:
        """QUIRK: STATUS of the open mailbox says how it was (RFC 3501 §6.3.10 warns of it)."""
        if self._open is not None and client.can("UNSELECT"):
            await client.connection.run("UNSELECT")
            self._open = None

    async def _status(self, client: Client, box: Box) -> Position | None:
        try:
            position = await status_of(client, box.wire)
            return position if position.uidvalidity else await self.go(box)
        except Refused:
            return None
