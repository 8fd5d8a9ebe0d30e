"""Mail of an account as it is fetched: in bounded batches, and one that fails stops no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.errors import MailError, ProviderAuthFailed, ProviderError, RateLimited
from postroom.model.remote import RemoteChanges, RemoteMessage, RemoteRef, Unfetched
from postroom.pipeline.keeping import Mail
from postroom.ports.provider import Provider

BATCH_MAILS = 200
BATCH_BYTES = 8 * 2**20
UNTOLD_BYTES = 2**20
"""What a mail counts for whose size the provider does not tell."""

MOST_ASIDE = 1_000
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(days=1)


@dataclass(slots=True)
class Aside:
    """What a provider did not give out, by its place; it is asked for again, ever less often."""

    kept: dict[RemoteRef, Unfetched] = field(default_factory=dict)

    def put(self, ref: RemoteRef, now: datetime) -> bool:
        """Put one aside, or again; True if it was not there before. Raises ProviderError."""
        before = self.kept.get(ref)
        if before is None and len(self.kept) >= MOST_ASIDE:
            raise ProviderError(f"the provider gives out none of more than {MOST_ASIDE} mails")
        attempts = before.attempts + 1 if before else 1
        wait = min(FIRST_WAIT * (1 << min(attempts - 1, 20)), LONGEST_WAIT)
        self.kept[ref] = Unfetched(ref, attempts, now + wait)
        return before is None

    def due(self, now: datetime | None) -> list[RemoteRef]:
        """What is to be asked for again by now; without a time, all."""
        return [one.ref for one in self.kept.values() if now is None or one.next_at <= now]

    def drop(self, refs: Iterable[RemoteRef]) -> bool:
        """Forget what was fetched or is gone; True if there was something of it."""
        before = len(self.kept)
        for ref in refs:
            self.kept.pop(ref, None)
        return len(self.kept) < before

    def drop_gone(self, changes: RemoteChanges) -> bool:
        """Forget what a provider says is not there any more; True if there was some of it."""
        scopes = set(changes.dropped)
        left = [ref for ref in self.kept if ref.scope in scopes] if scopes else []
        return self.drop([*changes.gone, *left])


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of a batch: mails, and those that the provider has and did not give out."""

    mails: tuple[Mail, ...]
    failed: tuple[tuple[RemoteMessage, str], ...] = ()


async def fetch_batches(
    provider: Provider, wanted: Sequence[RemoteMessage]
) -> AsyncIterator[Fetched]:
    """Fetch messages, no more at once than memory has room for."""
    for batch in batches(wanted):
        yield await fetch_batch(provider, batch)


async def fetch_batch(provider: Provider, batch: Sequence[RemoteMessage]) -> Fetched:
    """Fetch messages together, and what did not come one by one.

    Raises what a provider that fails altogether raises.
    """
    found: dict[RemoteRef, Mail] = {}
    try:
        await _fetch_into(found, provider, batch)
    except ProviderAuthFailed:
        raise
    except ProviderError:
        pass
    missing = [message for message in batch if message.ref not in found]
    failures = [(one, await _fetch_alone(found, provider, one)) for one in missing]
    failed = tuple((one, why) for one, why in failures if why is not None)
    return Fetched(tuple(found.values()), failed)


async def _fetch_into(
    found: dict[RemoteRef, Mail], provider: Provider, batch: Sequence[RemoteMessage]
) -> None:
    by_ref = {message.ref: message for message in batch}
    async for ref, raw in provider.fetch(list(by_ref)):
        if ref in by_ref:
            found[ref] = (by_ref[ref], raw)


async def _fetch_alone(
    found: dict[RemoteRef, Mail], provider: Provider, message: RemoteMessage
) -> str | None:
    """Fetch one message; why the provider has it and does not give it out, if that is so."""
    try:
        await _fetch_into(found, provider, [message])
    except ProviderAuthFailed:
        raise
    except ProviderError as error:
        why = str(error)
    else:
        why = "the provider sends nothing"
    if message.ref in found or await look_at(provider, message.ref) == ():
        return None
    return why


async def look_at(provider: Provider, ref: RemoteRef) -> tuple[RemoteMessage, ...] | None:
    """What a provider says of a message, None if it refuses to: it has the message, then.

    Raises what a provider that is out of order raises.
    """
    try:
        return await provider.look([ref])
    except MailError as error:
        if error.retryable or isinstance(error, (ProviderAuthFailed, RateLimited)):
            raise
        return None


def batches(wanted: Sequence[RemoteMessage]) -> list[list[RemoteMessage]]:
    """Messages in batches of a bounded size; one that is larger is alone in its batch."""
    found: list[list[RemoteMessage]] = []
    size = 0
    for message in wanted:
        more = message.size_bytes or UNTOLD_BYTES
        if not found or len(found[-1]) >= BATCH_MAILS or size + more > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(message)
        size += more
    return found
