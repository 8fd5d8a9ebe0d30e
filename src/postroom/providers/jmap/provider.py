"""A JMAP account that is kept in step: the port `Provider`. Fastmail speaks it, and Cyrus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom.errors import NotFound, ProviderError
from postroom.model.account import Capabilities, RateLimits
from postroom.model.inbox import DRAFTS, SENT
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
from postroom.providers.encoded import attachment_mb
from postroom.providers.jmap.client import SUBMISSION, JmapClient, MethodRefused, refusal, said_of
from postroom.providers.jmap.mailboxes import Mailboxes
from postroom.providers.jmap.reading import FLAGS, Reading
from postroom.providers.keywords import keyword_of, longer_keywords_of
from postroom.providers.web.sense import makes_sense

POLL_S = 30.0
MOST_BYTES = 50 * 2**20
RATES = RateLimits(requests_per_second=10, burst=50)


@makes_sense
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
        self.mailboxes = Mailboxes(self.client)
        self.reading = Reading(self.client, self.mailboxes)

    @property
    def capabilities(self) -> Capabilities:
        mail_bytes = self.client.limit("maxSizeUpload", MOST_BYTES)
        files_bytes = self.client.mail_limit("maxSizeAttachmentsPerEmail", MOST_BYTES)
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
        await self.mailboxes.learn()
        has_submission = await self.client.can(SUBMISSION)
        self._can_send = has_submission and self.wants_to_send
        self._can_alias = has_submission and await self._sets_identities()
        self._has_push = await self.client.has_events()

    async def _sets_identities(self) -> bool:
        """Whether the server knows `Identity/set`: not every one does that can send."""
        try:
            await self.client.call(("Identity/set", {}))
        except MethodRefused:
            return False
        return True

    async def identities(self) -> list[RemoteIdentity]:
        if not await self.client.can(SUBMISSION):
            return [RemoteIdentity(self.address)]
        (answer,) = await self.client.call(("Identity/get", {"ids": None}))
        return [
            RemoteIdentity(str(i["email"]), i.get("name") or "", i.get("htmlSignature") or "")
            for i in answer.get("list", [])
            if "@" in str(i.get("email", "")) and "*" not in str(i["email"])
        ]

    async def create_alias(self, identity: RemoteIdentity) -> RemoteIdentity:
        new = {
            "email": identity.email,
            "name": identity.name,
            "htmlSignature": identity.signature,
        }
        (answer,) = await self.client.call(("Identity/set", {"create": {"a": new}}))
        refused = (answer.get("notCreated") or {}).get("a")
        if refused:
            raise ProviderError(f"the provider does not make this address: {said_of(refused)}")
        return identity

    async def close(self) -> None:
        await self.client.api.close()

    # What changed.

    def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        return self.reading.changes(since, known)

    def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        return self.reading.fetch(refs)

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return await self.reading.look(refs)

    # What was done here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "delete":
            return await self._destroy(push)
        if push.kind == "drop_draft":
            await self.drop_drafts(push.internet_message_id or "none")
            return Pushed()
        patch: dict[str, Any] = {f"keywords/{FLAGS[flag]}": True for flag in push.add_flags}
        patch |= {f"keywords/{FLAGS[flag]}": None for flag in push.remove_flags}
        self.reading.labels.learn(push.add_labels)
        for label in push.remove_labels:
            for keyword in (keyword_of(label), *longer_keywords_of(label)):
                patch[f"keywords/{_pointer(keyword.lower())}"] = None
        patch |= {f"keywords/{_pointer(keyword_of(n).lower())}": True for n in push.add_labels}
        if push.move_to is not None:
            patch["mailboxIds"] = {await self.mailboxes.id_of(push.move_to): True}
        keys = [ref.key for ref, _ in push.refs]
        update = dict.fromkeys(keys, patch)
        (answer,) = await self.client.call(("Email/set", {"update": update}))
        for key, refused in (answer.get("notUpdated") or {}).items():
            if refused.get("type") == "notFound":
                raise NotFound(f"the provider has no message {key} any more")
            raise refusal("Email/set", refused)
        if push.move_to is None:
            return Pushed()
        name = self.mailboxes.names[next(iter(patch["mailboxIds"]))]
        return Pushed(entered=tuple((ref, (name,)) for ref, _ in push.refs))

    async def _destroy(self, push: Push) -> Pushed:
        refs = tuple(ref for ref, _ in push.refs)
        await self.destroy([ref.key for ref in refs])
        return Pushed(left=refs)

    async def destroy(self, keys: Sequence[str]) -> None:
        """Remove messages for good; what is gone already is removed."""
        (answer,) = await self.client.call(("Email/set", {"destroy": list(keys)}))
        for refused in (answer.get("notDestroyed") or {}).values():
            if refused.get("type") != "notFound":
                raise refusal("Email/set", refused)

    async def drop_drafts(self, message_id: str) -> None:
        """Remove what was begun in Drafts to be sent, and was not."""
        begun = await self.find(DRAFTS, message_id)
        if begun:
            await self.destroy(begun)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        # QUIRK: Cyrus sends a Bcc header to everybody, and a copy may be what is sent later on:
        # with JMAP it names nobody who got a blind copy.
        found = await self.find(SENT, push.internet_message_id or "none")
        key = found[0] if found else (await self.import_into(SENT, raw))[0]
        return Pushed(entered=((RemoteRef("", key), (SENT,)),))

    async def find(self, mailbox: str, message_id: str) -> list[str]:
        """What is in a mailbox with this Message-ID; servers look for a part of it, we compare."""
        among = {
            "inMailbox": await self.mailboxes.id_of(mailbox),
            "header": ["Message-ID", message_id],
        }
        (found,) = await self.client.call(("Email/query", {"filter": among, "limit": 10}))
        if not found.get("ids"):
            return []
        wanted = {"ids": found["ids"], "properties": ["id", "messageId"]}
        (answer,) = await self.client.call(("Email/get", wanted))
        bare = message_id.strip("<>")
        return [str(row["id"]) for row in answer["list"] if bare in (row["messageId"] or ())]

    async def import_into(self, mailbox: str, raw: bytes) -> tuple[str, bool]:
        """Put a mail into a mailbox, read (RFC 8621 §4.8). Raises MethodRefused.

        True if it is new there; one that the account has already stays where it is.
        """
        blob = await self.client.upload(raw)
        keywords = {"$seen": True} | ({"$draft": True} if mailbox == DRAFTS else {})
        mailboxes = {await self.mailboxes.id_of(mailbox): True}
        email = {"blobId": blob, "mailboxIds": mailboxes, "keywords": keywords}
        (answer,) = await self.client.call(("Email/import", {"emails": {"m": email}}))
        created = (answer.get("created") or {}).get("m")
        if created:
            return str(created["id"]), True
        refused = (answer.get("notCreated") or {}).get("m", {})
        if refused.get("type") == "alreadyExists" and refused.get("existingId"):
            return str(refused["existingId"]), False
        raise refusal("Email/import", refused)

    # News.

    async def wait(self) -> None:
        if self._has_push:
            with suppress(ProviderError):
                async for state in self.client.states():
                    if state != self.reading.state:
                        return
        await asyncio.sleep(POLL_S)


def _pointer(keyword: str) -> str:
    """A keyword inside a JSON pointer (RFC 6901)."""
    return keyword.replace("~", "~0").replace("/", "~1")
