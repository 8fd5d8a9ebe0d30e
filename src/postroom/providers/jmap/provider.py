"""JMAP accounts, such as Fastmail's: the port `Provider`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom.errors import NotFound, ProviderError
from postroom.model.account import (
    Capabilities,
    Checkpoint,
    Push,
    Pushed,
    RateLimits,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.inbox import DRAFTS, SENT
from postroom.ports.provider import Known
from postroom.providers.jmap.client import (
    SUBMISSION,
    JmapClient,
    MethodFailed,
    MethodRefused,
    error_text,
    method_error,
)
from postroom.providers.jmap.reader import FLAGS, JmapMailboxes, JmapReader
from postroom.providers.keywords import keyword_of, longer_keywords_of
from postroom.providers.sending import attachment_mb
from postroom.providers.web.responses import checks_responses

POLL_S = 30.0
MAX_BYTES = 50 * 2**20
RATES = RateLimits(requests_per_second=10, burst=50)


@checks_responses("the JMAP server")
@dataclass(eq=False)
class JmapProvider:
    """One account over JMAP."""

    client: JmapClient
    address: str
    wants_to_send: bool = True
    _can_send: bool = False
    _can_alias: bool = False
    _has_push: bool = False
    _owner: str | None = None

    def __post_init__(self) -> None:
        self.mailboxes = JmapMailboxes(self.client)
        self.reader = JmapReader(self.client, self.mailboxes)

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
        self._can_alias = has_submission and await self._can_set_identities()
        self._has_push = await self.client.has_events()

    async def _can_set_identities(self) -> bool:
        """Whether the server has `Identity/set`; not every server that can send does."""
        try:
            await self.client.call("Identity/set", {})
        except MethodRefused:
            return False
        return True

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
        new = {
            "email": identity.email,
            "name": identity.name,
            "htmlSignature": identity.signature,
        }
        response = await self.client.call("Identity/set", {"create": {"a": new}})
        refused = (response.get("notCreated") or {}).get("a")
        if refused:
            raise ProviderError(f"the provider refuses this address: {error_text(refused)}")
        return identity

    async def close(self) -> None:
        await self.client.api.close()

    # Changes at the provider.

    def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        return self.reader.changes(since, known)

    def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        return self.reader.fetch(refs)

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return await self.reader.read_states(refs)

    # Changes made here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "delete":
            await self.destroy([ref.key for ref, _ in push.refs])
            return Pushed(left=tuple(ref for ref, _ in push.refs))
        if push.kind == "drop_draft":
            await self.delete_drafts(push.internet_message_id or "none")
            return Pushed()
        patch: dict[str, Any] = {f"keywords/{FLAGS[flag]}": True for flag in push.add_flags}
        patch |= {f"keywords/{FLAGS[flag]}": None for flag in push.remove_flags}
        self.reader.labels.add(push.add_labels)
        for label in push.remove_labels:
            for keyword in (keyword_of(label), *longer_keywords_of(label)):
                patch[f"keywords/{_pointer(keyword.lower())}"] = None
        patch |= {f"keywords/{_pointer(keyword_of(n).lower())}": True for n in push.add_labels}
        if push.move_to is not None:
            patch["mailboxIds"] = {await self.mailboxes.id_of(push.move_to): True}
        keys = [ref.key for ref, _ in push.refs]
        update = dict.fromkeys(keys, patch)
        response = await self.client.call("Email/set", {"update": update})
        for key, refused in (response.get("notUpdated") or {}).items():
            if refused.get("type") == "notFound":
                raise NotFound(f"the provider no longer has the message {key}")
            raise method_error("Email/set", refused)
        if push.move_to is None:
            return Pushed()
        name = self.mailboxes.names[next(iter(patch["mailboxIds"]))]
        return Pushed(entered=tuple((ref, (name,)) for ref, _ in push.refs))

    async def destroy(self, keys: Sequence[str]) -> None:
        """Delete messages; those that are gone already are no error."""
        response = await self.client.call("Email/set", {"destroy": list(keys)})
        for refused in (response.get("notDestroyed") or {}).values():
            if refused.get("type") != "notFound":
                raise method_error("Email/set", refused)

    async def delete_drafts(self, message_id: str) -> None:
        """Delete the drafts of a mail that was not sent."""
        drafts = await self.find(DRAFTS, message_id)
        if drafts:
            await self.destroy(drafts)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        # QUIRK: Cyrus sends the Bcc header to everybody, and a copy may be sent later: it must not
        # name the recipients of blind copies.
        found = await self.find(SENT, push.internet_message_id or "none")
        key = found[0] if found else (await self.import_into(SENT, raw))[0]
        return Pushed(entered=((RemoteRef("", key), (SENT,)),))

    async def find(self, mailbox: str, message_id: str) -> list[str]:
        """The messages of a mailbox with this Message-ID; servers match substrings, we compare."""
        condition = {
            "inMailbox": await self.mailboxes.id_of(mailbox),
            "header": ["Message-ID", message_id],
        }
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
                    if state != self.reader.state:
                        return
        await asyncio.sleep(POLL_S)


def _pointer(keyword: str) -> str:
    """A keyword inside a JSON pointer (RFC 6901)."""
    return keyword.replace("~", "~0").replace("/", "~1")
