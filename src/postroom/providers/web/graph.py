"""Microsoft Graph as a provider: folders, categories, changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import MailError
from postroom.model.account import (
    Capabilities,
    Checkpoint,
    Push,
    Pushed,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.model.limits import attachment_mb
from postroom.ports.provider import StoredRefs
from postroom.providers.web.api import ApiRefused, checks_responses, message_errors, none_if_404
from postroom.providers.web.graph_client import RATES, SINGLE_REQUEST_BYTES, GraphClient
from postroom.providers.web.graph_sender import file_properties, sent_copy
from postroom.providers.web.history_reader import (
    FolderPaths,
    HistoryExpired,
    Parts,
    fetch_each,
    path_of,
)
from postroom.providers.web_sender import with_bcc

_WELL_KNOWN = {
    "inbox": INBOX,
    "sentitems": SENT,
    "drafts": DRAFTS,
    "archive": ARCHIVE,
    "junkemail": JUNK,
    "deleteditems": TRASH,
}


@dataclass(eq=False)
class GraphFolders(FolderPaths):
    """The folders of an account: standard mailboxes by their well-known names, others by path."""

    client: GraphClient
    _standard: dict[str, str] = field(default_factory=dict)

    async def load(self) -> None:
        for name, ours in _WELL_KNOWN.items() if not self._standard else ():
            key = await self.client.well_known(name)
            if key is not None:
                self._standard[key] = ours
        standard = self._standard
        rows = {str(row["id"]): row for row in await self.client.folders()}
        named = {
            key: standard.get(key)
            or path_of(row, rows, name="displayName", parent="parentFolderId")
            for key, row in rows.items()
        }
        self.names = {**named, **standard}

    async def create(self, path: str, parent: str | None) -> str | MailError:
        try:
            return str((await self.client.create_folder(path.rpartition("/")[2], parent))["id"])
        except ApiRefused as refusal:
            if refusal.status != 409:
                raise
            return refusal


NEW_MAIL_S = 15.0
"""How often new mail is requested during a first listing."""

MAX_BYTES = 35 * 2**20
"""The default limit of Exchange Online."""

_ORDER = {INBOX: 0, SENT: 1, JUNK: 3, TRASH: 4}
_UNSUPPORTED_FLAGS = ("answered",)
_CONCURRENT_REQUESTS = 4
"""Microsoft's limit for one mailbox."""


@checks_responses("Microsoft Graph")
@dataclass(eq=False)
class GraphProvider:
    """One account at Microsoft. Folders are mailboxes, categories are labels."""

    client: GraphClient
    address: str
    can_send: bool = True
    _me: dict[str, str] = field(default_factory=dict)
    _newest: datetime | None = None
    _next_check: float = 0.0

    def __post_init__(self) -> None:
        self.folders = GraphFolders(self.client)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            provider="outlook",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=min(25, attachment_mb(MAX_BYTES)),
            rate_limits=RATES,
            has_labels=True,
            has_push=False,
            can_send=self.can_send,
            can_create_alias=False,
            mail_bytes=MAX_BYTES,
            text_bytes=SINGLE_REQUEST_BYTES,
            owner=self._me.get("id") or self._me.get("mail"),
            owner_address=self._me.get("mail"),
        )

    async def check(self) -> None:
        me = await self.client.me()
        self._me = {key: value for key, value in me.items() if value and isinstance(value, str)}
        await self.folders.load()

    async def identities(self) -> list[RemoteIdentity]:
        me = await self.client.me()
        email = me.get("mail") or me.get("userPrincipalName") or self.address
        return [RemoteIdentity(str(email), me.get("displayName") or "")]

    async def close(self) -> None:
        await self.client.api.close()

    # Changes at the provider.

    async def changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        await self.folders.load()
        state: dict[str, Any] = dict((since or {}).get("folders", {}))
        synced = {key: name for key, name in self.folders.names.items() if name != DRAFTS}
        for key, name in sorted(synced.items(), key=lambda f: (_ORDER.get(f[1], 2), f[1])):
            at = state.get(key)
            if at is not None and at.get("name", name) != name:
                at = None  # renamed: all of its messages are in another mailbox for us
            try:
                async for part in self._folder_changes(key, name, at, known):
                    state[key] = {**part.checkpoint, "name": name}
                    yield replace(part, checkpoint={"folders": dict(state)})
            except HistoryExpired:
                async for part in self._folder_changes(key, name, None, known):
                    state[key] = {**part.checkpoint, "name": name}
                    yield replace(part, checkpoint={"folders": dict(state)})
        dropped = tuple(sorted(await known.scopes() - set(synced)))
        state = {key: at for key, at in state.items() if key in synced}
        yield RemoteChanges({"folders": state}, removed_scopes=dropped)

    async def _folder_changes(
        self, key: str, name: str, at: Checkpoint | None, known: StoredRefs
    ) -> Parts:
        """The changes of one folder; a listing from the start also finds deleted messages."""
        is_full = at is None
        before = await known.keys(key) if is_full else frozenset()
        listed: set[str] = set()
        checkpoint: Checkpoint = dict(at or {})
        async for page in self.client.delta(key, (at or {}).get("link")):
            rows = page["value"]
            end = self.client.link(page, "deltaLink")
            link = end or self.client.link(page, "nextLink")
            if not is_full or end:
                checkpoint = {"link": link}
            messages = tuple(self._message(key, name, row) for row in rows if "@removed" not in row)
            listed.update(message.ref.key for message in messages)
            gone = tuple(RemoteRef(key, str(row["id"])) for row in rows if "@removed" in row)
            if end and is_full:
                gone += tuple(RemoteRef(key, other) for other in sorted(before - listed))
            yield RemoteChanges(checkpoint, messages, gone)
            if is_full and (new_mail := await self._new_mail()):
                yield RemoteChanges(checkpoint, new_mail)

    async def _new_mail(self) -> tuple[RemoteMessage, ...]:
        """New mail in Inbox during a long listing.

        The delta link at the end of the listing reports it again, without duplicates.
        """
        clock = asyncio.get_running_loop().time
        inbox = self.folders.find(INBOX)
        if inbox is None or clock() < self._next_check:
            return ()
        since = self._newest.strftime("%Y-%m-%dT%H:%M:%SZ") if self._newest else None
        rows = await self.client.newest(inbox, since)
        found = tuple(self._message(inbox, INBOX, row) for row in rows)
        times = [m.arrived_at for m in found if m.arrived_at is not None]
        self._newest = max([*times, *([self._newest] if self._newest else [])], default=None)
        self._next_check = clock() + NEW_MAIL_S
        return found

    def _message(self, folder: str, name: str, row: Mapping[str, Any]) -> RemoteMessage:
        flags = ["seen"] if row.get("isRead") else []
        flagged = (row.get("flag") or {}).get("flagStatus") == "flagged"
        return RemoteMessage(
            ref=RemoteRef(folder, str(row["id"])),
            mailboxes=(name,),
            flags=(*flags, *(["flagged"] if flagged else [])),
            labels=tuple(str(label)[:128] for label in row.get("categories") or ()),
            arrived_at=_parse_time(row.get("receivedDateTime")),
            size_bytes=_size(row),
            unsupported_flags=_UNSUPPORTED_FLAGS,
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        mime = self.client.mime
        async for found in fetch_each(
            refs, lambda ref: mime(ref.key), concurrency=_CONCURRENT_REQUESTS
        ):
            yield found

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        found = []
        for ref in refs:
            row = await none_if_404(self.client.message(ref.key))
            if row is not None:
                name = self.folders.names.get(ref.scope, ARCHIVE)
                found.append(self._message(ref.scope, name, row))
        return tuple(found)

    # Changes made here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "drop_draft":
            await self.client.delete_drafts(f"<{push.internet_message_id}>")
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        for ref, mailboxes in push.refs:
            with message_errors(ref.key):
                if push.kind == "delete":
                    left.append(ref)
                    trash = await self.folders.id_of(TRASH)
                    if not await self.client.delete(ref.key) and ref.scope != trash:
                        entered.append((RemoteRef(trash, ref.key), (TRASH,)))
                    continue
                await self._change(ref.key, push)
                if push.move_to and push.move_to.casefold() not in map(str.casefold, mailboxes):
                    folder = await self.folders.id_of(push.move_to)
                    moved = RemoteRef(folder, await self.client.move(ref.key, folder))
                    entered.append((moved, (self.folders.names[folder],)))
                    left.append(ref)
        return Pushed(tuple(left), tuple(entered))

    async def _change(self, key: str, push: Push) -> None:
        patch: dict[str, Any] = {}
        for flags, is_set in ((push.add_flags, True), (push.remove_flags, False)):
            if "seen" in flags:
                patch["isRead"] = is_set
            if "flagged" in flags:
                patch["flag"] = {"flagStatus": "flagged" if is_set else "notFlagged"}
        if push.add_labels or push.remove_labels:
            now = (await self.client.message(key)).get("categories") or []
            changed = {label.casefold() for label in (*push.remove_labels, *push.add_labels)}
            others = [label for label in now if label.casefold() not in changed]
            patch["categories"] = [*others, *push.add_labels]
        if patch:
            await self.client.change(key, patch)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        folder, message_id = await self.folders.id_of(SENT), f"<{push.internet_message_id}>"
        found = await self.client.find(folder, message_id)
        copy = await in_thread(with_bcc, raw, push.recipients)
        key = found[0] if found else await self._copy(folder, message_id, copy)
        return Pushed(added_refs=((RemoteRef(folder, key), (SENT,)),))

    async def _copy(self, folder: str, message_id: str, raw: bytes) -> str:
        """Store a mail in a folder; a large one is completed in Drafts and then moved."""
        copy = await in_thread(sent_copy, raw)
        if len(raw) <= SINGLE_REQUEST_BYTES:
            return await self.client.create(folder, copy.with_files())
        drafts = await self.folders.id_of(DRAFTS)
        await self.client.delete_drafts(message_id)
        key = await self.client.create(drafts, copy.message)
        for file in copy.files:
            await self.client.attach(key, file_properties(file), file.content)
        return await self.client.move(key, folder)


def _size(row: Mapping[str, Any]) -> int:
    """The approximate size of a message; 0 if unknown. The id in a response varies in form."""
    for one in row.get("singleValueExtendedProperties") or ():
        if str(one["id"]).lower().endswith("e08"):
            return max(int(one["value"]), 0)
    return 0


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
