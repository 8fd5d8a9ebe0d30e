"""JMAP accounts, such as Fastmail's: mailboxes, labels, changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.errors import MailError, NotFound, ProviderError
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
from postroom.model.inbox import ARCHIVE, DRAFTS, JUNK, SENT, STANDARD_MAILBOXES
from postroom.model.limits import attachment_mb
from postroom.ports.provider import StoredRefs
from postroom.providers.server_text import Labels, keyword_of, longer_keywords_of
from postroom.providers.web.api import checks_responses, message_count
from postroom.providers.web.jmap_client import (
    RATES,
    SUBMISSION,
    JmapClient,
    MethodFailed,
    MethodRefused,
    error_text,
    method_error,
)
from postroom.providers.web.sync import (
    FolderPaths,
    HistoryExpired,
    HistoryReader,
    Parts,
    fetch_each,
    missing_refs,
    path_of,
)

_ROLES = {name.lower(): name for name in STANDARD_MAILBOXES} | {"spam": JUNK}


@dataclass(eq=False)
class JmapMailboxes(FolderPaths):
    """The mailboxes of an account: standard mailboxes by role, others by path."""

    client: JmapClient

    async def load(self) -> None:
        response = await self.client.call(
            "Mailbox/get", {"ids": None, "properties": ["id", "name", "role", "parentId"]}
        )
        rows = {str(row["id"]): row for row in response["list"]}
        self.names = {
            key: _ROLES.get(str(row.get("role") or "").lower())
            or path_of(row, rows, name="name", parent="parentId")
            for key, row in rows.items()
        }

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
            # QUIRK: Cyrus answers serverFail to an invalid mailbox name.
            return MethodRefused(str(error), error.type)
        return error


PAGE = 500
FLAGS = {"seen": "$seen", "flagged": "$flagged", "answered": "$answered", "draft": "$draft"}
_FLAGS_BY_KEYWORD = {keyword: flag for flag, keyword in FLAGS.items()}
_PROPERTIES = ["id", "blobId", "mailboxIds", "keywords", "receivedAt", "size"]
POLL_S = 30.0
MAX_BYTES = 50 * 2**20


@checks_responses("the JMAP server")
@dataclass(eq=False)
class JmapProvider(HistoryReader):
    """One account over JMAP; `state` is the state of its mail after the last read."""

    position_key = "state"
    names_key = "names"
    refusals = (HistoryExpired, MethodRefused)
    client: JmapClient
    address: str
    wants_to_send: bool = True
    labels: Labels = field(default_factory=Labels)
    state: str | None = None
    _blobs: dict[str, str] = field(default_factory=dict)
    _can_send: bool = False
    _can_alias: bool = False
    _has_push: bool = False
    _owner: str | None = None

    def __post_init__(self) -> None:
        self.folders = self.mailboxes = JmapMailboxes(self.client)

    @property
    def capabilities(self) -> Capabilities:
        mail_bytes = self.client.limit("maxSizeUpload", MAX_BYTES)
        files_bytes = self.client.mail_limit("maxSizeAttachmentsPerEmail", MAX_BYTES)
        return Capabilities(
            provider="fastmail",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=min(attachment_mb(mail_bytes), max(files_bytes // 2**20, 1)),
            rate_limits=RATES,
            has_labels=True,
            has_push=self._has_push,
            can_send=self._can_send,
            can_create_alias=self._can_alias,
            mail_bytes=mail_bytes,
            files_bytes=files_bytes,
            owner=self._owner,
        )

    async def check(self) -> None:
        self._owner = await self.client.account_id()
        await self.mailboxes.load()
        has_submission = await self.client.can(SUBMISSION)
        self._can_send = has_submission and self.wants_to_send
        self._can_alias = False
        if has_submission:
            # Not every server that can send has this method.
            with suppress(MethodRefused):
                await self.client.call("Identity/set", {})
                self._can_alias = True
        self._has_push = await self.client.has_events()

    async def identities(self) -> list[RemoteIdentity]:
        if not await self.client.can(SUBMISSION):
            return [RemoteIdentity(self.address)]
        response = await self.client.call("Identity/get", {"ids": None})
        return [
            RemoteIdentity(str(i["email"]), i.get("name") or "", i.get("htmlSignature") or "")
            for i in response.get("list", [])
            if "@" in str(i.get("email", "")) and "*" not in str(i["email"])
        ]

    async def create_alias(self, identity: RemoteIdentity) -> RemoteIdentity:
        name, signature = identity.name, identity.signature
        new = {"email": identity.email, "name": name, "htmlSignature": signature}
        response = await self.client.call("Identity/set", {"create": {"a": new}})
        refused = (response.get("notCreated") or {}).get("a")
        if refused:
            raise ProviderError(f"the provider refuses this address: {error_text(refused)}")
        return identity

    async def close(self) -> None:
        await self.client.api.close()

    # Changes at the provider.

    async def changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        self.labels.add(await known.labels())
        async for part in super().changes(since, known):
            yield part

    async def _messages_in(self, folder: str) -> AsyncIterator[tuple[RemoteMessage, ...]]:
        async for page in self._pages({"filter": {"inMailbox": folder}}):
            yield (await self._describe(_ids(page)))[0]

    async def _full_listing(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        before = await known.keys("")
        state = self._latest = (since or {}).get("state") or str(
            (await self.client.call("Email/get", {"ids": []}))["state"]
        )
        listing = {"state": state, "listing": True}
        listed: set[str] = set()
        total: int | None = None
        async for page in self._pages({"calculateTotal": True}):
            ids, total = _ids(page), message_count(page.get("total"))
            if not ids:
                break
            listed.update(ids)
            messages, drafts = await self._describe(ids)
            listed -= set(drafts)
            yield RemoteChanges(listing, messages, total=total)
            async for part in self._new_mail(listing):
                yield part
        yield RemoteChanges({"state": state}, removed=missing_refs(before, listed, total))
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

    async def _since(self, position: str) -> Parts:
        max_changes = self.client.limit("maxObjectsInGet", PAGE)
        state, has_more = position, True
        while has_more:
            query = {"sinceState": state, "maxChanges": max_changes}
            try:
                response = await self.client.call("Email/changes", query)
            except MethodRefused as error:
                # QUIRK: some servers answer invalidArguments to an unknown state.
                if error.type in ("cannotCalculateChanges", "invalidArguments"):
                    raise HistoryExpired from error
                raise
            state = str(response["newState"])
            has_more = bool(response.get("hasMoreChanges"))
            ids = [*response.get("created", []), *response.get("updated", [])]
            messages, drafts = await self._describe(ids)
            gone = [*response.get("destroyed", []), *drafts]
            refs = tuple(RemoteRef("", str(key)) for key in gone)
            yield RemoteChanges({"state": state}, messages, refs)
        self.state = state

    async def _describe(
        self, ids: Sequence[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """The messages with these ids, and the ids of drafts, which are not messages yet."""
        if not ids:
            return (), ()
        query = {"ids": list(ids), "properties": _PROPERTIES}
        response = await self.client.call("Email/get", query)
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
        flags = (_FLAGS_BY_KEYWORD.get(keyword.lower()) for keyword in keywords)
        names = (self.mailboxes.names.get(str(key), ARCHIVE) for key in row["mailboxIds"])
        return RemoteMessage(
            ref=RemoteRef("", str(row["id"])),
            mailboxes=tuple(dict.fromkeys(names)) or (ARCHIVE,),
            flags=tuple(flag for flag in flags if flag),
            labels=self.labels.labels_in(keywords),
            arrived_at=datetime.fromisoformat(row["receivedAt"]),
            size_bytes=int(row.get("size", 0)),
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        await self._describe([ref.key for ref in refs if ref.key not in self._blobs])

        async def one(ref: RemoteRef) -> bytes | None:
            blob = self._blobs.pop(ref.key, None)
            return await self.client.download(blob) if blob else None

        async for found in fetch_each(refs, one):
            yield found

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return (await self._describe([ref.key for ref in refs]))[0]

    # Changes made here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "delete":
            await self.destroy([ref.key for ref, _ in push.refs])
            return Pushed(removed_refs=tuple(ref for ref, _ in push.refs))
        if push.kind == "drop_draft":
            await self.delete_drafts(push.internet_message_id or "none")
            return Pushed()
        patch: dict[str, Any] = {f"keywords/{FLAGS[flag]}": True for flag in push.add_flags}
        patch |= {f"keywords/{FLAGS[flag]}": None for flag in push.remove_flags}
        self.labels.add(push.add_labels)
        for label in push.remove_labels:
            for keyword in (keyword_of(label), *longer_keywords_of(label)):
                patch[f"keywords/{_pointer(keyword.lower())}"] = None
        patch |= {f"keywords/{_pointer(keyword_of(n).lower())}": True for n in push.add_labels}
        if push.move_to is not None:
            patch["mailboxIds"] = {await self.mailboxes.id_of(push.move_to): True}
        update = {ref.key: patch for ref, _ in push.refs}
        response = await self.client.call("Email/set", {"update": update})
        for key, refused in (response.get("notUpdated") or {}).items():
            if refused.get("type") == "notFound":
                raise NotFound(f"the provider no longer has the message {key}")
            raise method_error("Email/set", refused)
        if push.move_to is None:
            return Pushed()
        name = self.mailboxes.names[next(iter(patch["mailboxIds"]))]
        return Pushed(added_refs=tuple((ref, (name,)) for ref, _ in push.refs))

    async def destroy(self, keys: Sequence[str]) -> None:
        """Delete messages; those that are gone already are no error."""
        response = await self.client.call("Email/set", {"destroy": list(keys)})
        for refused in (response.get("notDestroyed") or {}).values():
            if refused.get("type") != "notFound":
                raise method_error("Email/set", refused)

    async def delete_drafts(self, message_id: str) -> None:
        """Delete the drafts of a mail that was not sent."""
        if drafts := await self.find(DRAFTS, message_id):
            await self.destroy(drafts)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        # QUIRK: Cyrus sends the Bcc header to everybody, and a copy may be sent later: it must not
        # name the recipients of blind copies.
        found = await self.find(SENT, push.internet_message_id or "none")
        key = found[0] if found else (await self.import_into(SENT, raw))[0]
        return Pushed(added_refs=((RemoteRef("", key), (SENT,)),))

    async def find(self, mailbox: str, message_id: str) -> list[str]:
        """The messages of a mailbox with this Message-ID; servers match substrings, we compare."""
        folder = await self.mailboxes.id_of(mailbox)
        condition = {"inMailbox": folder, "header": ["Message-ID", message_id]}
        found = await self.client.call("Email/query", {"filter": condition, "limit": 10})
        if not found.get("ids"):
            return []
        query = {"ids": found["ids"], "properties": ["id", "messageId"]}
        response = await self.client.call("Email/get", query)
        bare = message_id.strip("<>")
        return [str(row["id"]) for row in response["list"] if bare in (row["messageId"] or ())]

    async def import_into(self, mailbox: str, raw: bytes) -> tuple[str, bool]:
        """Import a mail into a mailbox, as read (RFC 8621 §4.8). Raises MethodRefused.

        Returns its id, and False if the account had it already; then it is not moved.
        """
        blob = await self.client.upload(raw)
        keywords = {"$seen": True} | ({"$draft": True} if mailbox == DRAFTS else {})
        mailboxes = {await self.mailboxes.id_of(mailbox): True}
        email = {"blobId": blob, "mailboxIds": mailboxes, "keywords": keywords}
        response = await self.client.call("Email/import", {"emails": {"m": email}})
        created = (response.get("created") or {}).get("m")
        if created:
            return str(created["id"]), True
        refused = (response.get("notCreated") or {}).get("m", {})
        if refused.get("type") == "alreadyExists" and refused.get("existingId"):
            return str(refused["existingId"]), False
        if "blobId" in (refused.get("properties") or ()) or refused.get("type") == "blobNotFound":
            raise MethodFailed("Email/import: the upload was not found", "blobNotFound")
        raise method_error("Email/import", refused)

    # Notifications.

    async def wait(self) -> None:
        if self._has_push:
            with suppress(ProviderError):
                async for state in self.client.states():
                    if state != self.state:
                        return
        await asyncio.sleep(POLL_S)


def _pointer(keyword: str) -> str:
    """A keyword inside a JSON pointer (RFC 6901)."""
    return keyword.replace("~", "~0").replace("/", "~1")


def _ids(page: Mapping[str, Any]) -> list[str]:
    return [str(key) for key in page["ids"]]
