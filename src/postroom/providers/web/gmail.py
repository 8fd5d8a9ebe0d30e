"""Gmail as a provider: mailboxes, labels, changes, sending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import Conflict, MailError, ProviderError
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
from postroom.model.mail.sending import Envelope, Outcome
from postroom.ports.provider import StoredRefs
from postroom.providers.server_text import plain_name
from postroom.providers.web.api import ApiRefused, checks_responses, message_count, message_errors
from postroom.providers.web.gmail_client import RATES, GmailClient, raw_of
from postroom.providers.web.history_reader import (
    CONCURRENT_REQUESTS,
    FolderNames,
    HistoryReader,
    Parts,
    fetch_each,
    missing_refs,
)
from postroom.providers.web_sender import BeforeSubmit, WebSender, with_bcc

_MAILBOXES = {"INBOX": INBOX, "SENT": SENT, "DRAFT": DRAFTS, "SPAM": JUNK, "TRASH": TRASH}
IDS = {name: key for key, name in _MAILBOXES.items()}
"""The system labels that are mailboxes."""


@dataclass(eq=False)
class GmailLabels(FolderNames):
    """The labels of an account; a slash in a name does not nest labels."""

    client: GmailClient

    async def load(self) -> None:
        self.names = {
            str(row["id"]): plain_name(str(row["name"]))
            for row in await self.client.labels()
            if row.get("type") != "system"
        }

    async def create(self, path: str, parent: str | None) -> str | MailError:
        try:
            return str((await self.client.create_label(path))["id"])
        except ApiRefused as refusal:
            if refusal.status not in (400, 409):
                raise
            return refusal


def mailboxes_of(keys: Sequence[str]) -> tuple[str, ...]:
    """The mailboxes of a message; one in Trash or Spam is in no other, as Gmail shows it."""
    found = tuple(_MAILBOXES[key] for key in keys if key in _MAILBOXES)
    hidden = tuple(name for name in found if name in (TRASH, JUNK))
    return hidden or found or (ARCHIVE,)


MAX_BYTES = 35 * 2**20
"""The limit of `messages.send` in Google's discovery document."""

LARGE_BYTES = 256 * 2**10
"""The size of larger messages is requested first, so that few are in memory at once."""

_BATCH = 40
_NEW_MAIL_EVERY = 5
"""After how many batches of a listing new mail is requested."""

_UNSUPPORTED_FLAGS = ("answered",)
_CHANGES = ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved")


@checks_responses("Gmail")
@dataclass(eq=False)
class GmailProvider(HistoryReader):
    """One account at Gmail. System labels are flags and mailboxes, other labels are labels."""

    position_key = "history"
    names_key = "labels"
    client: GmailClient
    address: str
    can_send: bool = True
    _raws: dict[str, bytes] = field(default_factory=dict)
    _owner: str | None = None

    def __post_init__(self) -> None:
        self.folders = self.labels = GmailLabels(self.client)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            provider="gmail",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=min(25, attachment_mb(MAX_BYTES)),
            rate_limits=RATES,
            has_labels=True,
            has_push=False,
            can_send=self.can_send,
            can_create_alias=False,
            mail_bytes=MAX_BYTES,
            owner=self._owner,
            owner_address=self._owner,
        )

    async def check(self) -> None:
        email = (await self.client.profile()).get("emailAddress")
        self._owner = str(email).lower() if email else None
        await self.labels.load()

    async def identities(self) -> list[RemoteIdentity]:
        rows = await self.client.send_as()
        usable = [r for r in rows if r.get("verificationStatus", "accepted") == "accepted"]
        usable.sort(key=lambda row: not row.get("isPrimary"))
        return [
            RemoteIdentity(
                str(row["sendAsEmail"]), row.get("displayName") or "", row.get("signature") or ""
            )
            for row in usable
        ]

    async def close(self) -> None:
        await self.client.api.close()

    # Changes at the provider.

    async def _messages_in(self, folder: str) -> AsyncIterator[tuple[RemoteMessage, ...]]:
        async for ids in self.client.list_ids(label=folder):
            for start in range(0, len(ids), _BATCH):
                chunk = ids[start:][:_BATCH]
                yield (await self._read(chunk, chunk))[0]

    async def _full_listing(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        profile, at = await self.client.profile(), since or {}
        total = message_count(profile.get("messagesTotal"))
        look_again = bool(at.get("look_again"))
        history = self._latest = at.get("history") or _history_id(profile["historyId"])
        listing = {"history": history, "listing": True, "look_again": look_again}
        before = await known.keys("")
        large = {key async for ids in self.client.list_ids(larger_than=LARGE_BYTES) for key in ids}
        listed: set[str] = set()
        async for ids in self.client.list_ids():
            listed.update(ids)
            unread = [key for key in ids if look_again or key not in before]
            for start in range(0, len(unread), _BATCH):
                messages, drafts = await self._read(unread[start:][:_BATCH], before | large)
                listed -= set(drafts)
                yield RemoteChanges(listing, messages, total=total)
                if (start // _BATCH) % _NEW_MAIL_EVERY == 0:
                    async for part in self._new_mail(listing):
                        yield part
        yield RemoteChanges({"history": history}, removed=missing_refs(before, listed, total))

    async def _since(self, position: str) -> Parts:
        changed: dict[str, None] = {}
        newest = position
        async for page in self.client.history(position):
            newest = _history_id(page.get("historyId") or newest)
            for entry in page.get("history", []):
                rows = [
                    row["message"]
                    for kind in _CHANGES
                    for row in entry.get(kind, [])
                    if "message" in row
                ]
                changed |= {str(row["id"]): None for row in [*entry.get("messages", []), *rows]}
        ids = list(reversed(changed))
        for start in range(0, len(ids), _BATCH):
            chunk = ids[start:][:_BATCH]
            messages, _ = await self._read(chunk, chunk)
            found = {message.ref.key for message in messages}
            gone = tuple(RemoteRef("", key) for key in chunk if key not in found)
            yield RemoteChanges({"history": position}, messages, gone)
        yield RemoteChanges({"history": newest})

    async def _read(
        self, ids: Sequence[str], described: Collection[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """Messages and ids of drafts; those not in *described* are read in full, for equal cost."""
        limit = asyncio.Semaphore(CONCURRENT_REQUESTS)

        async def one(key: str) -> dict[str, Any] | None:
            async with limit:
                if key not in described:
                    # A message that cannot be read is described only, and fetched later.
                    with suppress(ProviderError):
                        row = await self.client.message(key, "raw")
                        if row is not None:
                            return row
                return await self.client.message(key, "minimal")

        rows = [row for row in await asyncio.gather(*map(one, ids)) if row is not None]
        keys = [str(key) for row in rows for key in row.get("labelIds", [])]
        if any(key.startswith("Label_") and key not in self.labels.names for key in keys):
            await self.labels.load()
        messages = [self._message(row) for row in rows]
        drafts = tuple(m.ref.key for m in messages if m.mailboxes == (DRAFTS,))
        self._raws = {}
        for row in rows:
            if "raw" in row and str(row["id"]) not in drafts:
                with suppress(ProviderError):
                    self._raws[str(row["id"])] = raw_of(row)
        return tuple(m for m in messages if m.ref.key not in drafts), drafts

    def _message(self, row: Mapping[str, Any]) -> RemoteMessage:
        keys = [str(key) for key in row.get("labelIds", [])]
        flags = [] if "UNREAD" in keys else ["seen"]
        flags += ["flagged"] if "STARRED" in keys else []
        return RemoteMessage(
            ref=RemoteRef("", str(row["id"])),
            mailboxes=mailboxes_of(keys),
            flags=tuple(flags),
            labels=tuple(self.labels.names[key] for key in keys if key in self.labels.names),
            arrived_at=_parse_time(row.get("internalDate")),
            size_bytes=len(str(row.get("raw", ""))) or int(row.get("sizeEstimate") or 0),
            unsupported_flags=_UNSUPPORTED_FLAGS,
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        async def one(ref: RemoteRef) -> bytes | None:
            raw = self._raws.pop(ref.key, None)
            row = await self.client.message(ref.key, "raw") if raw is None else None
            return raw if row is None else await in_thread(raw_of, row)

        async for found in fetch_each(refs, one):
            yield found

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        keys = [ref.key for ref in refs]
        return (await self._read(keys, keys))[0]

    # Changes made here.

    async def push(self, push: Push) -> Pushed:
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        for ref, mailboxes in push.refs:
            with message_errors(ref.key):
                now = await self._push_one(ref.key, push)
            # The field is missing if the message has no labels.
            there = mailboxes if now is None else mailboxes_of(now.get("labelIds") or [])
            if push.kind == "delete" and now is None:
                left.append(ref)
            else:
                entered.append((ref, there))
        return Pushed(tuple(left), tuple(entered))

    async def _push_one(self, key: str, push: Push) -> Mapping[str, Any] | None:
        """Make a change and return the message; None if nothing was to be changed."""
        if push.kind == "delete":
            is_gone = await self.client.delete(key)
            return None if is_gone else {"labelIds": [IDS[TRASH]]}
        adding = ["STARRED"] if "flagged" in push.add_flags else []
        removing = ["STARRED"] if "flagged" in push.remove_flags else []
        removing += ["UNREAD"] if "seen" in push.add_flags else []
        adding += ["UNREAD"] if "seen" in push.remove_flags else []
        adding += [await self.labels.id_of(name) for name in push.add_labels]
        removing += [known for name in push.remove_labels if (known := self.labels.find(name))]
        if push.move_to is not None:
            to, away = _labels_of_move(push.move_to)
            adding += to
            removing += away
        if not adding and not removing:
            return None
        return await self.client.modify(key, adding, removing)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        key = await self.client.find(push.internet_message_id or "none", IDS[SENT])
        if key is None:
            copy = await in_thread(with_bcc, raw, push.recipients)
            key = await self.client.insert(copy, [IDS[SENT]])
        return Pushed(added_refs=((RemoteRef("", key), (SENT,)),))


def _labels_of_move(name: str) -> tuple[list[str], list[str]]:
    """The system labels that a move adds and removes."""
    if name == ARCHIVE:
        return [], ["INBOX", "SPAM", "TRASH"]
    if name not in (INBOX, JUNK, TRASH):
        raise Conflict(f"Gmail cannot move mail to {name}")
    key = IDS[name]
    return [key], [other for other in ("INBOX", "SPAM", "TRASH") if other != key]


def _history_id(value: Any) -> str:
    """A history id. Raises ValueError: any other value in a checkpoint would lose our position."""
    return str(int(value))


def _parse_time(milliseconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(str(milliseconds)) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(eq=False)
class GmailSender(WebSender):
    """Sends mail over the Gmail API, which stores a copy in Sent."""

    name = "Gmail"
    client: GmailClient

    async def _submit(
        self, envelope: Envelope, raw: bytes, before_submit: BeforeSubmit, drafts: list[str]
    ) -> Outcome:
        mail = await in_thread(with_bcc, raw, envelope.recipients)
        await before_submit()
        await self.client.send(mail)
        return Outcome("sent", "accepted by Gmail")

    async def _discard(self, drafts: Sequence[str]) -> None:
        """Nothing to do: Gmail sends without a draft."""

    async def close(self) -> None:
        await self.client.api.close()
