"""What changed in the mailboxes of an account since we looked last, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field

from postroom.errors import ProviderError
from postroom.model.inbox import DRAFTS, INBOX
from postroom.model.remote import Checkpoint, RemoteChanges, RemoteMessage, RemoteRef
from postroom.ports.provider import Known
from postroom.providers.imap.errors import imap_errors
from postroom.providers.imap.listening import Ear, Heard
from postroom.providers.imap.mailboxes import MOST_UIDS, Mailboxes, key_of, scope_of
from postroom.providers.imap.mirroring import Position, fetch_changed
from postroom.providers.imap.responses import Row
from postroom.providers.imap.roles import Box
from postroom.providers.keywords import Labels, flags_in

LISTED_AT_ONCE = 500
NEWS_S = 15.0
"""How long new mail waits for a first pass, at least."""

ALL_S = 120.0
"""How long other mailboxes are left alone while Inbox tells what happens in it."""

_ITEMS = b"UID FLAGS INTERNALDATE RFC822.SIZE"

_Listed = tuple[tuple[RemoteMessage, ...], int]
"""Messages, and the UID below which none was listed yet."""


@dataclass(eq=False)
class Reading:
    """Reads an account; `inbox_seen` is how Inbox stood when it was read last."""

    boxes: Mailboxes
    ear: Ear
    takes_keywords: bool = False
    inbox_seen: tuple[int, int, int] | None = None
    labels: Labels = field(default_factory=Labels)
    _flags: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    _next_look: float = 0.0
    _next_look_at_all: float = 0.0

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        """What was told of Inbox first: to look at all of it takes the longer the more there is."""
        self.labels.learn(await known.labels())
        state = _copied({"boxes": {}, **(since or {})})
        with imap_errors(self.boxes.account):
            told = await self._told(self.ear.taken(), state)
        is_partial = told is not None and self._now() < self._next_look_at_all
        if told is not None:
            yield RemoteChanges(_copied(state), told, is_partial=is_partial)
        if not is_partial:
            self._next_look_at_all = self._now() + ALL_S
            async for changes in self._of_all(state, known):
                yield changes

    async def look(self, ref: RemoteRef) -> tuple[RemoteMessage, ...]:
        """How a message stands now, if it is in this place."""
        wire = ref.scope.partition("/")[2]
        box = next((box for box in self.boxes.all if key_of(box) == wire), None)
        return () if box is None else await self._describe(box, ref.scope, [int(ref.key)])

    async def _told(self, heard: Heard, state: Checkpoint) -> tuple[RemoteMessage, ...] | None:
        """The messages of which Inbox told; None where that does not say enough."""
        inbox = self.boxes.named(INBOX) if heard.is_enough else None
        at = state["boxes"].get(key_of(inbox)) if inbox else None
        if inbox is None or at is None or at["low"] or at["v"] != heard.uidvalidity:
            return None
        scope = scope_of(inbox, at["v"])
        client = await self.boxes.refreshed(scope)
        rows: list[Row] = []
        if heard.has_new:
            await client.fetch_from(at["next"], _ITEMS, rows.append)
        await client.fetch(sorted(heard.uids), _ITEMS, rows.append)
        rows = [r for r in rows if r.uid >= at["next"] or r.uid in heard.uids]
        newest = max((row.uid for row in rows), default=0)
        if heard.has_new and newest < at["next"]:
            return None
        at |= {"next": max(newest + 1, at["next"])}
        return self._messages(inbox, scope, rows)

    async def _of_all(self, state: Checkpoint, known: Known) -> AsyncIterator[RemoteChanges]:
        with imap_errors(self.boxes.account):
            await self.boxes.learn()
            found = await self.boxes.standing([b for b in self.boxes.all if b.name != DRAFTS])
        now = [(box, position) for box, position in found if position is not None]
        total = sum(position.exists for _, position in now)
        for box, position in now:
            with imap_errors(self.boxes.account):
                async for part in self._of_box(box, position, state, known):
                    yield RemoteChanges(
                        part.checkpoint, part.messages, part.gone, part.dropped, total
                    )
        there = {key_of(box) for box, _ in found}
        closed = there - {key_of(box) for box, _ in now}
        scopes = {scope_of(box, position.uidvalidity) for box, position in now}
        left = [s for s in await known.scopes() - scopes if s.partition("/")[2] not in closed]
        state["boxes"] = {name: at for name, at in state["boxes"].items() if name in there}
        yield RemoteChanges(state, dropped=tuple(sorted(left)), total=total)

    async def _of_box(
        self, box: Box, status: Position, state: Checkpoint, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        name = key_of(box)
        at = state["boxes"].get(name)
        if at is not None and at["v"] == status.uidvalidity and self._is_unchanged(at, status):
            self._note_inbox(box, status)
            return
        position = await self.boxes.read_from(box, status)
        if status.exists and not position.exists:
            raise ProviderError(f"{box.name}: the server counts {status.exists} messages, then 0")
        self._note_inbox(box, position)
        scope = scope_of(box, position.uidvalidity)
        if at is None or at["v"] != position.uidvalidity:
            at = {"v": position.uidvalidity, "low": position.uidnext or 2**32 - 1}
            at |= {"next": position.uidnext, "modseq": position.modseq, "count": position.exists}
            self._flags.pop(scope, None)
            self._look_later(0.0)
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
        if self._now() < self._next_look:
            return
        inbox = self.boxes.named(INBOX)
        at = state["boxes"].get(key_of(inbox))
        began = self._now()
        position = await self.boxes.read_from(inbox)
        self._look_later(self._now() - began)
        if at is None or at["v"] != position.uidvalidity:
            return
        scope = scope_of(inbox, position.uidvalidity)
        async for messages in self._new(inbox, scope, at, position):
            yield RemoteChanges(_copied(state), messages)
        state["boxes"][key_of(inbox)] |= {"next": position.uidnext}

    def _look_later(self, took_s: float) -> None:
        """Look for news again after a while; where that takes long, a tenth of the time at most."""
        self._next_look = self._now() + max(NEWS_S, min(10 * took_s, 20 * NEWS_S))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _is_unchanged(self, at: Checkpoint, status: Position) -> bool:
        """Whether nothing can have happened; without CONDSTORE one has to look."""
        same = (at["next"], at["count"]) == (status.uidnext, status.exists)
        return same and not at["low"] and 0 < status.modseq == at["modseq"]

    def has_moved_on(self, position: Position) -> bool:
        """Whether Inbox is not as it was read; what a server does not tell counts for nothing."""
        now = (position.uidnext, position.modseq, position.exists)
        if self.inbox_seen is None:
            return True
        return any(a != b for a, b in zip(now, self.inbox_seen, strict=True) if a and b)

    def _note_inbox(self, box: Box, position: Position) -> None:
        if box.name == INBOX:
            self.inbox_seen = (position.uidnext, position.modseq, position.exists)

    async def _older(self, box: Box, scope: str, below: int) -> AsyncIterator[_Listed]:
        """What is below a UID and was not listed yet, newest first."""
        has_more = True
        while below > 1 and has_more:
            uids = await self.boxes.between(scope, 1, below)
            has_more = len(uids) == MOST_UIDS
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
        client = await self.boxes.at(scope)
        if at["modseq"] and position.modseq:
            rows: list[Row] = []
            vanished = await fetch_changed(
                client,
                at["next"],
                _ITEMS,
                at["modseq"],
                rows.append,
                with_vanished=self.boxes.has_qresync,
            )
            yield self._messages(box, scope, rows), ()
            if self.boxes.has_qresync:
                gone = vanished.few()
                if gone is None:
                    gone = vanished.among(map(int, await known.keys(scope)))
                yield (), tuple(ref_of(scope, uid) for uid in gone)
                return
            if (at["next"], at["count"]) == (position.uidnext, position.exists):
                return
        present = await self.boxes.between(scope, 1, 2**32)
        missing = await known.keys(scope) - {str(uid) for uid in present}
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
        uids = await self.boxes.between(scope, at["next"], 2**32)
        for start in range(0, len(uids), LISTED_AT_ONCE):
            yield await self._describe(box, scope, uids[start : start + LISTED_AT_ONCE])

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
        client = await self.boxes.at(scope)
        rows: list[Row] = []
        await client.fetch(uids, _ITEMS, rows.append)
        wanted = set(uids)
        return self._messages(box, scope, [row for row in rows if row.uid in wanted])

    def _messages(self, box: Box, scope: str, rows: Sequence[Row]) -> tuple[RemoteMessage, ...]:
        # What a server tells unasked, in between, has its flags and nothing else.
        whole = [row for row in rows if row.uid and b"RFC822.SIZE" in row.items]
        found = {row.uid: row for row in whole if row.flags is not None}
        return tuple(
            RemoteMessage(
                ref=ref_of(scope, uid),
                mailboxes=(box.name,),
                flags=flags_in(found[uid].flags or ()),
                labels=self.labels.among(found[uid].flags or ()) if self.takes_keywords else None,
                arrived_at=found[uid].arrived_at,
                size_bytes=found[uid].number(b"RFC822.SIZE"),
            )
            for uid in sorted(found, reverse=True)
            if r"\deleted" not in {flag.lower() for flag in found[uid].flags or ()}
        )


def ref_of(scope: str, uid: int) -> RemoteRef:
    """The place of a message."""
    return RemoteRef(scope, str(uid))


def _copied(state: Checkpoint) -> Checkpoint:
    return {"boxes": {name: dict(at) for name, at in state["boxes"].items()}}
