"""A JMAP account that is kept in step: the port `Provider`. Fastmail speaks it, and Cyrus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from postroom.errors import NotFound, ProviderError
from postroom.model.account import Capabilities, RateLimits
from postroom.model.inbox import ARCHIVE, DRAFTS, SENT
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
from postroom.providers.fetching import fetch_each
from postroom.providers.jmap.client import SUBMISSION, JmapClient, MethodRefused, refusal, said_of
from postroom.providers.jmap.mailboxes import Mailboxes
from postroom.providers.keywords import Labels, keyword_of, longer_keywords_of
from postroom.providers.web.sense import count_in, makes_sense

POLL_S = 30.0
LISTED_AT_ONCE = 500
MOST_BYTES = 50 * 2**20
RATES = RateLimits(requests_per_second=10, burst=50)
_PROPERTIES = ["id", "blobId", "mailboxIds", "keywords", "receivedAt", "size"]
_FLAGS = {"seen": "$seen", "flagged": "$flagged", "answered": "$answered", "draft": "$draft"}
_NAMES = {keyword: flag for flag, keyword in _FLAGS.items()}


@makes_sense
@dataclass(eq=False)
class JmapProvider:
    """One account over JMAP."""

    client: JmapClient
    address: str
    wants_to_send: bool = True
    _blobs: dict[str, str] = field(default_factory=dict)
    _state: str | None = None
    _labels: Labels = field(default_factory=Labels)
    _can_send: bool = False
    _can_alias: bool = False
    _has_push: bool = False
    _owner: str | None = None

    def __post_init__(self) -> None:
        self.mailboxes = Mailboxes(self.client)

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

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        self._labels.learn(await known.labels())
        await self.mailboxes.learn()
        if since is not None and not since.get("listing"):
            try:
                async for part in self._since(since["state"]):
                    yield part
            except MethodRefused as error:
                # QUIRK: to some servers a state that they do not know is an invalid argument.
                if error.type not in ("cannotCalculateChanges", "invalidArguments"):
                    raise
                since = None
            else:
                return
        async for part in self._everything(since, known):
            yield part

    async def _everything(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        """List all there is, newest first; what was begun goes on from its old state."""
        before = await known.keys("")
        state = since["state"] if since else await self._current_state()
        listing = {"state": state, "listing": True}
        listed: set[str] = set()
        news = state
        anchor: dict[str, Any] = {"position": 0}
        while True:
            query = {
                "sort": [{"property": "receivedAt", "isAscending": False}],
                "limit": self.client.limit("maxObjectsInGet", LISTED_AT_ONCE),
                "calculateTotal": True,
                **anchor,
            }
            (page,) = await self.client.call(("Email/query", query))
            ids = [str(key) for key in page["ids"]]
            if not ids:
                break
            if ids[-1] == anchor.get("anchor"):
                raise ProviderError("a list of the provider does not go on")
            listed.update(ids)
            messages, drafts = await self._describe(ids)
            listed -= set(drafts)
            yield RemoteChanges(listing, messages, total=count_in(page.get("total")))
            async for part in self._news(news):
                news = part.checkpoint["state"]
                yield replace(part, checkpoint=listing, gone=())
            anchor = {"anchor": ids[-1], "anchorOffset": 1}
        if count_in(page.get("total")) and before and not listed:
            raise ProviderError("the provider counts messages and lists none")
        gone = tuple(RemoteRef("", key) for key in sorted(before - listed))
        yield RemoteChanges({"state": state}, gone=gone)
        self._state = state

    async def _current_state(self) -> str:
        (answer,) = await self.client.call(("Email/get", {"ids": []}))
        return str(answer["state"])

    async def _news(self, state: str) -> AsyncIterator[RemoteChanges]:
        """What has happened during a long listing, which nobody wants to wait for."""
        with suppress(MethodRefused):
            async for part in self._since(state):
                yield part

    async def _since(self, state: str) -> AsyncIterator[RemoteChanges]:
        most = self.client.limit("maxObjectsInGet", LISTED_AT_ONCE)
        has_more = True
        while has_more:
            (answer,) = await self.client.call(
                ("Email/changes", {"sinceState": state, "maxChanges": most})
            )
            state = str(answer["newState"])
            has_more = bool(answer.get("hasMoreChanges"))
            ids = [*answer.get("created", []), *answer.get("updated", [])]
            messages, drafts = await self._describe(ids)
            gone = [*answer.get("destroyed", []), *drafts]
            yield RemoteChanges(
                {"state": state}, messages, tuple(RemoteRef("", str(key)) for key in gone)
            )
        self._state = state

    async def _describe(
        self, ids: Sequence[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """How messages stand, and which of them are drafts, which are no messages yet."""
        if not ids:
            return (), ()
        (answer,) = await self.client.call(
            ("Email/get", {"ids": list(ids), "properties": _PROPERTIES})
        )
        found = {str(row["id"]): row for row in answer["list"]}
        if any(box not in self.mailboxes.names for r in found.values() for box in r["mailboxIds"]):
            await self.mailboxes.learn()
        messages = {key: self._message(row) for key, row in found.items()}
        drafts = tuple(key for key, message in messages.items() if message.mailboxes == (DRAFTS,))
        self._blobs |= {key: str(row["blobId"]) for key, row in found.items()}
        kept = [messages[key] for key in ids if key in messages and key not in drafts]
        return tuple(kept), drafts

    def _message(self, row: Mapping[str, Any]) -> RemoteMessage:
        keywords = [str(keyword) for keyword, is_set in row["keywords"].items() if is_set]
        names = (self.mailboxes.names.get(str(key), ARCHIVE) for key in row["mailboxIds"])
        return RemoteMessage(
            ref=RemoteRef("", str(row["id"])),
            mailboxes=tuple(dict.fromkeys(names)) or (ARCHIVE,),
            flags=tuple(_NAMES[k.lower()] for k in keywords if k.lower() in _NAMES),
            labels=self._labels.among(keywords),
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

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return (await self._describe([ref.key for ref in refs]))[0]

    # What was done here.

    async def push(self, push: Push) -> Pushed:
        if push.kind == "delete":
            return await self._destroy(push)
        if push.kind == "drop_draft":
            await self.drop_drafts(push.internet_message_id or "none")
            return Pushed()
        patch: dict[str, Any] = {f"keywords/{_FLAGS[flag]}": True for flag in push.add_flags}
        patch |= {f"keywords/{_FLAGS[flag]}": None for flag in push.remove_flags}
        self._labels.learn(push.add_labels)
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
        key = found[0] if found else await self.import_into(SENT, raw)
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

    async def import_into(self, mailbox: str, raw: bytes) -> str:
        """Put a mail into a mailbox, read (RFC 8621 §4.8). Raises MethodRefused."""
        blob = await self.client.upload(raw)
        keywords = {"$seen": True} | ({"$draft": True} if mailbox == DRAFTS else {})
        mailboxes = {await self.mailboxes.id_of(mailbox): True}
        email = {"blobId": blob, "mailboxIds": mailboxes, "keywords": keywords}
        (answer,) = await self.client.call(("Email/import", {"emails": {"m": email}}))
        created = (answer.get("created") or {}).get("m")
        if created:
            return str(created["id"])
        refused = (answer.get("notCreated") or {}).get("m", {})
        if refused.get("type") == "alreadyExists" and refused.get("existingId"):
            return str(refused["existingId"])
        raise refusal("Email/import", refused)

    # News.

    async def wait(self) -> None:
        if self._has_push:
            with suppress(ProviderError):
                async for state in self.client.states():
                    if state != self._state:
                        return
        await asyncio.sleep(POLL_S)


def _pointer(keyword: str) -> str:
    """A keyword inside a JSON pointer (RFC 6901)."""
    return keyword.replace("~", "~0").replace("/", "~1")
