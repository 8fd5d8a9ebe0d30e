"""Pulling changes from an account: fetch new mail in bounded batches, store it, apply changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from postroom.errors import (
    InvalidInput,
    MailError,
    ProviderAuthFailed,
    ProviderError,
    Unstorable,
)
from postroom.mail.addresses import parse_own_address
from postroom.model.account import (
    Account,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
    Unfetched,
)
from postroom.model.inbox import ARCHIVE, INBOX, SENT, TRASH
from postroom.pipeline.ingest import (
    Arrival,
    ParsedMail,
    arrived_messages,
    parse_mails,
    restore_blobs,
    write_blobs,
)
from postroom.pipeline.maintenance import compact_some
from postroom.pipeline.services import Services
from postroom.ports.provider import Provider

RemoteMail = tuple[RemoteMessage, bytes]

BATCH_MAILS = 200
BATCH_BYTES = 8 * 2**20
UNKNOWN_SIZE_BYTES = 2**20
"""Assumed for a mail whose size the provider does not report."""

MAX_UNFETCHED = 1_000
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(days=1)


@dataclass(slots=True)
class UnfetchedMessages:
    """Messages that a provider lists and does not send; retried with growing intervals."""

    entries: dict[RemoteRef, Unfetched] = field(default_factory=dict)

    def defer(self, ref: RemoteRef, now: datetime) -> bool:
        """Schedule the next attempt; True for the first failure. Raises ProviderError."""
        before = self.entries.get(ref)
        if before is None and len(self.entries) >= MAX_UNFETCHED:
            raise ProviderError(f"the provider does not send more than {MAX_UNFETCHED} messages")
        attempts = before.attempts + 1 if before else 1
        wait = min(FIRST_WAIT * (1 << min(attempts - 1, 20)), LONGEST_WAIT)
        self.entries[ref] = Unfetched(ref, attempts, now + wait)
        return before is None

    def due(self, now: datetime | None) -> list[RemoteRef]:
        """The messages to retry now; without a time, all."""
        return [one.ref for one in self.entries.values() if now is None or one.next_at <= now]

    def drop(self, refs: Iterable[RemoteRef]) -> bool:
        """Forget messages that were fetched or are gone; True if there were any."""
        before = len(self.entries)
        for ref in refs:
            self.entries.pop(ref, None)
        return len(self.entries) < before


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a batch: mails, and messages that the provider has and did not send."""

    mails: tuple[RemoteMail, ...]
    failed: tuple[tuple[RemoteMessage, str], ...] = ()


async def fetch_batches(
    provider: Provider, messages: Sequence[RemoteMessage]
) -> AsyncIterator[Fetched]:
    """Fetch messages in batches of a bounded size."""
    for batch in batches(messages):
        yield await fetch_batch(provider, batch)


async def fetch_batch(provider: Provider, batch: Sequence[RemoteMessage]) -> Fetched:
    """Fetch messages together, then those that are missing one by one.

    Raises ProviderError if the provider is unavailable.
    """
    found: dict[RemoteRef, RemoteMail] = {}
    try:
        await _fetch_into(found, provider, batch)
    except ProviderAuthFailed:
        raise
    except ProviderError:
        pass
    missing = [message for message in batch if message.ref not in found]
    failures = [(one, await _fetch_alone(found, provider, one)) for one in missing]
    failed = tuple((one, reason) for one, reason in failures if reason is not None)
    return Fetched(tuple(found.values()), failed)


async def _fetch_into(
    found: dict[RemoteRef, RemoteMail], provider: Provider, batch: Sequence[RemoteMessage]
) -> None:
    by_ref = {message.ref: message for message in batch}
    async for ref, raw in provider.fetch(list(by_ref)):
        if ref in by_ref:
            found[ref] = (by_ref[ref], raw)


async def _fetch_alone(
    found: dict[RemoteRef, RemoteMail], provider: Provider, message: RemoteMessage
) -> str | None:
    """Fetch one message; the reason if the provider has it and does not send it."""
    try:
        await _fetch_into(found, provider, [message])
    except ProviderAuthFailed:
        raise
    except ProviderError as error:
        reason = str(error)
    else:
        reason = "the provider sent nothing"
    if message.ref in found or await look_up(provider, [message.ref]) == ():
        return None
    return reason


async def look_up(
    provider: Provider, refs: Sequence[RemoteRef]
) -> tuple[RemoteMessage, ...] | None:
    """The state of messages at the provider.

    None if the provider rejects the request; the messages are then assumed to exist.

    Raises ProviderError if the provider is unavailable.
    """
    try:
        return await provider.read_states(refs)
    except MailError as error:
        if error.retryable or isinstance(error, ProviderAuthFailed):
            raise
        return None


def batches(messages: Sequence[RemoteMessage]) -> list[list[RemoteMessage]]:
    """Messages in batches of a bounded size; a larger message is a separate batch."""
    found: list[list[RemoteMessage]] = []
    size = 0
    for message in messages:
        more = message.size_bytes or UNKNOWN_SIZE_BYTES
        if not found or len(found[-1]) >= BATCH_MAILS or size + more > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(message)
        size += more
    return found


@dataclass(frozen=True, slots=True)
class AccountIngest:
    """Stores mail that was fetched from one account, each message once."""

    services: Services
    account: Account

    async def store(self, mails: Sequence[RemoteMail]) -> None:
        """Store mails; one that is empty, too large or refused by the database is skipped."""
        max_bytes = self.services.limits.message_bytes
        for remote, raw in mails:
            if not 0 < len(raw) <= max_bytes:
                self.skip(remote, bytes=len(raw))
        await self._store_valid([mail for mail in mails if 0 < len(mail[1]) <= max_bytes])

    async def _store_valid(self, mails: Sequence[RemoteMail]) -> None:
        """Store mails together; if the database refuses one, store each on its own."""
        try:
            await self._add(mails)
        except (InvalidInput, Unstorable) as error:
            if len(mails) == 1:
                remote, raw = mails[0]
                self.skip(remote, bytes=len(raw), error=str(error))
                return
            for mail in mails:
                await self._store_valid([mail])

    def skip(self, remote: RemoteMessage, **details: object) -> None:
        """Count and log a mail that is not stored; it stays at the provider."""
        context = {"account": self.account.id, "ref": remote.ref.key, **details}
        self.services.counts.failed("sync_skipped", context)

    async def _add(self, mails: Sequence[RemoteMail]) -> None:
        services, remotes = self.services, [remote for remote, _ in mails]
        parsed = await write_blobs(services, await parse_mails(services, [raw for _, raw in mails]))
        arrivals = [self._arrival(*pair) for pair in zip(remotes, parsed, strict=True)]
        messages = await arrived_messages(services, arrivals, parsed)
        pairs = list(zip(messages, remotes, strict=True))
        await services.store.add_remote(self.account.id, pairs)
        await restore_blobs(services, parsed)

    def _arrival(self, remote: RemoteMessage, mail: ParsedMail) -> Arrival:
        mailbox, *others = remote.mailboxes or (ARCHIVE,)
        arrived_at, sender = remote.arrived_at, mail.parsed.sender
        is_own = sender is not None and sender.address.lower() == self.account.address
        is_sent = SENT in remote.mailboxes or (is_own and INBOX not in remote.mailboxes)
        return Arrival(
            mail.raw,
            self.account.inbox_id,
            mailbox,
            direction="outbound" if is_sent else "inbound",
            flags=remote.flags,
            is_imported=arrived_at is not None and arrived_at < self.account.created_at,
            other_mailboxes=tuple(others),
            labels=remote.labels or (),
            arrived_at=arrived_at,
        )


_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_MAX_LABEL_CHARS = 128
_MAX_NAME_CHARS = 256
_MAX_KEY_BYTES = 2_000
_MAX_LABELS = 100


def storable_messages(messages: Sequence[RemoteMessage]) -> tuple[RemoteMessage, ...]:
    """Messages with names that can be stored; one whose ref cannot be stored is left out."""
    names = ((message, message.ref.scope + message.ref.key) for message in messages)
    return tuple(
        _with_clean_names(message)
        for message, name in names
        if "\x00" not in name and _is_text(name) and len(name.encode()) <= _MAX_KEY_BYTES
    )


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
            remote = await look_up(self.provider, [ref])
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
        small = [message for message in unknown if message.size_bytes <= max_bytes]
        fetchable = [message for message in small if message.ref not in unfetched.entries]
        async for fetched in fetch_batches(self.provider, fetchable):
            yield self._part(fetched, unfetched)
        known = tuple(message for message in changes.messages if message.ref not in refs)
        gone = [ref for ref in unfetched.entries if ref.scope in changes.removed_scopes]
        has_changed = unfetched.drop([*changes.removed, *gone])
        left = tuple(unfetched.entries.values()) if has_changed else None
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
        left = tuple(unfetched.entries.values()) if has_changed else None
        return _Part(fetched.mails, unfetched=left)

    async def _store(self, part: _Part) -> None:
        if part.mails:
            await self._ingest.store(part.mails)
        if part.unfetched is not None:
            await self.services.store.set_unfetched(self.account.id, part.unfetched)
        if part.changes is not None:
            await self.services.store.apply_changes(self.account.id, part.changes)
        if len(part.mails) >= COMPACT_AFTER_MAILS:
            await compact_some(self.services)
