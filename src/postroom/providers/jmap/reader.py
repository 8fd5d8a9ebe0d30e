"""Reading mail and mailboxes over JMAP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from postroom.errors import MailError, ProviderError
from postroom.model.account import Checkpoint, RemoteChanges, RemoteMessage, RemoteRef
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.ports.provider import Known
from postroom.providers.jmap.client import JmapClient, MethodFailed, MethodRefused, method_error
from postroom.providers.keywords import Labels
from postroom.providers.web.responses import checks_responses, message_count
from postroom.providers.web.sync import FolderPaths, fetch_each, missing_refs, path_of

_ROLES = {
    "inbox": INBOX,
    "sent": SENT,
    "drafts": DRAFTS,
    "archive": ARCHIVE,
    "junk": JUNK,
    "spam": JUNK,
    "trash": TRASH,
}


@dataclass(eq=False)
class JmapMailboxes(FolderPaths):
    """The mailboxes of an account: standard mailboxes by role, others by path."""

    client: JmapClient

    async def load(self) -> None:
        response = await self.client.call(
            "Mailbox/get", {"ids": None, "properties": ["id", "name", "role", "parentId"]}
        )
        rows = {str(row["id"]): row for row in response["list"]}
        self.names = {key: _mailbox_name(row, rows) for key, row in rows.items()}

    async def create(self, path: str, parent: str | None) -> str | MailError:
        role = next((role for role, ours in _ROLES.items() if ours == path), None)
        new = {"name": path.rpartition("/")[2], "parentId": parent}
        new |= {"role": role} if role else {}
        response = await self.client.call("Mailbox/set", {"create": {"m": new}})
        created = (response.get("created") or {}).get("m")
        if created:
            return str(created["id"])
        error = method_error("Mailbox/set", (response.get("notCreated") or {}).get("m", {}))
        if isinstance(error, MethodFailed):
            # QUIRK: Cyrus responses serverFail to an invalid mailbox name.
            return MethodRefused(str(error), error.type)
        return error


def _mailbox_name(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Our name for a mailbox: by role, or else its path."""
    ours = _ROLES.get(str(row.get("role") or "").lower())
    if ours is not None:
        return ours
    return path_of(row, rows, name="name", parent="parentId")


PAGE = 500
FLAGS = {"seen": "$seen", "flagged": "$flagged", "answered": "$answered", "draft": "$draft"}
_FLAGS_BY_KEYWORD = {keyword: flag for flag, keyword in FLAGS.items()}
_PROPERTIES = ["id", "blobId", "mailboxIds", "keywords", "receivedAt", "size"]


@checks_responses("the JMAP server")
@dataclass(eq=False)
class JmapReader:
    """Reads an account; `state` is the state of its mail after the last read."""

    client: JmapClient
    mailboxes: JmapMailboxes
    labels: Labels = field(default_factory=Labels)
    state: str | None = None
    _blobs: dict[str, str] = field(default_factory=dict)

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        self.labels.add(await known.labels())
        await self.mailboxes.load()
        names = dict(self.mailboxes.names)
        async for part in self._renamed(since or {}):
            yield part
        async for part in self._changes(since, known):
            yield replace(part, checkpoint={**part.checkpoint, "names": names})

    async def _renamed(self, since: Checkpoint) -> AsyncIterator[RemoteChanges]:
        """The messages in renamed mailboxes; renames do not change their state."""
        for key in self.mailboxes.renamed_since(since.get("names", {})):
            async for page in self._pages({"filter": {"inMailbox": key}}):
                yield RemoteChanges(since, (await self._describe(_ids(page)))[0])

    async def _changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        if since is not None and not since.get("listing"):
            try:
                async for part in self._since(since["state"]):
                    yield part
            except MethodRefused as error:
                # QUIRK: some servers response invalidArguments to an unknown state.
                if error.type not in ("cannotCalculateChanges", "invalidArguments"):
                    raise
                since = None
            else:
                return
        async for part in self._full_listing(since, known):
            yield part

    async def _full_listing(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        """List every message, newest first; an interrupted listing keeps its old state."""
        before = await known.keys("")
        state = since["state"] if since else await self._current_state()
        listing = {"state": state, "listing": True}
        listed: set[str] = set()
        latest = state
        total: int | None = None
        async for page in self._pages({"calculateTotal": True}):
            ids, total = _ids(page), message_count(page.get("total"))
            if not ids:
                break
            listed.update(ids)
            messages, drafts = await self._describe(ids)
            listed -= set(drafts)
            yield RemoteChanges(listing, messages, total=total)
            async for part in self._new_mail(latest):
                latest = part.checkpoint["state"]
                yield replace(part, checkpoint=listing, gone=())
        yield RemoteChanges({"state": state}, gone=missing_refs(before, listed, total))
        self.state = state

    async def _pages(self, query: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Query messages, newest first, page by page; the last page is empty."""
        anchor: dict[str, Any] = {"position": 0}
        while True:
            query_page = {
                "sort": [{"property": "receivedAt", "isAscending": False}],
                "limit": self.client.limit("maxObjectsInGet", PAGE),
                **query,
                **anchor,
            }
            page = await self.client.call("Email/query", query_page)
            ids = _ids(page)
            if ids and ids[-1] == anchor.get("anchor"):
                raise ProviderError("the provider repeats the same page of a list")
            yield page
            if not ids:
                return
            anchor = {"anchor": ids[-1], "anchorOffset": 1}

    async def _current_state(self) -> str:
        response = await self.client.call("Email/get", {"ids": []})
        return str(response["state"])

    async def _new_mail(self, state: str) -> AsyncIterator[RemoteChanges]:
        """The changes during a long listing."""
        with suppress(MethodRefused):
            async for part in self._since(state):
                yield part

    async def _since(self, state: str) -> AsyncIterator[RemoteChanges]:
        max_changes = self.client.limit("maxObjectsInGet", PAGE)
        has_more = True
        while has_more:
            response = await self.client.call(
                "Email/changes", {"sinceState": state, "maxChanges": max_changes}
            )
            state = str(response["newState"])
            has_more = bool(response.get("hasMoreChanges"))
            ids = [*response.get("created", []), *response.get("updated", [])]
            messages, drafts = await self._describe(ids)
            gone = [*response.get("destroyed", []), *drafts]
            yield RemoteChanges(
                {"state": state}, messages, tuple(RemoteRef("", str(key)) for key in gone)
            )
        self.state = state

    async def _describe(
        self, ids: Sequence[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """The messages with these ids, and the ids of drafts, which are not messages yet."""
        if not ids:
            return (), ()
        response = await self.client.call(
            "Email/get", {"ids": list(ids), "properties": _PROPERTIES}
        )
        found = {str(row["id"]): row for row in response["list"]}
        if any(box not in self.mailboxes.names for r in found.values() for box in r["mailboxIds"]):
            await self.mailboxes.load()
        messages = {key: self._message(row) for key, row in found.items()}
        drafts = tuple(key for key, message in messages.items() if message.mailboxes == (DRAFTS,))
        self._blobs |= {key: str(row["blobId"]) for key, row in found.items()}
        known = [messages[key] for key in ids if key in messages and key not in drafts]
        return tuple(known), drafts

    def _message(self, row: Mapping[str, Any]) -> RemoteMessage:
        keywords = [str(keyword) for keyword, is_set in row["keywords"].items() if is_set]
        names = (self.mailboxes.names.get(str(key), ARCHIVE) for key in row["mailboxIds"])
        return RemoteMessage(
            ref=RemoteRef("", str(row["id"])),
            mailboxes=tuple(dict.fromkeys(names)) or (ARCHIVE,),
            flags=tuple(
                _FLAGS_BY_KEYWORD[k.lower()] for k in keywords if k.lower() in _FLAGS_BY_KEYWORD
            ),
            labels=self.labels.labels_in(keywords),
            arrived_at=datetime.fromisoformat(row["receivedAt"]),
            size_bytes=int(row.get("size", 0)),
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        missing = [ref.key for ref in refs if ref.key not in self._blobs]
        await self._describe(missing)

        async def one(ref: RemoteRef) -> bytes | None:
            blob = self._blobs.pop(ref.key, None)
            return await self.client.download(blob) if blob else None

        async for found in fetch_each(refs, one):
            yield found

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return (await self._describe([ref.key for ref in refs]))[0]


def _ids(page: Mapping[str, Any]) -> list[str]:
    return [str(key) for key in page["ids"]]
