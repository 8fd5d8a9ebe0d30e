"""Mail handed to us whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.errors import NotFound
from postroom.mail.compose import parse_address
from postroom.model.key import Scope
from postroom.model.message import Received
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Request
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.receive import Arrival, check_size, receive


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
    return Received(
        added.message_id, added.thread_id, "duplicate" if added.is_duplicate else "received"
    )
