"""Shared by senders: size limits, blind copies, outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from email.parser import BytesHeaderParser
from email.utils import getaddresses

from postroom.errors import MailError, ProviderAuthFailed, ProviderError, RateLimited
from postroom.model.sending import Envelope, Outcome
from postroom.ports.provider import Accepted
from postroom.providers.web.responses import response_errors

BeforeSubmit = Callable[[], Awaitable[None]]

UNKNOWN = (
    "the connection ended before the provider confirmed the mail ({}); it is not retried "
    "automatically: look into Sent, then retry or drop it"
)


def with_bcc(raw: bytes, recipients: Sequence[str]) -> bytes:
    """Add a Bcc header with the recipients that are in neither To nor Cc."""
    headers = BytesHeaderParser().parsebytes(raw)
    fields = [*headers.get_all("To", []), *headers.get_all("Cc", [])]
    visible = {address.lower() for _, address in getaddresses([str(f) for f in fields])}
    hidden = [address for address in recipients if address.lower() not in visible]
    if not hidden:
        return raw
    return b"Bcc: " + ",\r\n ".join(hidden).encode() + b"\r\n" + raw


def attachment_mb(mail_bytes: int) -> int:
    """How many MB of attachments fit into a mail of this size; base64 adds a third."""
    return max(mail_bytes * 3 // 4 // 2**20, 1)


def message_id_of(raw: bytes) -> str:
    """The Message-ID of a mail, with its brackets; "none", which matches nothing, without one."""
    head = raw.partition(b"\r\n\r\n")[0]
    return str(BytesHeaderParser().parsebytes(head)["Message-ID"] or "none").strip()


async def submit_mail(
    provider: str,
    envelope: Envelope,
    accepted: Accepted,
    submit: Callable[[BeforeSubmit], Awaitable[Outcome]],
    discard: Callable[[], Awaitable[None]] | None = None,
) -> Mapping[str, Outcome]:
    """Submit a mail to a provider; the outcome for each recipient.

    *submit* calls its argument right before the request after which the outcome can be unknown.
    *discard* removes what was uploaded for a mail that certainly was not sent.
    """
    is_submitted = False

    async def before_submit() -> None:
        nonlocal is_submitted
        await accepted(envelope.recipients)
        is_submitted = True

    try:
        with response_errors(provider):
            outcome = await submit(before_submit)
    except RateLimited as error:
        outcome = Outcome("deferred", str(error), error.retry_after)
    except ProviderAuthFailed as error:
        outcome = Outcome("deferred", str(error))
    except ProviderError as error:
        outcome = Outcome("deferred" if error.retryable else "failed", str(error)[:500])
        if error.retryable and is_submitted:
            outcome = Outcome("unknown", UNKNOWN.format(str(error)[:200]))
    if discard is not None and outcome.verdict in ("deferred", "failed"):
        with suppress(MailError), response_errors(provider):
            await discard()
    return dict.fromkeys(envelope.recipients, outcome)
