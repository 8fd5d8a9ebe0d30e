"""An IMAP account that is kept in step: the port `Provider`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from postroom.errors import Conflict, NotFound, ProviderError
from postroom.model.account import Capabilities, RateLimits
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.model.inbox import DRAFTS, INBOX, SENT
from postroom.model.remote import (
    Checkpoint,
    Push,
    Pushed,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
)
from postroom.ports.provider import Known
from postroom.providers.imap.client import Client
from postroom.providers.imap.connecting import connect
from postroom.providers.imap.errors import imap_errors
from postroom.providers.imap.mirroring import (
    Position,
    create,
    enable_qresync,
    fetch_changed,
    find_message_id,
    open_at,
    status_of,
)
from postroom.providers.imap.names import spellings
from postroom.providers.imap.responses import Row
from postroom.providers.imap.roles import Box, boxes_of
from postroom.providers.keywords import SYSTEM, flags_in, keyword_of, labels_in

LISTED_AT_ONCE = 500
POLL_S = 30.0
_MOST_UIDS = 1_000_000
_ITEMS = b"UID FLAGS INTERNALDATE RFC822.SIZE"
_RATES = RateLimits(requests_per_second=50, burst=100)


_Listed = tuple[tuple[RemoteMessage, ...], int]
"""Messages, and the UID below which none was listed yet."""


def scope_of(box: Box, uidvalidity: int) -> str:
    """What the UIDs of a mailbox hold within."""
    return f"{uidvalidity}/{_key(box)}"


@dataclass(eq=False)
class ImapProvider:
    """One account over IMAP: a connection to work on, and another one to listen on."""

    account: ImapAccount
    address: str
    can_send: bool
    message_bytes: int
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)
    _client: Client | None = None
    _listener: Client | None = None
    _open: tuple[bytes, bool] | None = None
    _position: Position = field(default_factory=Position)
    _boxes: list[Box] = field(default_factory=list)
    _takes_keywords: bool = False
    _has_qresync: bool = False
    _flags: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    _inbox_seen: tuple[int, int, int] | None = None

    @property
    def capabilities(self) -> Capabilities:
        client = self._client
        return Capabilities(
            provider="imap",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=25,
            rate_limits=_RATES,
            has_labels=self._takes_keywords,
            has_push=client is not None and client.can("IDLE"),
            can_send=self.can_send,
            can_create_alias=False,
        )

    async def check(self) -> None:
        with imap_errors(self.account):
            client = await self._connected()
            self._boxes = boxes_of(await client.list())
            self._takes_keywords = (await self._go(self._named(INBOX), writing=True)).takes_keywords

    async def identities(self) -> list[RemoteIdentity]:
        return [RemoteIdentity(self.address)]

    async def close(self) -> None:
        for client in (self._client, self._listener):
            if client is not None:
                await client.logout()
        self._client = self._listener = None

    async def _connected(self) -> Client:
        if self._client is None or self._client.connection.is_closed:
            self._client = await connect(self.account, self.timeouts)
            self._open = None
            self._has_qresync = await enable_qresync(self._client)
        return self._client

    async def _go(self, box: Box, *, writing: bool = False) -> Position:
        """Open a mailbox anew and see where it stands."""
        client = await self._connected()
        self._open = None
        self._position = await open_at(client, box.wire, for_writing=writing)
        self._open = (box.wire, writing)
        return self._position

    async def _read_from(self, box: Box) -> Position:
        """Open a mailbox to read what is new in it.

        QUIRK: not every server tells UIDNEXT, though RFC 3501 §6.3.1 wants it; what comes after
        the newest message is as good.
        """
        position = await self._go(box)
        if not position.uidnext:
            newest = await self._between(scope_of(box, position.uidvalidity), 1, 2**32)
            position.uidnext = max(newest, default=0) + 1
        return position

    def _named(self, name: str) -> Box:
        for box in self._boxes:
            if box.name.casefold() == name.casefold():
                return box
        raise NotFound(f"{self.account.account_id}: there is no mailbox {name}")

    # What changed.

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        with imap_errors(self.account):
            client = await self._connected()
            self._boxes = boxes_of(await client.list())
            kept = [box for box in self._boxes if box.name != DRAFTS]
            now = await self._positions(client, kept)
        total = sum(position.exists for _, position in now)
        state = _copied({"boxes": {}, **(since or {})})
        for box, position in now:
            with imap_errors(self.account):
                async for part in self._of_box(box, position, state, known):
                    yield RemoteChanges(
                        part.checkpoint, part.messages, part.gone, part.dropped, total
                    )
        scopes = {scope_of(box, position.uidvalidity) for box, position in now}
        dropped = tuple(sorted(await known.scopes() - scopes))
        wires = {scope.partition("/")[2] for scope in scopes}
        state["boxes"] = {name: at for name, at in state["boxes"].items() if name in wires}
        yield RemoteChanges(state, dropped=dropped, total=total)

    async def _positions(self, client: Client, boxes: Sequence[Box]) -> list[tuple[Box, Position]]:
        """Where every mailbox stands.

        QUIRK: STATUS of the open mailbox says how it was (RFC 3501 §6.3.10 warns of it).
        """
        is_open = self._open is not None
        if is_open and client.can("UNSELECT"):
            await client.connection.run("UNSELECT")
            self._open, is_open = None, False
        inbox = await self._go(boxes[0]) if is_open else None
        return [
            (
                box,
                inbox
                if inbox is not None and box is boxes[0]
                else await status_of(client, box.wire),
            )
            for box in boxes
        ]

    async def _of_box(
        self, box: Box, status: Position, state: Checkpoint, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        name = _key(box)
        at = state["boxes"].get(name)
        if at is not None and at["v"] == status.uidvalidity and self._is_unchanged(at, status):
            self._note_inbox(box, status)
            return
        position = await self._read_from(box)
        self._note_inbox(box, position)
        scope = scope_of(box, position.uidvalidity)
        if at is None or at["v"] != position.uidvalidity:
            at = {"v": position.uidvalidity, "low": position.uidnext or 2**32 - 1}
            at |= {"next": position.uidnext, "modseq": position.modseq, "count": position.exists}
            self._flags.pop(scope, None)
        elif not at["low"]:
            async for part in self._since(box, scope, at, position, known):
                yield RemoteChanges(_copied(state), *part)
            at = at | {"next": position.uidnext, "modseq": position.modseq}
            at |= {"count": position.exists}
        state["boxes"][name] = at
        if at["low"]:
            older = self._older(box, scope, at["low"])
            async for changes in self._with_news(state, older, name):
                yield changes
        state["boxes"][name] |= {"low": 0}
        yield RemoteChanges(_copied(state))

    async def _with_news(
        self, state: Checkpoint, older: AsyncIterator[_Listed], name: str
    ) -> AsyncIterator[RemoteChanges]:
        """Older mail of a mailbox; between its parts, what arrives in Inbox meanwhile.

        A first pass may take hours, and nobody waits that long for the mail of today.
        """
        async for part in self._arrived(state):
            yield part
        async for messages, low in older:
            state["boxes"][name] |= {"low": low}
            yield RemoteChanges(_copied(state), messages)
            async for part in self._arrived(state):
                yield part

    async def _arrived(self, state: Checkpoint) -> AsyncIterator[RemoteChanges]:
        """What is new in Inbox; only that, so what else changed there is still to be read."""
        inbox = self._named(INBOX)
        at = state["boxes"].get(_key(inbox))
        position = await self._read_from(inbox)
        if at is None or at["v"] != position.uidvalidity:
            return
        scope = scope_of(inbox, position.uidvalidity)
        async for messages in self._new(inbox, scope, at, position):
            yield RemoteChanges(_copied(state), messages)
        state["boxes"][_key(inbox)] |= {"next": position.uidnext}

    def _is_unchanged(self, at: Checkpoint, status: Position) -> bool:
        """Whether nothing can have happened; without CONDSTORE one has to look."""
        same = (at["next"], at["count"]) == (status.uidnext, status.exists)
        return same and not at["low"] and 0 < status.modseq == at["modseq"]

    def _note_inbox(self, box: Box, position: Position) -> None:
        if box.name == INBOX:
            self._inbox_seen = (position.uidnext, position.modseq, position.exists)

    async def _older(self, box: Box, scope: str, below: int) -> AsyncIterator[_Listed]:
        """What is below a UID and was not listed yet, newest first."""
        has_more = True
        while below > 1 and has_more:
            uids = await self._between(scope, 1, below)
            has_more = len(uids) == _MOST_UIDS
            for start in range(0, len(uids), LISTED_AT_ONCE):
                chunk = uids[start : start + LISTED_AT_ONCE]
                messages = await self._describe(box, scope, chunk)
                below = chunk[-1]
                yield messages, below

    async def _since(
        self, box: Box, scope: str, at: Checkpoint, position: Position, known: Known
    ) -> AsyncIterator[tuple[tuple[RemoteMessage, ...], tuple[RemoteRef, ...]]]:
        """What is new, what changed and what is gone."""
        async for messages in self._new(box, scope, at, position):
            yield messages, ()
        keys = await known.keys(scope)
        client = await self._at(scope)
        if at["modseq"] and position.modseq:
            rows: list[Row] = []
            vanished = await fetch_changed(
                client,
                at["next"],
                _ITEMS,
                at["modseq"],
                rows.append,
                with_vanished=self._has_qresync,
            )
            yield self._messages(box, scope, rows), ()
            if self._has_qresync:
                gone = vanished.among(int(key) for key in keys)
                yield (), tuple(_ref(scope, uid) for uid in gone)
                return
        present = await self._between(scope, 1, 2**32)
        missing = keys - {str(uid) for uid in present}
        yield (), tuple(RemoteRef(scope, key) for key in sorted(missing))
        if not (at["modseq"] and position.modseq):
            before = [uid for uid in present if uid < at["next"]]
            for start in range(0, len(before), LISTED_AT_ONCE):
                yield await self._reflagged(box, scope, before[start:][:LISTED_AT_ONCE]), ()

    async def _new(
        self, box: Box, scope: str, at: Checkpoint, position: Position
    ) -> AsyncIterator[tuple[RemoteMessage, ...]]:
        if position.uidnext == at["next"]:
            return
        uids = await self._between(scope, at["next"], 2**32)
        for start in range(0, len(uids), LISTED_AT_ONCE):
            yield await self._describe(box, scope, uids[start : start + LISTED_AT_ONCE])

    async def _between(self, scope: str, low: int, high: int) -> list[int]:
        """The UIDs from *low* to below *high*, newest first.

        QUIRK: some servers answer a search with nothing although there is mail; to believe that
        would be to miss it, or to remove what is here. Without a search all of them are listed.
        """
        client = await self._at(scope)
        last = b"%d" % (high - 1) if high < 2**32 else b"*"
        uids = (await client.search([b"UID", b"%d:%s" % (low, last)])).newest(_MOST_UIDS)
        if not uids and self._position.exists:
            found: set[int] = set()
            await client.fetch_by_place(b"1:*", b"UID", lambda row: found.add(row.uid))
            uids = sorted(found, reverse=True)
            if low == 1 and high == 2**32 and not uids:
                raise ProviderError(
                    f"{self.account.account_id}: the server counts {self._position.exists} "
                    "messages and lists none"
                )
        return [uid for uid in uids if uid and low <= uid < high]

    async def _reflagged(
        self, box: Box, scope: str, uids: Sequence[int]
    ) -> tuple[RemoteMessage, ...]:
        """Those whose flags are not what they were when we looked last."""
        before = self._flags.setdefault(scope, {})
        found = await self._describe(box, scope, uids, remember=False)
        changed = []
        for message in found:
            standing = (*message.flags, *(message.labels or ()))
            if before.get(int(message.ref.key)) != standing:
                before[int(message.ref.key)] = standing
                changed.append(message)
        return tuple(changed)

    async def _describe(
        self, box: Box, scope: str, uids: Sequence[int], *, remember: bool = True
    ) -> tuple[RemoteMessage, ...]:
        client = await self._at(scope)
        rows: list[Row] = []
        await client.fetch(uids, _ITEMS, rows.append)
        wanted = set(uids)
        return self._messages(box, scope, [row for row in rows if row.uid in wanted])

    def _messages(self, box: Box, scope: str, rows: Sequence[Row]) -> tuple[RemoteMessage, ...]:
        found = {row.uid: row for row in rows if row.uid and row.flags is not None}
        return tuple(
            RemoteMessage(
                ref=_ref(scope, uid),
                mailboxes=(box.name,),
                flags=flags_in(found[uid].flags or ()),
                labels=labels_in(found[uid].flags or ()) if self._takes_keywords else None,
                arrived_at=found[uid].arrived_at,
                size_bytes=found[uid].number(b"RFC822.SIZE"),
            )
            for uid in sorted(found, reverse=True)
            if r"\deleted" not in {flag.lower() for flag in found[uid].flags or ()}
        )

    # The messages themselves.

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        by_scope: dict[str, list[int]] = {}
        for ref in refs:
            by_scope.setdefault(ref.scope, []).append(int(ref.key))
        for scope, uids in by_scope.items():
            found: list[Row] = []
            with imap_errors(self.account):
                client = await self._at(scope)
                await client.fetch(
                    uids, b"UID BODY.PEEK[]", found.append, literal_bytes=self.message_bytes
                )
            wanted = set(uids)
            for row in found:
                if row.uid in wanted and b"BODY[]" in row.items:
                    yield _ref(scope, row.uid), row.data(b"BODY[]")

    async def _at(self, scope: str, *, writing: bool = False) -> Client:
        """Have a scope open. Raises Conflict if the mailbox is not the one it was."""
        uidvalidity, _, name = scope.partition("/")
        wire = name.encode("latin-1")
        client = await self._connected()
        if self._open is None or self._open[0] != wire or (writing and not self._open[1]):
            await self._go(Box(wire, name, "/"), writing=writing)
        if self._position.uidvalidity != int(uidvalidity):
            self._open = None
            raise Conflict(f"{self.account.account_id}: {name} is not what it was; it is read anew")
        return client

    # What was done here.

    async def push(self, push: Push) -> Pushed:
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        with imap_errors(self.account):
            for ref, mailboxes in push.refs:
                client = await self._at(ref.scope, writing=True)
                uid = int(ref.key)
                if push.kind == "delete":
                    await self._expunge(client, uid)
                    left.append(ref)
                    continue
                await self._flag(client, uid, push)
                if push.move_to and push.move_to.casefold() not in map(str.casefold, mailboxes):
                    place = await self._move(client, uid, push.move_to)
                    left.append(ref)
                    entered += [place] if place is not None else []
        return Pushed(tuple(left), tuple(entered))

    async def _flag(self, client: Client, uid: int, push: Push) -> None:
        for sign, flags, labels in (
            ("+", push.add_flags, push.add_labels),
            ("-", push.remove_flags, push.remove_labels),
        ):
            keywords = [keyword_of(label) for label in labels] if self._takes_keywords else []
            wanted = [SYSTEM[flag] for flag in flags] + keywords
            if wanted:
                await client.store(uid, sign, wanted)

    async def _move(
        self, client: Client, uid: int, name: str
    ) -> tuple[RemoteRef, tuple[str, ...]] | None:
        box = await self._made(client, name)
        if client.can("MOVE"):
            place = await client.move(uid, box.wire)
        else:
            place = await client.copy(uid, box.wire)
            await self._expunge(client, uid)
        if place is None:
            return None
        return _ref(scope_of(box, place[0]), place[1]), (box.name,)

    async def _made(self, client: Client, name: str) -> Box:
        with suppress(NotFound):
            return self._named(name)
        delimiter = self._boxes[0].delimiter if self._boxes else "/"
        wire = spellings(name.replace("/", delimiter), is_utf8=client.has_utf8_names)[0]
        await create(client, wire)
        box = Box(wire, name, delimiter)
        self._boxes.append(box)
        return box

    async def _expunge(self, client: Client, uid: int) -> None:
        """Remove one message and no other; without UIDPLUS it stays, marked."""
        await client.store(uid, "+", [r"\Deleted"])
        if client.can("UIDPLUS"):
            await client.expunge(uid)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        with imap_errors(self.account):
            box = await self._made(await self._connected(), SENT)
            position = await self._go(box, writing=True)
            client = await self._connected()
            scope = scope_of(box, position.uidvalidity)
            uid = await find_message_id(client, push.internet_message_id or "none")
            if uid is None:
                place = await client.append(box.wire, raw, [r"\Seen"], None)
                if place is None:
                    return Pushed()
                scope, uid = scope_of(box, place[0]), place[1]
        return Pushed(entered=((_ref(scope, uid), (box.name,)),))

    # News.

    def _has_moved_on(self, position: Position) -> bool:
        """Whether Inbox is not as it was read; what a server does not tell counts for nothing."""
        now = (position.uidnext, position.modseq, position.exists)
        if self._inbox_seen is None:
            return True
        return any(a != b for a, b in zip(now, self._inbox_seen, strict=True) if a and b)

    async def wait(self) -> None:
        """Return when Inbox changed, or after a while: other mailboxes have no IDLE.

        Many servers end a connection that idles now and then; it is made anew at once, but one
        that ends again and again no more often than we would ask.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with imap_errors(self.account):
                await self._listen()
        except ProviderError:
            await asyncio.sleep(max(0.0, POLL_S - (clock() - began)))

    async def _listen(self) -> None:
        client = self._listener
        if client is None or client.connection.is_closed:
            client = self._listener = await connect(self.account, self.timeouts)
        if not client.can("IDLE"):
            await asyncio.sleep(POLL_S)
            return
        position = await open_at(client, b"INBOX")
        if self._has_moved_on(position):
            await asyncio.sleep(0.05)
            return
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_change() -> None:
            if not changed.done():
                changed.set_result(None)

        try:
            await client.watch(changed, on_change)
        except BaseException:
            client.connection.close("nobody listens any more")
            raise


def _ref(scope: str, uid: int) -> RemoteRef:
    return RemoteRef(scope, str(uid))


def _key(box: Box) -> str:
    """The name of a mailbox in scopes and checkpoints: its bytes, whatever they are."""
    return box.wire.decode("latin-1")


def _copied(state: Checkpoint) -> Checkpoint:
    return {"boxes": {name: dict(at) for name, at in state["boxes"].items()}}
