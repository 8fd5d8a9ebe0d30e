"""A Gmail account that is kept in step: the port `Provider`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import Conflict, NotFound, ProviderError
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
from postroom.providers.fetching import AT_ONCE, fetch_each
from postroom.providers.gmail.client import GmailClient, HistoryExpired, raw_of
from postroom.providers.gmail.labels import IDS, GmailLabels, mailboxes_of
from postroom.providers.web.api import ApiRefused
from postroom.providers.web.sense import count_in, makes_sense

RATES = RateLimits(requests_per_second=40, burst=50)
"""Google counts 250 units a second and user; to read a message costs five of them."""

MOST_BYTES = 35 * 2**20
"""What `messages.send` takes, by Google's discovery document."""

LARGE_BYTES = 256 * 2**10
"""Mail above this size is first asked how large it is, and then read with little beside it."""

_READ_AT_ONCE = 40
_NEWS_EVERY = 5
"""After how many parts of a listing we look for news."""

_UNTOLD = ("answered",)


@makes_sense
@dataclass(eq=False)
class GmailProvider:
    """One account at Gmail. Labels are labels here too; system labels are flags and mailboxes."""

    client: GmailClient
    address: str
    can_send: bool = True
    _raws: dict[str, bytes] = field(default_factory=dict)
    _owner: str | None = None

    def __post_init__(self) -> None:
        self.labels = GmailLabels(self.client)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            provider="gmail",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=min(25, attachment_mb(MOST_BYTES)),
            rate_limits=RATES,
            has_labels=True,
            has_push=False,
            can_send=self.can_send,
            can_create_alias=False,
            mail_bytes=MOST_BYTES,
            owner=self._owner,
            owner_address=self._owner,
        )

    async def check(self) -> None:
        email = (await self.client.profile()).get("emailAddress")
        self._owner = str(email).lower() if email else None
        await self.labels.learn()

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

    # What changed.

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        await self.labels.learn()
        names = dict(self.labels.names)
        async for part in self._relabelled(since or {}):
            yield part
        async for part in self._changes(since, known):
            yield replace(part, checkpoint={**part.checkpoint, "labels": names})

    async def _relabelled(self, since: Checkpoint) -> AsyncIterator[RemoteChanges]:
        """What has labels that are called otherwise now: of that no history tells."""
        for label in self.labels.renamed_since(since.get("labels", {})):
            async for ids in self.client.list_ids(label=label):
                for start in range(0, len(ids), _READ_AT_ONCE):
                    chunk = ids[start:][:_READ_AT_ONCE]
                    yield RemoteChanges(since, (await self._read(chunk, chunk))[0])

    async def _changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        if since is not None and not since.get("listing"):
            try:
                async for part in self._since(since["history"]):
                    yield part
            except HistoryExpired:
                async for part in self._everything(None, known, look_again=True):
                    yield part
            return
        look_again = bool((since or {}).get("look_again"))
        async for part in self._everything(since, known, look_again=look_again):
            yield part

    async def _everything(
        self, since: Checkpoint | None, known: Known, *, look_again: bool
    ) -> AsyncIterator[RemoteChanges]:
        """List all there is. *look_again* also reads what we have: the history is lost."""
        profile = await self.client.profile()
        total = count_in(profile.get("messagesTotal"))
        history = since["history"] if since else _history(profile["historyId"])
        listing = {"history": history, "listing": True, "look_again": look_again}
        before = await known.keys("")
        large = {key async for ids in self.client.list_ids(larger_than=LARGE_BYTES) for key in ids}
        listed: set[str] = set()
        news = history
        async for ids in self.client.list_ids():
            listed.update(ids)
            wanted = [key for key in ids if look_again or key not in before]
            for start in range(0, len(wanted), _READ_AT_ONCE):
                messages, drafts = await self._read(wanted[start:][:_READ_AT_ONCE], before | large)
                listed -= set(drafts)
                yield RemoteChanges(listing, messages, total=total)
                if (start // _READ_AT_ONCE) % _NEWS_EVERY == 0:
                    async for part in self._news(news):
                        news = part.checkpoint["history"]
                        yield replace(part, checkpoint=listing, gone=())
        if total and before and not listed:
            raise ProviderError("the provider counts messages and lists none")
        gone = tuple(RemoteRef("", key) for key in sorted(before - listed))
        yield RemoteChanges({"history": history}, gone=gone)

    async def _news(self, history: str) -> AsyncIterator[RemoteChanges]:
        """What has happened during a long listing, which nobody wants to wait for."""
        with suppress(HistoryExpired):
            async for part in self._since(history):
                yield part

    async def _since(self, history: str) -> AsyncIterator[RemoteChanges]:
        changed: dict[str, None] = {}
        newest = history
        async for page in self.client.history(history):
            newest = _history(page.get("historyId") or newest)
            for entry in page.get("history", []):
                for message in _messages_in(entry):
                    changed[str(message["id"])] = None
        ids = list(reversed(changed))
        for start in range(0, len(ids), _READ_AT_ONCE):
            chunk = ids[start:][:_READ_AT_ONCE]
            messages, drafts = await self._read(chunk, chunk)
            found = {message.ref.key for message in messages}
            gone = [key for key in chunk if key not in found or key in drafts]
            yield RemoteChanges(
                {"history": history}, messages, tuple(RemoteRef("", key) for key in gone)
            )
        yield RemoteChanges({"history": newest})

    async def _read(
        self, ids: Sequence[str], described: Collection[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """How messages stand; those not only *described* are read whole, which costs the same."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(key: str) -> dict[str, Any] | None:
            async with limit:
                if key not in described:
                    # One that cannot be read is known by its place, and fetched again alone.
                    with suppress(ProviderError):
                        row = await self.client.message(key, "raw")
                        if row is not None:
                            return row
                return await self.client.message(key, "minimal")

        rows = [row for row in await asyncio.gather(*map(one, ids)) if row is not None]
        await self.labels.learn_new(str(key) for row in rows for key in row.get("labelIds", []))
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
            labels=self.labels.among(keys),
            arrived_at=_moment(row.get("internalDate")),
            size_bytes=len(str(row.get("raw", ""))) or int(row.get("sizeEstimate") or 0),
            untold=_UNTOLD,
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        async for found in fetch_each(refs, self._raw):
            yield found

    async def _raw(self, ref: RemoteRef) -> bytes | None:
        raw = self._raws.pop(ref.key, None)
        if raw is not None:
            return raw
        row = await self.client.message(ref.key, "raw")
        return None if row is None else await in_thread(raw_of, row)

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        keys = [ref.key for ref in refs]
        return (await self._read(keys, keys))[0]

    # What was done here.

    async def push(self, push: Push) -> Pushed:
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        for ref, mailboxes in push.refs:
            try:
                now = await self._push_one(ref.key, push)
            except ApiRefused as refusal:
                if refusal.status == 404:
                    raise NotFound(f"the provider has no message {ref.key} any more") from refusal
                raise
            # A message without any label has no list of them at all.
            there = mailboxes if now is None else mailboxes_of(now.get("labelIds") or [])
            if push.kind == "delete" and now is None:
                left.append(ref)
            else:
                entered.append((ref, there))
        return Pushed(tuple(left), tuple(entered))

    async def _push_one(self, key: str, push: Push) -> Mapping[str, Any] | None:
        """Make a change; how the message stands then, if there was anything to do."""
        if push.kind == "delete":
            is_gone = await self.client.delete(key)
            return None if is_gone else {"labelIds": [IDS[TRASH]]}
        add = {"flagged": "STARRED"}
        adding = [add[flag] for flag in push.add_flags if flag in add]
        removing = [add[flag] for flag in push.remove_flags if flag in add]
        removing += ["UNREAD"] if "seen" in push.add_flags else []
        adding += ["UNREAD"] if "seen" in push.remove_flags else []
        adding += [await self.labels.id_of(name) for name in push.add_labels]
        removing += [known for name in push.remove_labels if (known := self.labels.named(name))]
        if push.move_to is not None:
            to, away = _move(push.move_to)
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
        return Pushed(entered=((RemoteRef("", key), (SENT,)),))


def _move(name: str) -> tuple[list[str], list[str]]:
    """The system labels that a move to one of the standard mailboxes sets and unsets."""
    if name == ARCHIVE:
        return [], ["INBOX", "SPAM", "TRASH"]
    if name not in (INBOX, JUNK, TRASH):
        raise Conflict(f"Gmail does not let us move mail to {name}")
    key = IDS[name]
    return [key], [other for other in ("INBOX", "SPAM", "TRASH") if other != key]


def _history(value: Any) -> str:
    """A place in the history; to write down anything else would be to lose ours."""
    return str(int(value))


def _messages_in(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = list(entry.get("messages", []))
    for kind in ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved"):
        found += [change["message"] for change in entry.get(kind, []) if "message" in change]
    return found


def _moment(milliseconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(str(milliseconds)) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
