"""Inbound mail over HTTP: raw mail, and webhooks of mail providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Accepts, Request, argument
from postroom.errors import FeatureDisabled, InvalidInput, NotFound
from postroom.mail.addresses import parse_address
from postroom.model.inbox import Inbox
from postroom.model.key import Caller, Scope
from postroom.model.mail.message import Received, ReceivedPosting
from postroom.model.mail.storage import Added
from postroom.pipeline.ingest import Arrival, BatchIngest, IngestResult, check_size, receive
from postroom.pipeline.routing import inboxes_for
from postroom.ports.provider import Inbound, InboundRequest


class ReceiveMessage(Request):
    """Deliver a raw mail (RFC 5322) to the inbox with this address."""

    recipient: Annotated[
        str,
        argument(
            "The address of the inbox.", "support@postroom.localhost", min_length=1, max_length=320
        ),
        Accepts(request.MAILBOX),
    ]
    raw: Annotated[bytes, Field(description="The mail, headers first.")]


@operation(Scope.WRITE)
async def receive_message(ctx: RequestContext, request: ReceiveMessage) -> Received:
    check_size(request.raw, ctx.limits.message_bytes)
    _, address = parse_address(request.recipient, field="recipient")
    inbox = (await inboxes_for(ctx, [address])).get(address.lower())
    if inbox is None or not ctx.visible.sees(inbox.id):
        raise NotFound(f"no inbox has the address {address}")
    arrival = Arrival(request.raw, inbox.id)
    if not _is_trusted(ctx.caller):
        arrival = replace(arrival, adds_contact=False, submitted_by=ctx.caller.authors)
    return _received(await receive(ctx, arrival))


def _is_trusted(caller: Caller) -> bool:
    """Whether mail that a caller hands in counts as mail that has arrived.

    An agent could make up a mail of somebody to whom its own mail would be held.
    """
    return caller.is_owner or (caller.policy.is_open and Scope.SEND not in caller.scopes)


_SAME_BYTES = (
    "the same bytes arrived before, and the mail has no Message-ID, so it counts as a duplicate "
    "and is not stored; to deliver another mail, add a Message-ID, or change a header or the text"
)
_SAME_MESSAGE_ID = (
    "a mail with this Message-ID and the same content arrived before, so it is not stored again; "
    "a different mail needs a different Message-ID"
)


def _received(added: Added) -> Received:
    if not added.is_duplicate:
        return Received(added.message_id, added.thread_id, "received")
    hint = _SAME_BYTES if added.same_bytes else _SAME_MESSAGE_ID
    return Received(added.message_id, added.thread_id, "duplicate", hint)


Provider = Literal["mailgun", "sendgrid", "resend", "ses", "postmark"]
_SETTINGS = {
    "mailgun": "POSTROOM_MAILGUN_SIGNING_KEY",
    "sendgrid": "POSTROOM_SENDGRID_PUBLIC_KEY",
    "resend": "POSTROOM_RESEND_SIGNING_SECRET",
    "ses": "POSTROOM_SES_TOPICS",
    "postmark": "POSTROOM_POSTMARK_LOGIN",
}


class ReceivePosting(Request):
    """Receive mail from a provider's webhook. The provider posts in its own
    format and needs no key; its signature is verified."""

    provider: Annotated[Provider, argument("The provider.", "mailgun")]
    format: Annotated[
        Literal["mime"] | None,
        argument("Mailgun posts whole mails to URLs that end in mime.", "mime"),
    ] = None
    headers: Annotated[dict[str, str], Field(description="The headers of the request.")]
    raw: Annotated[bytes, Field(description="The body of the request, unchanged.")]


def max_inbound_bytes(ctx: RequestContext, provider: str, headers: Mapping[str, str]) -> int:
    """How many bytes a provider may post; checked before the body is read.

    Raises:
        InvalidInput: there is no such provider.
        FeatureDisabled: the provider is not configured.
        Unauthenticated: the headers are not those of the provider.
    """
    if provider not in _SETTINGS:
        raise InvalidInput(f"provider: must be one of {', '.join(_SETTINGS)}")
    max_bytes = _provider(ctx, provider).max_bytes(headers, ctx.clock())
    return min(max_bytes or ctx.limits.request_bytes, ctx.limits.request_bytes)


def _provider(ctx: RequestContext, name: str) -> Inbound:
    provider = ctx.inbound.get(name)
    if provider is None:
        raise FeatureDisabled(
            f"{name} is not configured; set {_SETTINGS[name]} to receive its mail"
        )
    return provider


@operation(Scope.WRITE)
async def receive_posting(ctx: RequestContext, request: ReceivePosting) -> ReceivedPosting:
    provider = _provider(ctx, request.provider)
    posting = InboundRequest(request.headers, request.raw, ctx.clock())
    arrivals = [
        Arrival(mail.raw, inbox_id)
        for mail in await provider.read(posting)
        for inbox_id in await _inboxes(ctx, mail.recipients)
    ]
    if not arrivals:
        return ReceivedPosting("nothing", ())
    messages = tuple(map(_received, _stored(await BatchIngest(ctx).receive(arrivals))))
    is_new = any(message.status == "received" for message in messages)
    return ReceivedPosting("received" if is_new else "duplicate", messages)


def _stored(results: Sequence[IngestResult]) -> list[Added]:
    """The stored copies. Raises the error of a copy that could be stored by a retry.

    A removed inbox is an error only if no copy was stored. A retry creates no second copies.
    """
    stored = [one for one in results if isinstance(one, Added)]
    errors = [one for one in results if isinstance(one, Exception)]
    errors.sort(key=lambda error: isinstance(error, NotFound))
    if errors and not (stored and isinstance(errors[0], NotFound)):
        raise errors[0]
    return stored


async def _inboxes(ctx: RequestContext, recipients: Sequence[str]) -> list[str]:
    """The inboxes of the recipients. Raises NotFound if there are none."""
    addresses = []
    for recipient in recipients:
        with suppress(InvalidInput):
            addresses.append(parse_address(recipient)[1])
    found: dict[str, Inbox] = await inboxes_for(ctx, addresses)
    if not found:
        raise NotFound(
            "no recipient of this mail has an inbox here; create one, or set POSTROOM_CATCH_ALL"
        )
    return list(dict.fromkeys(inbox.id for inbox in found.values()))
