"""Shared by senders: size limits, blind copies, outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from email.parser import BytesHeaderParser
from email.utils import getaddresses
from typing import ClassVar

from postroom.errors import MailError, ProviderAuthFailed, ProviderError, RateLimited
from postroom.model.mail.sending import Envelope, Outcome
from postroom.ports.provider import Accepted
from postroom.providers.web.api import response_errors

BeforeSubmit = Callable[[], Awaitable[None]]

UNKNOWN = (
    "the connection ended before the provider confirmed the mail ({}); it is not retried "
    "automatically: check Sent, then retry or ignore it"
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


def message_id_of(raw: bytes) -> str:
    """The Message-ID of a mail, with its brackets; "none", which matches nothing, without one."""
    head = raw.partition(b"\r\n\r\n")[0]
    return str(BytesHeaderParser().parsebytes(head)["Message-ID"] or "none").strip()


class WebSender(ABC):
    """Sends mail over the API of a provider, which is *name* in errors."""

    name: ClassVar[str]

    @abstractmethod
    async def _submit(
        self, envelope: Envelope, raw: bytes, before_submit: BeforeSubmit, drafts: list[str]
    ) -> Outcome:
        """Send a mail, and call *before_submit* right before its outcome can be unknown.

        *drafts* gets the ids of drafts that are created for it.
        """

    @abstractmethod
    async def _discard(self, drafts: Sequence[str]) -> None:
        """Delete the drafts of a mail that certainly was not sent."""

    async def transmit(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        is_submitted, drafts = False, list[str]()

        async def before_submit() -> None:
            nonlocal is_submitted
            await accepted(envelope.recipients)
            is_submitted = True

        try:
            with response_errors(self.name):
                outcome = await self._submit(envelope, raw, before_submit, drafts)
        except RateLimited as error:
            outcome = Outcome("deferred", str(error), error.retry_after)
        except ProviderAuthFailed as error:
            outcome = Outcome("deferred", str(error))
        except ProviderError as error:
            outcome = Outcome("deferred" if error.retryable else "failed", str(error)[:500])
            if error.retryable and is_submitted:
                outcome = Outcome("unknown", UNKNOWN.format(str(error)[:200]))
        if drafts and outcome.result in ("deferred", "failed"):
            with suppress(MailError), response_errors(self.name):
                await self._discard(drafts)
        return dict.fromkeys(envelope.recipients, outcome)
