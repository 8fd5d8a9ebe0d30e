"""Forwards and replies that rules ask for: sent like any other mail, and marked as ours."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.errors import Conflict
from postroom.model.audit import Deed
from postroom.model.key import Caller
from postroom.model.rule import OWN_MARK, Errand
from postroom.operations.answering import forward_letter, reply_recipients
from postroom.operations.context import Context
from postroom.operations.letters import Letter
from postroom.operations.loops import refuse_loop
from postroom.operations.messages import MessageId, message_of
from postroom.operations.posting import Sending, send_once

log = logging.getLogger(__name__)


class RuleMail(Sending):
    """A mail that a rule sends about another."""

    message_id: MessageId
    rule_id: Annotated[str, Field(max_length=64)]
    value: str


def caller_of(errand: Errand) -> Caller:
    """A rule sends for one inbox, within limits of its own."""
    return Caller(key_id=f"rule:{errand.rule_id}", inboxes=frozenset({errand.inbox_id}))


async def perform_errand(ctx: Context, errand: Errand) -> None:
    """Send what a rule wants sent, once; a message that is gone needs nothing any more.

    Raises what `send_once` raises.
    """
    if await ctx.store.message(errand.message_id, ctx.visible) is None:
        return
    act = errand.act
    deed = Deed(errand.rule_id, f"rule_{act.type}", ctx.clock(), (errand.message_id,))
    acting = replace(ctx, store=ctx.store.by(deed))
    request = RuleMail(
        message_id=errand.message_id,
        rule_id=errand.rule_id,
        value=act.value,
        idempotency_key=errand.id,
    )
    if act.type == "forward":
        await send_once(acting, request, _forward)
        return
    try:
        await refuse_loop(ctx, await message_of(ctx, errand.message_id))
    except Conflict as loop:
        log.info("rule.not_answered", extra={"message_id": errand.message_id, "why": str(loop)})
        return
    await send_once(acting, request, _reply)


async def _forward(ctx: Context, request: RuleMail) -> Letter:
    original = await message_of(ctx, request.message_id)
    letter = forward_letter(original, "", [("", request.value)])
    letter.headers = (("Auto-Submitted", "auto-generated"), (OWN_MARK, request.rule_id))
    return letter


async def _reply(ctx: Context, request: RuleMail) -> Letter:
    parent = await message_of(ctx, request.message_id)
    to, _ = await reply_recipients(ctx, parent, reply_all=False)
    return Letter(
        inbox_id=parent.inbox_id,
        to=to,
        subject=parent.subject,
        text=request.value,
        in_reply_to=parent.id,
        is_automatic=True,
        headers=((OWN_MARK, request.rule_id),),
    )
