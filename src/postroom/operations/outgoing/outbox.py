"""The outbox: list, retry, cancel, pause and resume."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, message_of, operation, require, require_scope
from postroom.calls.request import READERS, Paged, Request, argument, refuse_other_kind
from postroom.errors import Forbidden
from postroom.mail.addresses import canonical_address
from postroom.model.key import Scope
from postroom.model.mail.message import Message, Recipient
from postroom.model.mail.sending import (
    CANCELLED,
    PAUSED,
    POSSIBLY_SENT_STATUSES,
    HeldMail,
    OutboxEntry,
    OutboxPage,
    OutboxQuery,
    OutboxState,
    Sent,
    overall_status,
)
from postroom.pipeline.blobs import discard_unused
from postroom.pipeline.routing import external_recipients, inboxes_for
from postroom.sending.replies import draft_of
from postroom.sending.submission import warn_of_disclosure

Status = Literal[
    "queued", "scheduled", "held", "sent", "failed", "bounced", "rejected", "unknown", "captured"
]


class ListOutbox(Paged):
    """List messages that have not been delivered: held, rejected, queued, scheduled, failed,
    bounced, unknown."""

    status: Annotated[Status | None, argument("Only with this status.", "unknown")] = None


@operation(Scope.READ, other_scope=Scope.APPROVE)
async def list_outbox(ctx: RequestContext, request: ListOutbox) -> OutboxPage[OutboxEntry]:
    if request.status != "held":
        require_scope(ctx, Scope.READ)
    query = OutboxQuery(ctx.visible, request.status, ctx.cursors.slice(request))
    page = ctx.cursors.page(request, await ctx.store.outbox(query))
    state = await ctx.store.outbox_state()
    values = {field.name: getattr(page, field.name) for field in fields(page)}
    return OutboxPage(**values, is_paused=state.is_paused)


class RetryMessage(OneMessage):
    """Send a message again to recipients who did not get it: failed, bounced, unknown, captured
    or waiting."""


@operation(Scope.SEND)
async def retry_message(ctx: RequestContext, request: RetryMessage) -> Sent:
    message = await message_of(ctx, request.message_id)
    words = f"{message.subject}\n{message.text}"
    to = [r.address for r in message.recipients or ()]
    await ctx.store.retry_mail(
        request.message_id,
        ctx.visible,
        ctx.clock(),
        authors=ctx.caller.authors,
        external_recipients=external_recipients(ctx, to, await inboxes_for(ctx, to)),
        gate=ctx.gate,
        disclosures=await warn_of_disclosure(ctx, words, to),
    )
    sent = sent_of(await message_of(ctx, request.message_id))
    state = await ctx.store.outbox_state()
    return replace(sent, warnings=(PAUSED,)) if state.is_paused else sent


class CancelMessage(OneMessage):
    """Stop a message that is queued or scheduled: it becomes a draft again.

    If a recipient already has it, it is stopped for the others only.
    """


@operation(Scope.SEND)
async def cancel_message(ctx: RequestContext, request: CancelMessage) -> Sent:
    refuse_other_kind(request.message_id, "msg", READERS)
    message = require(await ctx.store.message(request.message_id, ctx.visible), _gone(request))
    draft = await draft_of(ctx, message)
    cancelled = await ctx.store.cancel_mail(message.id, ctx.visible, draft, ctx.clock())
    if cancelled.draft_id is None:
        sent = sent_of(await message_of(ctx, request.message_id))
        have = [r.address for r in sent.recipients if r.status in POSSIBLY_SENT_STATUSES]
        return replace(sent, warnings=(f"{', '.join(have)}: {_HAVE_IT}",))
    await discard_unused(ctx, cancelled.unused)
    return replace(
        sent_of(message),
        status="failed",
        recipients=tuple(
            replace(r, status="failed", detail=CANCELLED) for r in message.recipients or ()
        ),
        send_at=None,
        draft_id=cancelled.draft_id,
    )


def _gone(request: CancelMessage) -> str:
    return (
        f"no message {request.message_id} waits to be sent; a cancelled one is a draft, "
        "see list_drafts"
    )


_HAVE_IT = "sent before it was cancelled, so it stays as it was sent; the others do not get it"


def sent_of(message: Message) -> Sent:
    """The outcome of a sent message so far."""
    recipients = message.recipients or ()
    return Sent(
        message.id,
        message.thread_id,
        overall_status(recipients),
        recipients,
        send_at=message.send_at,
    )


def recipients_by_role(mail: Message | HeldMail) -> dict[str, list[Recipient]]:
    """Everyone who gets a mail, as it names them: `to`, `cc`, or not at all (`bcc`)."""
    found: dict[str, list[Recipient]] = {"to": [], "cc": [], "bcc": []}
    named = {canonical_address(address): "cc" for address in mail.cc_addresses}
    named |= {canonical_address(address): "to" for address in mail.to_addresses}
    for recipient in mail.recipients or ():
        found[named.get(canonical_address(recipient.address), "bcc")].append(recipient)
    return found


class PauseOutbox(Request):
    """Pause all outgoing mail until the outbox is resumed."""


@operation(Scope.ADMIN)
async def pause_outbox(ctx: RequestContext, request: PauseOutbox) -> OutboxState:
    return await _pause(ctx, paused=True)


class ResumeOutbox(Request):
    """Resume sending after a pause."""


@operation(Scope.ADMIN)
async def resume_outbox(ctx: RequestContext, request: ResumeOutbox) -> OutboxState:
    return await _pause(ctx, paused=False)


async def _pause(ctx: RequestContext, *, paused: bool) -> OutboxState:
    if ctx.is_limited:
        raise Forbidden("a key that is limited to inboxes cannot pause the outbox")
    return await ctx.store.pause_outbox(paused=paused)
