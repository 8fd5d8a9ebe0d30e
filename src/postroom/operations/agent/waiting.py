"""Waiting for mail, and the mailboxes that there are."""

from __future__ import annotations

from typing import Annotated, ClassVar

from postroom.calls.context import RequestContext
from postroom.calls.operation import message_of, only_inbox, operation
from postroom.calls.request import (
    Constraint,
    OptionalId,
    OptionalInboxName,
    Request,
    argument,
)
from postroom.model.agent import Arrived, Mailboxes, MailboxLine
from postroom.model.key import Scope
from postroom.model.sending import Sent
from postroom.operations.agent.lines import inbox_addresses, line_of
from postroom.operations.mailboxes import ListMailboxes as ListAll
from postroom.operations.mailboxes import list_mailboxes as list_all
from postroom.operations.message_changes import ListLabels, list_labels
from postroom.operations.messages import WaitForMessage, wait_for_message
from postroom.operations.outbox import sent_of
from postroom.sending.submission import is_pending, outcome


class WaitForMail(WaitForMessage):
    """Wait for a mail. A time-out is no error: wait again with since of the answer."""

    constraints: ClassVar[tuple[Constraint, ...]] = ()
    splits_names: ClassVar[bool] = True
    message_id: Annotated[
        OptionalId, argument("Instead: until this outgoing mail is decided.", "msg_4h8t2w")
    ] = None


@operation(Scope.READ, waits=True)
async def wait_for_mail(ctx: RequestContext, request: WaitForMail) -> Arrived:
    if request.message_id is not None:
        return await _outcome_of(ctx, request.message_id, request.timeout_s)
    arguments = {name: getattr(request, name) for name in request.model_fields_set}
    if not (request.inbox_id or request.thread_id):
        arguments["inbox_id"] = (await only_inbox(ctx)).id
    waited = await wait_for_message(ctx, WaitForMail.model_construct(**arguments))
    if waited.message is None:
        return Arrived(None, timed_out=True, since=waited.since)
    text = waited.message.new_text or waited.message.text
    shown = {"snippet": waited.message.snippet} if waited.extracted else {"text": text}
    line = line_of(waited.message, {}, **shown)
    return Arrived(line, timed_out=False, extracted=waited.extracted)


async def _outcome_of(ctx: RequestContext, message_id: str, timeout_s: int) -> Arrived:
    """Wait until a person has decided about a held mail, or the relay has answered."""
    message = await message_of(ctx, message_id)
    if message.hold is not None and message.hold.decision is not None:
        return Arrived(line_of(message, {}), timed_out=False)
    sent = sent_of(message)
    waits = _is_held if _is_held(sent) else is_pending
    sent = await outcome(ctx, sent, timeout_s, waits)
    line = line_of(await message_of(ctx, message_id), {})
    return Arrived(line, timed_out=waits(sent))


def _is_held(sent: Sent) -> bool:
    return sent.status == "held"


class ListMailboxes(Request):
    """List mailboxes and labels with counts."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None


@operation(Scope.READ)
async def list_mailboxes(ctx: RequestContext, request: ListMailboxes) -> Mailboxes:
    addresses = await inbox_addresses(ctx)
    found = await list_all(ctx, ListAll(inbox_id=request.inbox_id, limit=100))
    labels = await list_labels(ctx, ListLabels(limit=100))
    boxes = tuple(
        MailboxLine(
            box.name, box.total, unread=box.unread or None, inbox=addresses.get(box.inbox_id)
        )
        for box in found.results
        if box.total
    )
    return Mailboxes(
        boxes,
        tuple(MailboxLine(label.name, label.message_count) for label in labels.results) or None,
    )
