"""An Outlook account that is kept in step: the port `Provider`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import NotFound
from postroom.model.account import Capabilities, RateLimits
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
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
from postroom.providers.bcc import with_bcc
from postroom.providers.encoded import attachment_mb
from postroom.providers.fetching import fetch_each
from postroom.providers.graph.client import SENT_AT_ONCE_BYTES, DeltaExpired, GraphClient
from postroom.providers.graph.copying import copy_of
from postroom.providers.graph.folders import Folders
from postroom.providers.web.api import ApiRefused
from postroom.providers.web.sense import makes_sense

RATES = RateLimits(requests_per_second=12, burst=60)
"""Microsoft allows 10,000 requests in ten minutes for a mailbox."""

NEWS_S = 15.0
"""How long new mail waits for a first listing, at least."""

MOST_BYTES = 35 * 2**20
"""What Exchange Online lets a mailbox send, if nobody has set it otherwise."""

_ORDER = {INBOX: 0, SENT: 1, JUNK: 3, TRASH: 4}
_UNTOLD = ("answered",)
_AT_ONCE = 4
"""Microsoft answers no more requests at a time for one mailbox."""


@makes_sense
@dataclass(eq=False)
class GraphProvider:
    """One account at Microsoft. Folders are mailboxes, categories are labels."""

    client: GraphClient
    address: str
    can_send: bool = True
    _me: dict[str, Any] = field(default_factory=dict)
    _newest: datetime | None = None
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        self.folders = Folders(self.client)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            provider="outlook",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=min(25, attachment_mb(MOST_BYTES)),
            rate_limits=RATES,
            has_labels=True,
            has_push=False,
            can_send=self.can_send,
            can_create_alias=False,
            mail_bytes=MOST_BYTES,
            text_bytes=SENT_AT_ONCE_BYTES,
            owner=_text(self._me.get("id")) or _text(self._me.get("mail")),
            owner_address=_text(self._me.get("mail")),
        )

    async def check(self) -> None:
        self._me = await self.client.me()
        await self.folders.learn()

    async def identities(self) -> list[RemoteIdentity]:
        me = await self.client.me()
        email = me.get("mail") or me.get("userPrincipalName") or self.address
        return [RemoteIdentity(str(email), me.get("displayName") or "")]

    async def close(self) -> None:
        await self.client.api.close()

    # What changed.

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        await self.folders.learn()
        state: dict[str, Any] = dict((since or {}).get("folders", {}))
        kept = {key: name for key, name in self.folders.names.items() if name != DRAFTS}
        for key, name in sorted(kept.items(), key=lambda f: (_ORDER.get(f[1], 2), f[1])):
            at = state.get(key)
            if at is not None and at.get("name", name) != name:
                at = None  # It was renamed: all that is in it is somewhere else for us.
            try:
                async for part in self._of_folder(key, name, at, known):
                    state[key] = {**part.checkpoint, "name": name}
                    yield _in(state, part)
            except DeltaExpired:
                async for part in self._of_folder(key, name, None, known):
                    state[key] = {**part.checkpoint, "name": name}
                    yield _in(state, part)
        dropped = tuple(sorted(await known.scopes() - set(kept)))
        state = {key: at for key, at in state.items() if key in kept}
        yield RemoteChanges({"folders": state}, dropped=dropped)

    async def _of_folder(
        self, key: str, name: str, at: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        """The changes of one folder; a listing from the start also finds what is gone."""
        is_whole = at is None
        before = await known.keys(key) if is_whole else frozenset()
        listed: set[str] = set()
        checkpoint: Checkpoint = dict(at or {})
        async for page in self.client.delta(key, (at or {}).get("link")):
            rows = page["value"]
            end = self.client.link(page, "deltaLink")
            link = end or self.client.link(page, "nextLink")
            if not is_whole or end:
                checkpoint = {"link": link}
            messages = tuple(self._message(key, name, row) for row in rows if "@removed" not in row)
            listed.update(message.ref.key for message in messages)
            gone = tuple(RemoteRef(key, str(row["id"])) for row in rows if "@removed" in row)
            if end and is_whole:
                gone += tuple(RemoteRef(key, other) for other in sorted(before - listed))
            yield RemoteChanges(checkpoint, messages, gone)
            if is_whole and (news := await self._news()):
                yield RemoteChanges(checkpoint, news)

    async def _news(self) -> tuple[RemoteMessage, ...]:
        """What arrives in Inbox during a long listing, which has to end before it tells.

        The delta link that follows the listing tells of it once more, and nothing is doubled.
        """
        clock = asyncio.get_running_loop().time
        inbox = self.folders.named(INBOX)
        if inbox is None or clock() < self._next_look:
            return ()
        since = self._newest.strftime("%Y-%m-%dT%H:%M:%SZ") if self._newest else None
        rows = await self.client.newest(inbox, since)
        found = tuple(self._message(inbox, INBOX, row) for row in rows)
        moments = [m.arrived_at for m in found if m.arrived_at is not None]
        self._newest = max([*moments, *([self._newest] if self._newest else [])], default=None)
        self._next_look = clock() + NEWS_S
        return found

    def _message(self, folder: str, name: str, row: Mapping[str, Any]) -> RemoteMessage:
        flags = ["seen"] if row.get("isRead") else []
        flagged = (row.get("flag") or {}).get("flagStatus") == "flagged"
        return RemoteMessage(
            ref=RemoteRef(folder, str(row["id"])),
            mailboxes=(name,),
            flags=(*flags, *(["flagged"] if flagged else [])),
            labels=tuple(str(label)[:128] for label in row.get("categories") or ()),
            arrived_at=_moment(row.get("receivedDateTime")),
            size_bytes=_size(row),
            untold=_UNTOLD,
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        async for found in fetch_each(
            refs, lambda ref: self.client.mime(ref.key), at_once=_AT_ONCE
        ):
            yield found

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        found = []
        for ref in refs:
            try:
                row = await self.client.message(ref.key)
            except ApiRefused as refusal:
                if refusal.status != 404:
                    raise
            else:
                name = self.folders.names.get(ref.scope, ARCHIVE)
                found.append(self._message(ref.scope, name, row))
        return tuple(found)

    # What was done here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "drop_draft":
            await self.client.drop_drafts(f"<{push.internet_message_id}>")
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        for ref, mailboxes in push.refs:
            try:
                if push.kind == "delete":
                    left.append(ref)
                    entered += await self._delete(ref)
                    continue
                await self._change(ref.key, push)
                if push.move_to and push.move_to.casefold() not in map(str.casefold, mailboxes):
                    entered.append(await self._move(ref.key, push.move_to))
                    left.append(ref)
            except ApiRefused as refusal:
                if refusal.status == 404:
                    raise NotFound(f"the provider has no message {ref.key} any more") from refusal
                raise
        return Pushed(tuple(left), tuple(entered))

    async def _delete(self, ref: RemoteRef) -> list[tuple[RemoteRef, tuple[str, ...]]]:
        """Remove a message; where it is then, if it is anywhere."""
        trash = await self._folder(TRASH)
        is_gone = await self.client.delete(ref.key) or ref.scope == trash
        return [] if is_gone else [(RemoteRef(trash, ref.key), (TRASH,))]

    async def _change(self, key: str, push: Push) -> None:
        patch: dict[str, Any] = {}
        for flags, is_set in ((push.add_flags, True), (push.remove_flags, False)):
            if "seen" in flags:
                patch["isRead"] = is_set
            if "flagged" in flags:
                patch["flag"] = {"flagStatus": "flagged" if is_set else "notFlagged"}
        if push.add_labels or push.remove_labels:
            now = (await self.client.message(key)).get("categories") or []
            away = {label.casefold() for label in (*push.remove_labels, *push.add_labels)}
            kept = [label for label in now if label.casefold() not in away]
            patch["categories"] = [*kept, *push.add_labels]
        if patch:
            await self.client.change(key, patch)

    async def _move(self, key: str, name: str) -> tuple[RemoteRef, tuple[str, ...]]:
        folder = await self._folder(name)
        moved = await self.client.move(key, folder)
        return RemoteRef(folder, moved), (self.folders.names[folder],)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        folder, message_id = await self._folder(SENT), f"<{push.internet_message_id}>"
        found = await self.client.find(folder, message_id)
        copy = await in_thread(with_bcc, raw, push.recipients)
        key = found[0] if found else await self._copy(folder, message_id, copy)
        return Pushed(entered=((RemoteRef(folder, key), (SENT,)),))

    async def _copy(self, folder: str, message_id: str, raw: bytes) -> str:
        """Put a mail into a folder; a large one is whole before it gets there."""
        copy = await in_thread(copy_of, raw)
        if len(raw) <= SENT_AT_ONCE_BYTES:
            return await self.client.create(folder, copy.with_files())
        aside = await self._folder(DRAFTS)
        await self.client.drop_drafts(message_id)
        key = await self.client.create(aside, copy.message)
        for file in copy.files:
            await self.client.attach(
                key, file.name, file.content_type, file.content, file.content_id
            )
        return await self.client.move(key, folder)

    async def _folder(self, name: str) -> str:
        return await self.folders.id_of(name)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _in(state: Mapping[str, Any], part: RemoteChanges) -> RemoteChanges:
    return RemoteChanges({"folders": dict(state)}, part.messages, part.gone)


def _size(row: Mapping[str, Any]) -> int:
    """About how large a message is; 0 where Graph does not say. It spells the id as it likes."""
    for one in row.get("singleValueExtendedProperties") or ():
        if str(one["id"]).lower().endswith("e08"):
            return max(int(one["value"]), 0)
    return 0


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
