"""Forwards and replies that rules ask for, sent as jobs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, message_of
from postroom.errors import Conflict, Forbidden
from postroom.model.audit import AuditRecord
from postroom.model.key import Caller
from postroom.model.rule import RuleJob
from postroom.model.view import NOTHING, only
from postroom.pipeline.apply_rules import caller_for_rule_job
from postroom.rules.rights import refusal, with_advice
from postroom.sending.outgoing_mail import OutgoingMail
from postroom.sending.replies import (
    forward_mail_of,
    refuse_forward_loop,
    refuse_loop,
    refuse_many_replies,
    reply_recipients,
)
from postroom.sending.submission import Sending, send_once, was_sent_by

log = logging.getLogger(__name__)


class RuleMail(Sending):
    """A mail that a rule sends about another."""

    message_id: MessageId
    rule_id: Annotated[str, Field(max_length=64)]
    value: str


def caller_of(job: RuleJob) -> Caller:
    """The caller of a rule job: it sees one inbox and no memories.

    All rules of one key share a send limit of their own, so that incoming mail cannot use up the
    limit of the key itself. Rules without a recorded key share one per inbox.
    """
    return Caller(
        key_id=f"rules:{job.authority or job.inbox_id}",
        inboxes=only(job.inbox_id),
        accounts=NOTHING,
        namespaces=NOTHING,
    )


async def run_rule_job(ctx: RequestContext, job: RuleJob) -> None:
    """Send a forward or a reply of a rule, once; nothing if the message was removed.

    Raises:
        Forbidden: the key of the rule may no longer send.
        MailError: what `send_once` raises.
    """
    if await ctx.store.message(job.message_id, ctx.visible) is None:
        return
    act = job.act
    why = refusal(await caller_for_rule_job(ctx, job), act, job.inbox_id)
    if why:
        raise Forbidden(with_advice([why])[0])
    record = AuditRecord(job.rule_id, f"rule_{act.type}", ctx.clock(), (job.message_id,))
    acting = replace(ctx, store=ctx.store.by(record))
    request = RuleMail(
        message_id=job.message_id, rule_id=job.rule_id, value=act.value, idempotency_key=job.id
    )
    if await _was_sent_before(ctx, job, request):
        return
    message = await message_of(ctx, job.message_id)
    if act.type == "forward":
        await refuse_forward_loop(ctx, message)
        await send_once(acting, request, _forward)
        return
    try:
        await refuse_loop(ctx, message)
        await refuse_many_replies(ctx, await _reply(ctx, request), job.inbox_id)
    except Conflict as loop:
        log.info("rule.not_answered", extra={"message_id": job.message_id, "reason": str(loop)})
        return
    await send_once(acting, request, _reply)


async def _was_sent_before(ctx: RequestContext, job: RuleJob, request: RuleMail) -> bool:
    """Whether an earlier version sent it under another caller id."""
    former = (f"rules:{job.inbox_id}", f"rule:{job.rule_id}")
    return any([await was_sent_by(ctx, caller, request) for caller in former])


async def _forward(ctx: RequestContext, request: RuleMail) -> OutgoingMail:
    original = await message_of(ctx, request.message_id)
    outgoing_mail = forward_mail_of(original, "", [("", request.value)])
    outgoing_mail.headers = (("Auto-Submitted", "auto-generated"),)
    outgoing_mail.rule_id = request.rule_id
    return outgoing_mail


async def _reply(ctx: RequestContext, request: RuleMail) -> OutgoingMail:
    parent = await message_of(ctx, request.message_id)
    to, _ = await reply_recipients(ctx, parent, reply_all=False)
    return OutgoingMail(
        inbox_id=parent.inbox_id,
        to=to,
        subject=parent.subject,
        text=request.value,
        in_reply_to=parent.id,
        is_automatic=True,
        rule_id=request.rule_id,
    )
