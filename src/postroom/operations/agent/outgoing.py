"""Outgoing mail that is not out yet, and undoing what was done."""

from __future__ import annotations

from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation, require_scope
from postroom.calls.request import Id, Limit, Request, argument
from postroom.errors import InvalidInput
from postroom.model.agent import ChangeReceipt, FoundMail, MailLine, NotRead, Receipt
from postroom.model.key import Scope
from postroom.model.message import ActionResult
from postroom.model.sending import Draft, OutboxEntry
from postroom.operations.drafts import ListDrafts, list_drafts
from postroom.operations.outbox import CancelMessage, ListOutbox, cancel_message, list_outbox
from postroom.operations.rules import DeleteRule, UndoRulePlan, delete_rule, undo_rule_plan

_KINDS = ("pln_", "msg_", "rul_")


class ListOutgoing(Request):
    """List drafts, and mail that has not left or failed."""

    limit: Limit = 20


@operation(Scope.READ)
async def list_outgoing(ctx: RequestContext, request: ListOutgoing) -> FoundMail:
    waiting = await list_outbox(ctx, ListOutbox(limit=request.limit))
    drafts = await list_drafts(ctx, ListDrafts(limit=request.limit))
    lines = [*map(_entry_line, waiting.results), *map(_draft_line, drafts.results)]
    return FoundMail(waiting.total + drafts.total, tuple(lines[: request.limit]))


def _entry_line(entry: OutboxEntry) -> MailLine:
    return MailLine(
        id=entry.message_id,
        subject=entry.subject,
        date=None if entry.queued_at == entry.send_at else entry.queued_at,
        to=tuple(recipient.address for recipient in entry.recipients[:5]),
        status=entry.status,
        send_at=entry.send_at,
    )


def _draft_line(draft: Draft) -> MailLine:
    return MailLine(
        id=draft.id,
        subject=draft.subject,
        date=draft.updated_at,
        to=draft.to[:5],
        status="draft",
        send_at=draft.send_at,
    )


class Undo(Request):
    """Take back a change (undo_id), a mail that has not left (it becomes a draft), or a rule."""

    id: Annotated[Id, argument("undo_id, or the id of a mail or rule.", "pln_5r2x7h")]


@operation(Scope.WRITE, also=Scope.SEND)
async def undo(ctx: RequestContext, request: Undo) -> ChangeReceipt | Receipt:
    if request.id.startswith("msg_"):
        require_scope(ctx, Scope.SEND)
        sent = await cancel_message(ctx, CancelMessage(message_id=request.id))
        return Receipt(sent.draft_id or request.id, "draft")
    require_scope(ctx, Scope.WRITE)
    if request.id.startswith("rul_"):
        rule = await delete_rule(ctx, DeleteRule(rule_id=request.id))
        return Receipt(rule.id, "deleted")
    if not request.id.startswith("pln_"):
        raise InvalidInput(
            f"{request.id} cannot be undone; give an undo_id (pln_…), a mail that has not left "
            "(msg_…) or a rule (rul_…)"
        )
    return change_receipt(await undo_rule_plan(ctx, UndoRulePlan(plan_id=request.id)))


def change_receipt(result: ActionResult) -> ChangeReceipt:
    """What a change did, in a line."""
    failed = tuple(NotRead(item.message_id, item.message) for item in result.failed[:20])
    return ChangeReceipt(
        result.status, len(result.succeeded), undo_id=result.undo_id, failed=failed or None
    )
