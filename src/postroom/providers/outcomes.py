"""What became of a mail that a provider takes in one call, for all recipients at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from postroom.errors import MailError, ProviderAuthFailed, ProviderError, RateLimited
from postroom.model.outbox import Envelope, Outcome
from postroom.ports.sender import Accepted
from postroom.providers.web.sense import sense

UNKNOWN = (
    "the connection ended before the provider said whether it has the mail ({}); it is not sent "
    "again by itself: look into Sent, then retry it or leave it"
)

Go = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    pass


async def handed_over(
    envelope: Envelope,
    accepted: Accepted,
    submit: Callable[[Go], Awaitable[Outcome]],
    undo: Callable[[], Awaitable[None]] = _nothing,
) -> Mapping[str, Outcome]:
    """Submit a mail; *submit* says `go` right before the call after which nothing is certain.

    *undo* removes what was begun for a mail that certainly was not sent, if the provider lets us.
    """
    has_gone = False

    async def go() -> None:
        nonlocal has_gone
        await accepted(envelope.recipients)
        has_gone = True

    try:
        with sense():
            outcome = await submit(go)
    except RateLimited as error:
        outcome = Outcome("deferred", str(error), error.retry_after)
    except ProviderAuthFailed as error:
        outcome = Outcome("deferred", str(error))
    except ProviderError as error:
        outcome = _after(error, has_gone=has_gone)
    if outcome.verdict in ("deferred", "failed"):
        with suppress(MailError), sense():
            await undo()
    return dict.fromkeys(envelope.recipients, outcome)


def _after(error: MailError, *, has_gone: bool) -> Outcome:
    if not error.retryable:
        return Outcome("failed", str(error)[:500])
    if has_gone:
        return Outcome("unknown", UNKNOWN.format(str(error)[:200]))
    return Outcome("deferred", str(error)[:500])
