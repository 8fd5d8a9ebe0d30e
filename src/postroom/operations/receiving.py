"""Mail handed to us whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field

from postroom.errors import FeatureDisabled, InvalidInput, NotFound
from postroom.mail.compose import parse_address
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.message import Received, ReceivedPosting
from postroom.model.stored import Added
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Request
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.intake import Intake, Taken
from postroom.pipeline.receive import Arrival, check_size, receive
from postroom.ports.inbound import Inbound, Posting


class ReceiveMessage(Request):
    """Deliver a raw mail (RFC 5322) to the inbox with this address."""

    recipient: Annotated[
        str,
        Field(
            min_length=1,
            max_length=320,
            description="Whose inbox.",
            examples=["support@postroom.localhost"],
        ),
        Accepts(forms.MAILBOX),
    ]
    raw: Annotated[bytes, Field(description="The mail, headers first.")]


@operation(Scope.WRITE)
async def receive_message(ctx: Context, request: ReceiveMessage) -> Received:
    check_size(request.raw, ctx.limits.message_bytes)
    _, address = parse_address(request.recipient)
    inbox = (await inboxes_for(ctx, [address])).get(address.lower())
    if inbox is None or (ctx.visible is not None and inbox.id not in ctx.visible):
        raise NotFound(f"no inbox has the address {address}")
    added = await receive(ctx, Arrival(request.raw, inbox.id))
    return _received(added)


def _received(added: Added) -> Received:
    status: Literal["received", "duplicate"] = "duplicate" if added.is_duplicate else "received"
    return Received(added.message_id, added.thread_id, status)


Provider = Literal["mailgun", "sendgrid", "resend", "ses", "postmark"]
_SETTINGS = {
    "mailgun": "POSTROOM_MAILGUN_SIGNING_KEY",
    "sendgrid": "POSTROOM_SENDGRID_PUBLIC_KEY",
    "resend": "POSTROOM_RESEND_SIGNING_SECRET",
    "ses": "POSTROOM_SES_TOPICS",
    "postmark": "POSTROOM_POSTMARK_LOGIN",
}


class ReceivePosting(Request):
    """Take in mail that a provider received for us. It posts in its own form and needs no key:
    its own signature is checked."""

    provider: Annotated[Provider, Field(description="Who posts.", examples=["mailgun"])]
    format: Annotated[
        Literal["mime"] | None,
        Field(description="Mailgun sends whole mails to URLs that end so.", examples=["mime"]),
    ] = None
    headers: Annotated[dict[str, str], Field(description="The headers of the posting.")]
    raw: Annotated[bytes, Field(description="What the provider posts, as it is.")]


def expect_posting(ctx: Context, provider: str, headers: Mapping[str, str]) -> int:
    """How many bytes a provider may post, before any of them is read.

    Raises:
        InvalidInput: there is no such provider.
        FeatureDisabled: it may not post here.
        Unauthenticated: the headers alone show that it is not the provider.
    """
    if provider not in _SETTINGS:
        raise InvalidInput(f"provider: must be one of {', '.join(_SETTINGS)}")
    most = _provider(ctx, provider).expect(headers, ctx.clock())
    return min(most or ctx.limits.request_bytes, ctx.limits.request_bytes)


def _provider(ctx: Context, name: str) -> Inbound:
    provider = ctx.inbound.get(name)
    if provider is None:
        raise FeatureDisabled(f"{name} may not post here; set {_SETTINGS[name]} to allow it")
    return provider


@operation(Scope.WRITE)
async def receive_posting(ctx: Context, request: ReceivePosting) -> ReceivedPosting:
    provider = _provider(ctx, request.provider)
    posting = Posting(request.headers, request.raw, ctx.clock())
    arrivals: list[Arrival] = []
    for handed in await provider.read(posting):
        inboxes = await _inboxes(ctx, handed.recipients)
        arrivals += [Arrival(handed.raw, inbox_id) for inbox_id in inboxes]
    if not arrivals:
        return ReceivedPosting("nothing", ())
    messages = tuple(map(_received, _stored(await Intake(ctx).receive(arrivals))))
    is_new = any(message.status == "received" for message in messages)
    return ReceivedPosting("received" if is_new else "duplicate", messages)


def _stored(taken: Sequence[Taken]) -> list[Added]:
    """The copies that are stored. Raises what came in the way of one that can still be.

    A provider that posts again gives nobody a second copy. An inbox that was removed meanwhile
    would have lost its copy anyway; it is refused only when nobody has one.
    """
    stored = [one for one in taken if isinstance(one, Added)]
    errors = [one for one in taken if isinstance(one, Exception)]
    errors.sort(key=lambda error: isinstance(error, NotFound))
    if errors and not (stored and isinstance(errors[0], NotFound)):
        raise errors[0]
    return stored


async def _inboxes(ctx: Context, recipients: Sequence[str]) -> list[str]:
    """Those of the recipients who are ours. Raises NotFound when nobody is."""
    addresses = []
    for recipient in recipients:
        with suppress(InvalidInput):
            addresses.append(parse_address(recipient)[1])
    found: dict[str, Inbox] = await inboxes_for(ctx, addresses)
    if not found:
        raise NotFound("no inbox has an address that this mail is for")
    return list(dict.fromkeys(inbox.id for inbox in found.values()))
