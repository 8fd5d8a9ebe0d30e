"""Fetch mail of an account in bounded batches and store it; one failure does not stop the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.errors import (
    InvalidInput,
    MailError,
    ProviderAuthFailed,
    ProviderError,
    RateLimited,
    Unstorable,
)
from postroom.model.account import Account, RemoteChanges, RemoteMessage, RemoteRef, Unfetched
from postroom.model.inbox import ARCHIVE, INBOX, SENT
from postroom.pipeline.ingest import (
    Arrival,
    ParsedMail,
    arrived_messages,
    parse_mails,
    restore_blobs,
    write_blobs,
)
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

    def drop_gone(self, changes: RemoteChanges) -> bool:
        """Forget messages that the provider reports as gone; True if there were any."""
        in_dropped = [ref for ref in self.entries if ref.scope in changes.dropped]
        return self.drop([*changes.gone, *in_dropped])


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
    if message.ref in found or await look_up(provider, message.ref) == ():
        return None
    return reason


async def look_up(provider: Provider, ref: RemoteRef) -> tuple[RemoteMessage, ...] | None:
    """The state of a message at the provider; None if it refuses to tell, so it has the message.

    Raises ProviderError if the provider is unavailable.
    """
    try:
        return await provider.look([ref])
    except MailError as error:
        if error.retryable or isinstance(error, (ProviderAuthFailed, RateLimited)):
            raise
        return None


def batches(messages: Sequence[RemoteMessage]) -> list[list[RemoteMessage]]:
    """Messages in batches of a bounded size; a larger message is a batch of its own."""
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
