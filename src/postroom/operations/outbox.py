"""The outbox: list, retry, cancel, pause and resume."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, message_of, operation
from postroom.calls.request import Paged, Request, argument
from postroom.errors import Forbidden
from postroom.model.key import Scope
from postroom.model.message import Message
from postroom.model.sending import (
    PAUSED,
    OutboxEntry,
    OutboxPage,
    OutboxQuery,
    OutboxState,
    Sent,
    overall_status,
)


class ListOutbox(Paged):
    """List sent messages that are not out: queued, scheduled, failed, bounced or unknown."""

    status: Annotated[
        Literal["queued", "scheduled", "sent", "failed", "bounced", "unknown", "captured"] | None,
        argument("Only with this status.", "unknown"),
    ] = None


@operation(Scope.READ)
async def list_outbox(ctx: RequestContext, request: ListOutbox) -> OutboxPage[OutboxEntry]:
    query = OutboxQuery(ctx.visible, request.status, ctx.cursors.slice(request))
    page = ctx.cursors.page(request, await ctx.store.outbox(query))
    state = await ctx.store.outbox_state()
    values = {field.name: getattr(page, field.name) for field in fields(page)}
    return OutboxPage(**values, is_paused=state.is_paused)


class RetryMessage(Request):
    """Send a message again to those without it: failed, bounced, unknown, captured or waiting."""

    message_id: MessageId


@operation(Scope.SEND)
async def retry_message(ctx: RequestContext, request: RetryMessage) -> Sent:
    await ctx.store.retry_mail(request.message_id, ctx.visible, ctx.clock())
    sent = sent_of(await message_of(ctx, request.message_id))
    state = await ctx.store.outbox_state()
    return replace(sent, warnings=(PAUSED,)) if state.is_paused else sent


class CancelMessage(Request):
    """Stop a message that is queued or scheduled, for those who have not got it yet."""

    message_id: MessageId


@operation(Scope.SEND)
async def cancel_message(ctx: RequestContext, request: CancelMessage) -> Sent:
    await ctx.store.cancel_mail(request.message_id, ctx.visible, ctx.clock())
    return sent_of(await message_of(ctx, request.message_id))


def sent_of(message: Message) -> Sent:
    """The outcome of a sent message so far."""
    recipients = message.recipients or ()
    return Sent(message.id, message.thread_id, overall_status(recipients), recipients)


class PauseOutbox(Request):
    """Hold back all mail that would leave, until the outbox is resumed."""


@operation(Scope.ADMIN)
async def pause_outbox(ctx: RequestContext, request: PauseOutbox) -> OutboxState:
    return await _pause(ctx, paused=True)


class ResumeOutbox(Request):
    """Let held-back mail go again."""


@operation(Scope.ADMIN)
async def resume_outbox(ctx: RequestContext, request: ResumeOutbox) -> OutboxState:
    return await _pause(ctx, paused=False)


async def _pause(ctx: RequestContext, *, paused: bool) -> OutboxState:
    if ctx.is_limited:
        raise Forbidden("a key that is limited to inboxes cannot pause the outbox")
    return await ctx.store.pause_outbox(paused=paused)
