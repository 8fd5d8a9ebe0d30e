"""Reads the changes of the mailboxes of an account, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Self, TypeAlias

from postroom.errors import NotFound, ProviderError, untrusted
from postroom.model.account import Checkpoint, RemoteChanges, RemoteMessage, RemoteRef
from postroom.model.inbox import DRAFTS, INBOX
from postroom.ports.provider import StoredRefs
from postroom.providers.imap.errors import Refused, imap_errors
from postroom.providers.imap.mailboxes import (
    MAX_UIDS,
    ImapMailboxes,
    RemoteMailbox,
    key_of,
    scope_of,
)
from postroom.providers.imap.pool import IdleListener, InboxEvents
from postroom.providers.imap.responses import MailboxStatus, Row
from postroom.providers.server_text import Labels, flags_in

Parts: TypeAlias = AsyncGenerator[RemoteChanges, None]
Messages: TypeAlias = tuple[RemoteMessage, ...]
PAGE = 500
NEW_MAIL_S = 15.0
"""How often new mail is requested during a first pass."""

FULL_PASS_S = 120.0
"""How often other mailboxes are read while IDLE reports the changes of Inbox."""

_ITEMS = b"UID FLAGS INTERNALDATE RFC822.SIZE"

_JSON_KEYS = ("v", "low", "next", "modseq", "count")
"""The fields of a `MailboxCheckpoint` in JSON, in their order."""


@dataclass(frozen=True, slots=True)
class MailboxCheckpoint:
    """How far one mailbox was read.

    Messages from `low` on were listed by the first pass, which reads from the newest to the oldest;
    0 means that it is complete. The rest is what SELECT said then.
    """

    uidvalidity: int
    low: int
    uidnext: int
    modseq: int
    exists: int

    @classmethod
    def at(cls, status: MailboxStatus, *, low: int = 0) -> Self:
        """The checkpoint of a mailbox that was read up to this status."""
        return cls(status.uidvalidity, low, status.uidnext, status.modseq, status.exists)

    def is_unchanged(self, status: MailboxStatus) -> bool:
        """Whether nothing can have changed; without CONDSTORE that is never known."""
        has_same = (self.uidnext, self.exists) == (status.uidnext, status.exists)
        return has_same and not self.low and 0 < status.modseq == self.modseq


@dataclass(slots=True)
class ImapCheckpoint:
    """How far the mailboxes of an account were read, by the key of each; stored as JSON."""

    mailboxes: dict[str, MailboxCheckpoint]

    @classmethod
    def from_json(cls, stored: Checkpoint | None) -> Self:
        mailboxes: dict[str, dict[str, int]] = (stored or {}).get("boxes", {})
        return cls(
            {n: MailboxCheckpoint(*(at[k] for k in _JSON_KEYS)) for n, at in mailboxes.items()}
        )

    def to_json(self) -> Checkpoint:
        pairs = (
            (name, zip(_JSON_KEYS, astuple(at), strict=True)) for name, at in self.mailboxes.items()
        )
        return {"boxes": {name: dict(values) for name, values in pairs}}

    def update(self, name: str, **changes: int) -> None:
        """Change the checkpoint of one mailbox."""
        self.mailboxes[name] = replace(self.mailboxes[name], **changes)


@dataclass(eq=False)
class ImapReader:
    """Reads an account; `inbox_status` is the status of Inbox after the last read."""

    mailboxes: ImapMailboxes
    listener: IdleListener
    takes_keywords: bool = False
    inbox_status: tuple[int, int, int] | None = None
    labels: Labels = field(default_factory=Labels)
    _flags: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    _next_check: float = 0.0
    _next_full_pass: float = 0.0

    async def changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        """The changes; only those of Inbox if IDLE reported them and no full pass is due."""
        self.labels.add(await known.labels())
        state = ImapCheckpoint.from_json(since)
        with imap_errors(self.mailboxes.account):
            reported = await self._messages_from_idle(self.listener.take_events(), state)
        is_partial = reported is not None and self._now() < self._next_full_pass
        if reported is not None:
            yield RemoteChanges(state.to_json(), reported, is_partial=is_partial)
        if not is_partial:
            self._next_full_pass = self._now() + FULL_PASS_S
            async for changes in self._all_changes(state, known):
                yield changes

    async def read_states(self, ref: RemoteRef) -> Messages:
        """The message at a place, if it is there."""
        wire = ref.scope.partition("/")[2]
        mailbox = next((mailbox for mailbox in self.mailboxes.all if key_of(mailbox) == wire), None)
        return () if mailbox is None else await self._describe(mailbox, ref.scope, [int(ref.key)])

    async def _messages_from_idle(
        self, events: InboxEvents, state: ImapCheckpoint
    ) -> Messages | None:
        """The messages that IDLE reported; None if a full pass is needed."""
        inbox = self.mailboxes.get(INBOX) if events.is_complete else None
        at = state.mailboxes.get(key_of(inbox)) if inbox else None
        if inbox is None or at is None or at.low or at.uidvalidity != events.uidvalidity:
            return None
        scope = scope_of(inbox, at.uidvalidity)
        client = await self.mailboxes.select_fresh(scope)
        rows: list[Row] = []
        if events.has_new:
            await client.fetch_set("UID FETCH", b"%d:*" % at.uidnext, _ITEMS, rows.append)
        await client.fetch(sorted(events.uids), _ITEMS, rows.append)
        rows = [r for r in rows if r.uid >= at.uidnext or r.uid in events.uids]
        newest = max((row.uid for row in rows), default=0)
        if events.has_new and newest < at.uidnext:
            return None
        state.update(key_of(inbox), uidnext=max(newest + 1, at.uidnext))
        return self._messages(inbox, scope, rows)

    async def _all_changes(self, state: ImapCheckpoint, known: StoredRefs) -> Parts:
        with imap_errors(self.mailboxes.account):
            await self.mailboxes.load()
            found = await self.mailboxes.statuses(
                [b for b in self.mailboxes.all if b.name != DRAFTS]
            )
        now = [(mailbox, status) for mailbox, status in found if status is not None]
        total = sum(status.exists for _, status in now)
        refusals: list[ProviderError] = []
        for mailbox, status in now:
            try:
                with imap_errors(self.mailboxes.account):
                    async for part in self._mailbox_changes(mailbox, status, state, known):
                        yield replace(part, total=total)
            except (NotFound, ProviderError) as error:
                if not isinstance(error.__cause__, Refused):
                    raise
                refusals.append(ProviderError(f"{mailbox.name}: {error}"))
        if refusals:
            # After the others: one mailbox that cannot be read must not block them.
            raise untrusted(refusals[0])
        there = {key_of(mailbox) for mailbox, _ in found}
        closed = there - {key_of(mailbox) for mailbox, _ in now}
        scopes = {scope_of(mailbox, status.uidvalidity) for mailbox, status in now}
        left = [s for s in await known.scopes() - scopes if s.partition("/")[2] not in closed]
        with imap_errors(self.mailboxes.account):
            gone = [scope for scope in sorted(left) if await self.mailboxes.is_gone(scope)]
        state.mailboxes = {name: at for name, at in state.mailboxes.items() if name in there}
        yield RemoteChanges(state.to_json(), removed_scopes=tuple(gone), total=total)

    async def _mailbox_changes(
        self,
        mailbox: RemoteMailbox,
        listed_status: MailboxStatus,
        state: ImapCheckpoint,
        known: StoredRefs,
    ) -> Parts:
        name = key_of(mailbox)
        at = state.mailboxes.get(name)
        if (
            at is not None
            and at.uidvalidity == listed_status.uidvalidity
            and at.is_unchanged(listed_status)
        ):
            self._set_inbox_status(mailbox, listed_status)
            return
        status = await self.mailboxes.open_for_read(mailbox, listed_status)
        if listed_status.exists and not status.exists:
            raise ProviderError(
                f"{mailbox.name}: the server counts {listed_status.exists} messages, then 0"
            )
        self._set_inbox_status(mailbox, status)
        scope = scope_of(mailbox, status.uidvalidity)
        if at is None or at.uidvalidity != status.uidvalidity:
            at = MailboxCheckpoint.at(status, low=status.uidnext or 2**32 - 1)
            self._flags.pop(scope, None)
            self._schedule_check(0.0)
        elif not at.low:
            async for part in self._changes_since(mailbox, at, status, known):
                yield RemoteChanges(state.to_json(), *part)
            at = MailboxCheckpoint.at(status)
        state.mailboxes[name] = at
        if at.low:
            async for changes in self._with_new_mail(state, mailbox, scope):
                yield changes
        state.update(name, low=0)
        yield RemoteChanges(state.to_json())

    async def _with_new_mail(
        self, state: ImapCheckpoint, mailbox: RemoteMailbox, scope: str
    ) -> Parts:
        """Older mail of a mailbox, and between its pages the new mail of Inbox.

        A first pass may take hours; new mail must not wait for it.
        """
        async for part in self._new_in_inbox(state):
            yield part
        async for messages, low in self._older_messages(
            mailbox, scope, state.mailboxes[key_of(mailbox)].low
        ):
            state.update(key_of(mailbox), low=low)
            yield RemoteChanges(state.to_json(), messages)
            async for part in self._new_in_inbox(state):
                yield part

    async def _new_in_inbox(self, state: ImapCheckpoint) -> Parts:
        """New mail in Inbox; other changes there are read later."""
        if self._now() < self._next_check:
            return
        inbox = self.mailboxes.get(INBOX)
        at = state.mailboxes.get(key_of(inbox))
        began = self._now()
        status = await self.mailboxes.open_for_read(inbox)
        self._schedule_check(self._now() - began)
        if at is None or at.uidvalidity != status.uidvalidity:
            return
        scope = scope_of(inbox, status.uidvalidity)
        async for messages in self._new_messages(inbox, scope, at, status):
            yield RemoteChanges(state.to_json(), messages)
        state.update(key_of(inbox), uidnext=status.uidnext)

    def _schedule_check(self, took_s: float) -> None:
        """Schedule the next request for new mail; at most a tenth of the time is spent on them."""
        self._next_check = self._now() + max(NEW_MAIL_S, min(10 * took_s, 20 * NEW_MAIL_S))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def has_changed(self, status: MailboxStatus) -> bool:
        """Whether Inbox changed since it was read; values that are not reported are ignored."""
        now = (status.uidnext, status.modseq, status.exists)
        if self.inbox_status is None:
            return True
        return any(a != b for a, b in zip(now, self.inbox_status, strict=True) if a and b)

    def _set_inbox_status(self, mailbox: RemoteMailbox, status: MailboxStatus) -> None:
        if mailbox.name == INBOX:
            self.inbox_status = (status.uidnext, status.modseq, status.exists)

    async def _older_messages(
        self, mailbox: RemoteMailbox, scope: str, below: int
    ) -> AsyncIterator[tuple[Messages, int]]:
        """The messages below a UID, newest first; with the UID below which the rest is."""
        has_more = True
        while below > 1 and has_more:
            uids = await self.mailboxes.uids_between(scope, 1, below)
            has_more = len(uids) == MAX_UIDS
            for start in range(0, len(uids), PAGE):
                chunk = uids[start : start + PAGE]
                below = chunk[-1]
                yield await self._describe(mailbox, scope, chunk), below

    async def _changes_since(
        self,
        mailbox: RemoteMailbox,
        at: MailboxCheckpoint,
        status: MailboxStatus,
        known: StoredRefs,
    ) -> AsyncIterator[tuple[Messages, tuple[RemoteRef, ...]]]:
        """New, changed and deleted messages."""
        scope = scope_of(mailbox, status.uidvalidity)
        async for messages in self._new_messages(mailbox, scope, at, status):
            yield messages, ()
        client = await self.mailboxes.select(scope)
        # QUIRK: a server that rebuilds its index may count from the start again.
        has_modseq = 0 < at.modseq <= status.modseq
        if has_modseq:
            changed = self.mailboxes.changed_since(client, at.modseq, at.uidnext, _ITEMS)
            rows, vanished = await changed
            yield self._messages(mailbox, scope, rows), ()
            if self.mailboxes.has_qresync:
                gone = vanished.uids()
                if gone is None:
                    gone = vanished.among(map(int, await known.keys(scope)))
                yield (), tuple(ref_of(scope, uid) for uid in gone)
                return
            if (at.uidnext, at.exists) == (status.uidnext, status.exists):
                return
        present = await self.mailboxes.uids_between(scope, 1, 2**32)
        missing = await known.keys(scope) - {str(uid) for uid in present}
        yield (), tuple(RemoteRef(scope, key) for key in sorted(missing))
        if not has_modseq:
            before = [uid for uid in present if uid < at.uidnext]
            for start in range(0, len(before), PAGE):
                yield await self._changed_flags(mailbox, scope, before[start:][:PAGE]), ()

    async def _new_messages(
        self, mailbox: RemoteMailbox, scope: str, at: MailboxCheckpoint, status: MailboxStatus
    ) -> AsyncIterator[Messages]:
        if status.uidnext == at.uidnext:
            return
        uids = await self.mailboxes.uids_between(scope, at.uidnext, 2**32)
        for start in range(0, len(uids), PAGE):
            yield await self._describe(mailbox, scope, uids[start : start + PAGE])

    async def _changed_flags(
        self, mailbox: RemoteMailbox, scope: str, uids: Sequence[int]
    ) -> Messages:
        """The messages whose flags changed since the last pass."""
        before = self._flags.setdefault(scope, {})
        changed = []
        for message in await self._describe(mailbox, scope, uids):
            flags = (*message.flags, *(message.labels or ()))
            if before.get(int(message.ref.key)) != flags:
                before[int(message.ref.key)] = flags
                changed.append(message)
        return tuple(changed)

    async def _describe(self, mailbox: RemoteMailbox, scope: str, uids: Sequence[int]) -> Messages:
        client = await self.mailboxes.select(scope)
        rows: list[Row] = []
        await client.fetch(uids, _ITEMS, rows.append)
        requested = set(uids)
        return self._messages(mailbox, scope, [row for row in rows if row.uid in requested])

    def _messages(self, mailbox: RemoteMailbox, scope: str, rows: Sequence[Row]) -> Messages:
        found: dict[int, Row] = {}
        for row in rows:
            # QUIRK: some servers answer one FETCH with several responses.
            found.setdefault(row.uid, Row(row.sequence, {})).items.update(row.items)
        # Unsolicited responses have flags only.
        found = {uid: row for uid, row in found.items() if uid and b"RFC822.SIZE" in row.items}
        return tuple(
            RemoteMessage(
                ref=ref_of(scope, uid),
                mailboxes=(mailbox.name,),
                flags=flags_in(found[uid].flags or ()),
                labels=self.labels.labels_in(found[uid].flags or ())
                if self.takes_keywords
                else None,
                arrived_at=found[uid].arrived_at,
                size_bytes=found[uid].number(b"RFC822.SIZE"),
            )
            for uid in sorted(found, reverse=True)
            if r"\deleted" not in {flag.lower() for flag in found[uid].flags or ()}
        )


def ref_of(scope: str, uid: int) -> RemoteRef:
    return RemoteRef(scope, str(uid))
