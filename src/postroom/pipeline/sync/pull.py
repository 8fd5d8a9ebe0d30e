"""Pulling changes from an account: what is new, changed or removed there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from postroom.errors import InvalidInput, MailError
from postroom.mail.addresses import parse_own_address
from postroom.model.account import Account, RemoteChanges, RemoteIdentity, RemoteMessage, Unfetched
from postroom.model.inbox import ARCHIVE, TRASH
from postroom.pipeline.maintenance import compact_some
from postroom.pipeline.services import Services
from postroom.pipeline.sync.fetch import (
    AccountIngest,
    Fetched,
    RemoteMail,
    UnfetchedMessages,
    fetch_batch,
    fetch_batches,
    look_up,
)
from postroom.ports.provider import Provider

_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_MAX_LABEL_CHARS = 128
_MAX_NAME_CHARS = 256
_MAX_KEY_BYTES = 2_000
_MAX_LABELS = 100


def storable_messages(messages: Sequence[RemoteMessage]) -> tuple[RemoteMessage, ...]:
    """Messages with names that can be stored; one whose ref cannot be stored is left out."""
    return tuple(_with_clean_names(message) for message in messages if _has_valid_ref(message))


def _has_valid_ref(message: RemoteMessage) -> bool:
    name = message.ref.scope + message.ref.key
    return "\x00" not in name and _is_text(name) and len(name.encode()) <= _MAX_KEY_BYTES


def _with_clean_names(message: RemoteMessage) -> RemoteMessage:
    mailboxes = _clean_names(message.mailboxes, _MAX_NAME_CHARS) or (ARCHIVE,)
    labels = None
    if message.labels is not None:
        labels = _clean_names(message.labels, _MAX_LABEL_CHARS)[:_MAX_LABELS]
    if (mailboxes, labels) == (message.mailboxes, message.labels):
        return message
    return replace(message, mailboxes=mailboxes, labels=labels)


def _clean_names(names: Iterable[object], max_chars: int) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names:
        if clean := clean_name(name, max_chars):
            found.setdefault(clean.casefold(), clean)
    return tuple(found.values())


def clean_name(name: object, max_chars: int = _MAX_NAME_CHARS) -> str:
    """A name without control characters, cut to a length; surrogates are replaced."""
    text = str(name) if _is_text(str(name)) else str(name).encode("utf-8", "replace").decode()
    clean = _CONTROLS.sub("", text)[:max_chars]
    return clean if clean.strip() else ""


def is_valid_identity(found: RemoteIdentity) -> bool:
    """Whether one can send from this address."""
    try:
        return parse_own_address(found.email) == ("", found.email) and _is_text(found.signature)
    except (InvalidInput, AttributeError, TypeError):
        return False


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


COMPACT_AFTER_MAILS = 50
"""After a batch of this size the search index is compacted."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull: whether all was read, and whether local changes were pushed."""

    is_complete: bool
    has_pushed: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """Something to store: mail, or changes with the checkpoint that covers all mail before them.

    `unfetched` lists all messages that the provider did not send, if the list has changed.
    """

    mails: tuple[RemoteMail, ...] = ()
    changes: RemoteChanges | None = None
    unfetched: tuple[Unfetched, ...] | None = None


@dataclass(frozen=True, slots=True)
class KnownMessages:
    """The stored messages of an account, as its provider may query them."""

    services: Services
    account_id: str

    async def scopes(self) -> frozenset[str]:
        return await self.services.store.remote_scopes(self.account_id)

    async def keys(self, scope: str) -> frozenset[str]:
        return await self.services.store.remote_keys(self.account_id, scope)

    async def labels(self) -> frozenset[str]:
        return await self.services.store.remote_labels(self.account_id)


@dataclass(frozen=True, slots=True)
class Pull:
    """Stores what changed at the provider; *push* sends local changes during a long pull."""

    services: Services
    account: Account
    provider: Provider
    push: Callable[[], Awaitable[None]]

    @property
    def _ingest(self) -> AccountIngest:
        return AccountIngest(self.services, self.account)

    async def run(self, *, is_requested: bool) -> Pulled:
        """Fetch and store at the same time: mail is fetched while earlier mail is stored."""
        queue: asyncio.Queue[_Part | None] = asyncio.Queue(maxsize=2)
        fetching = asyncio.create_task(self._fetch_all(queue, is_requested=is_requested))
        try:
            while (part := await queue.get()) is not None:
                await self._store(part)
                queue.task_done()
            return await fetching
        finally:
            fetching.cancel()
            with suppress(asyncio.CancelledError, MailError):
                await fetching

    async def _fetch_all(self, queue: asyncio.Queue[_Part | None], *, is_requested: bool) -> Pulled:
        has_pushed, is_complete = False, True
        store, account_id = self.services.store, self.account.id
        since = await store.checkpoint_of(account_id)
        unfetched = UnfetchedMessages({one.ref: one for one in await store.unfetched(account_id)})
        known = KnownMessages(self.services, account_id)
        try:
            async for part in self._fetch_again(unfetched, is_requested=is_requested):
                await queue.put(part)
            async with aclosing(self.provider.changes(since, known)) as parts:
                async for changes in parts:
                    async for part in self._fetch(changes, unfetched):
                        await queue.put(part)
                    is_complete &= not changes.is_partial
                    has_pushed |= await self._push_between(queue)
        except Exception:
            await queue.put(None)
            raise
        await queue.put(None)
        return Pulled(is_complete=is_complete, has_pushed=has_pushed)

    async def _push_between(self, queue: asyncio.Queue[_Part | None]) -> bool:
        """Push local changes during a long pull, after all that was read is stored."""
        if not await self.services.store.due_pushes(self.account.id, self.services.clock(), 1):
            return False
        await queue.join()
        await self.push()
        return True

    async def _fetch_again(
        self, unfetched: UnfetchedMessages, *, is_requested: bool
    ) -> AsyncIterator[_Part]:
        """Retry messages that the provider did not send; all of them if a sync was requested."""
        for ref in unfetched.due(None if is_requested else self.services.clock()):
            remote = await look_up(self.provider, ref)
            unknown = await self._unknown(storable_messages(remote or ()))
            if remote is None:
                unfetched.defer(ref, self.services.clock())
            elif not unknown:
                unfetched.drop([ref])
            if not unknown:
                yield _Part(unfetched=tuple(unfetched.entries.values()))
            for message in unknown:
                yield self._part(await fetch_batch(self.provider, [message]), unfetched)

    async def _fetch(
        self, changes: RemoteChanges, unfetched: UnfetchedMessages
    ) -> AsyncIterator[_Part]:
        changes = replace(changes, messages=storable_messages(changes.messages))
        unknown = await self._unknown(changes.messages)
        refs = {message.ref for message in unknown}
        max_bytes = self.services.limits.message_bytes
        for message in unknown:
            if message.size_bytes > max_bytes:
                self._ingest.skip(message, bytes=message.size_bytes)
        fetchable = [
            m for m in unknown if m.size_bytes <= max_bytes and m.ref not in unfetched.entries
        ]
        async for fetched in fetch_batches(self.provider, fetchable):
            yield self._part(fetched, unfetched)
        known = tuple(message for message in changes.messages if message.ref not in refs)
        left = tuple(unfetched.entries.values()) if unfetched.drop_gone(changes) else None
        yield _Part(changes=replace(changes, messages=known), unfetched=left)

    async def _unknown(self, found: Sequence[RemoteMessage]) -> list[RemoteMessage]:
        """Messages that are not stored, or are only in Trash here and elsewhere at the provider."""
        if not found:
            return []
        refs = [message.ref for message in found]
        untrashed = [message.ref for message in found if TRASH not in message.mailboxes]
        store = self.services.store
        unknown = await store.unknown_refs(self.account.id, refs, untrashed=untrashed)
        return [message for message in found if message.ref in unknown]

    def _part(self, fetched: Fetched, unfetched: UnfetchedMessages) -> _Part:
        """The fetched mails; messages that the provider did not send are deferred."""
        for message, reason in fetched.failed:
            if unfetched.defer(message.ref, self.services.clock()):
                self._ingest.skip(message, error=reason)
        has_changed = unfetched.drop(remote.ref for remote, _ in fetched.mails) or fetched.failed
        return _Part(
            fetched.mails, unfetched=tuple(unfetched.entries.values()) if has_changed else None
        )

    async def _store(self, part: _Part) -> None:
        if part.mails:
            await self._ingest.store(part.mails)
        if part.unfetched is not None:
            await self.services.store.set_unfetched(self.account.id, part.unfetched)
        if part.changes is not None:
            await self.services.store.apply_changes(self.account.id, part.changes)
        if len(part.mails) >= COMPACT_AFTER_MAILS:
            await compact_some(self.services)
