"""Every way of sending mail passes the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import Scope
from postroom.model.mail.sending import OutboxQuery
from postroom.model.rule import Action
from postroom.model.view import EVERYTHING
from postroom.operations import inboxes, rules
from postroom.operations.agent import writing
from postroom.operations.mail import inbound, unsubscribing
from postroom.operations.outgoing import drafts, outbox, sending
from postroom.pipeline.apply_rules import RuleJobs
from postroom.rules.definition import rights_for
from postroom.sending.replies import caller_of, run_rule_job
from tests.approval.conftest import KNOWN, UNKNOWN, KeyFactory
from tests.isolation.request_variants import every_operation
from tests.mails import deliver, mail
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import relay_worker
from tests.servers.relay import relaying

MAIL = {"to": [UNKNOWN], "subject": "Hi", "body_text": "Hello"}
Way = Callable[[RequestContext, str], Awaitable[Any]]


async def _draft(ctx: RequestContext, received: str) -> Any:
    draft = await call(ctx, drafts.create_draft, MAIL)
    return await call(ctx, drafts.send_draft, {"draft_id": draft.id})


async def _captured(ctx: RequestContext, received: str) -> Any:
    """A mail captured without a relay, and sent when there is one."""
    alone = replace(ctx, has_relay=False)
    sent = await call(alone, sending.send_message, MAIL)
    return await call(ctx, outbox.retry_message, {"message_id": sent.message_id})


async def _agents_draft(ctx: RequestContext, received: str) -> Any:
    made = await call(
        ctx, writing.send_mail, {"to": [UNKNOWN], "subject": "S", "body": "B", "draft": True}
    )
    return await call(ctx, writing.send_mail, {"draft_id": made.id})


async def _unsubscribe(ctx: RequestContext, received: str) -> Any:
    inbox = (await ctx.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    raw = mail("News", headers=[("List-Unsubscribe", f"<mailto:{UNKNOWN}>")])
    added = await deliver(ctx, inbox, raw)
    return await call(ctx, unsubscribing.unsubscribe, {"message_id": added.message_id})


def _calls(operation: Any, **arguments: Any) -> Way:
    async def way(ctx: RequestContext, received: str) -> Any:
        filled = {n: [received] if v == ["HEARD"] else received if v == "HEARD" else v
                  for n, v in arguments.items()}  # fmt: skip
        return await call(ctx, operation, filled)

    return way


async def _scheduled(ctx: RequestContext, received: str) -> Any:
    later = {**MAIL, "send_at": (ctx.clock() + timedelta(hours=1)).isoformat()}
    return await call(ctx, sending.send_message, later)


WAYS: dict[str, Way] = {
    "send_message": _calls(sending.send_message, **MAIL),
    "send_email": _calls(
        sending.send_email,
        inbox_id="me@postroom.localhost",
        recipient=UNKNOWN,
        subject="S",
        body="B",
    ),
    "send_email_with_attachments": _calls(
        sending.send_email_with_attachments,
        inbox_id="me@postroom.localhost",
        recipient=UNKNOWN,
        subject="S",
        body="B",
        attachments=[{"filename": "a.txt", "content": "SGk="}],
    ),
    "reply_to_message": _calls(sending.reply_to_message, message_id="HEARD", body_text="Yes"),
    "forward_message": _calls(sending.forward_message, message_id="HEARD", to=[UNKNOWN]),
    "send_draft": _draft,
    "retry_message": _captured,
    "send_mail": _calls(writing.send_mail, to=[UNKNOWN], subject="S", body="B"),
    "send_mail of a draft": _agents_draft,
    "reply_mail": _calls(writing.reply_mail, ids=["HEARD"], body="Yes"),
    "forward_mail": _calls(writing.forward_mail, ids=["HEARD"], to=[UNKNOWN]),
    "unsubscribe": _unsubscribe,
    "scheduled": _scheduled,
}
NOT_SENDING = {"cancel_message": "takes a mail back"}
"""Operations that need the scope `send` and send nothing."""


def test_every_operation_that_sends_is_covered() -> None:
    needing = {name for name, one in every_operation().items() if one.scope is Scope.SEND}

    assert set() == needing - set(WAYS) - set(NOT_SENDING)


@pytest.mark.parametrize("way", WAYS)
async def test_mail_that_needs_approval_is_not_sent(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str, way: str
) -> None:
    agent = await new_key(approval="always")

    await WAYS[way](agent, received)

    async with relaying() as relay, relay_worker(outbox_ctx, relay) as worker:
        await worker.finish(5)
    held = await outbox_ctx.store.outbox(OutboxQuery(EVERYTHING, "held"))
    assert ([], 1) == (relay.mails, held.total)


RULE = "name: pass on\nwhen: {{subject: {{contains: Lunch}}}}\nthen: [{{{action}}}]\n"
SENDING_ACTIONS = {"forward": f"forward: {UNKNOWN}", "reply": "reply: Thanks"}


def test_every_sending_action_of_a_rule_is_covered() -> None:
    from postroom.rules.definition import ACTIONS

    sending_ones = {name for name in ACTIONS if rights_for(Action(name)).scope is Scope.SEND}

    assert set(SENDING_ACTIONS) == sending_ones


@pytest.mark.parametrize("action", SENDING_ACTIONS)
@pytest.mark.parametrize("by_owner", [False, True], ids=["its own plan", "the owner's plan"])
async def test_mail_of_a_rule_is_under_the_policy_of_its_author(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str, action: str, by_owner: bool
) -> None:
    agent = await new_key(approval="always")
    yaml = RULE.format(action=SENDING_ACTIONS[action])
    rule = await call(agent, rules.create_rule, {"rule_yaml": yaml, "dry_run": False})
    applying = outbox_ctx if by_owner else agent
    plan = await call(applying, rules.run_rule_plan, {"rule_id": rule.id})
    await call(applying, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    await _jobs(outbox_ctx).run_due("test")

    held = await outbox_ctx.store.outbox(OutboxQuery(EVERYTHING, "held"))
    assert 1 == held.total


def _jobs(ctx: RequestContext) -> RuleJobs:
    return RuleJobs(ctx, lambda job: run_rule_job(replace(ctx, caller=caller_of(job)), job))


async def test_the_policy_stays_when_the_owner_sends_a_draft_of_an_agent(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key(approval="always")
    draft = await call(agent, drafts.create_draft, {**MAIL, "to": [KNOWN]})

    sent = await call(outbox_ctx, drafts.send_draft, {"draft_id": draft.id})

    assert "held" == sent.status


async def test_scheduled_mail_of_a_removed_key_is_not_sent(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key(approval="never")
    draft = await call(agent, drafts.create_draft, {**MAIL, "to": [KNOWN]})
    await outbox_ctx.store.remove_key(agent.caller.key_id)

    sent = await call(outbox_ctx, drafts.send_draft, {"draft_id": draft.id})

    assert "held" == sent.status


async def test_a_cancelled_hold_is_a_draft_under_the_same_policy(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key(approval="always")
    sent = await call(agent, sending.send_message, {**MAIL, "to": [KNOWN]})
    cancelled = await call(outbox_ctx, writing.undo, {"id": sent.message_id})

    again = await call(outbox_ctx, drafts.send_draft, {"draft_id": cancelled.id})

    assert ("draft", "held") == (cancelled.status, again.status)


ANSWER_ALL = "name: answer\nwhen: {subject: {exists: true}}\nthen: [{reply: Thanks}]\n"
DESK = "desk@postroom.localhost"
TO_DESK = {"to": [DESK], "subject": "All our passwords", "body_text": "x", "reply_to": [UNKNOWN]}


async def _hand_in(ctx: RequestContext) -> None:
    raw = mail("All our passwords", sender=UNKNOWN, to=DESK)
    await call(ctx, inbound.receive_message, {"recipient": DESK, "raw": raw})


async def _to_another_inbox(ctx: RequestContext, **more: Any) -> None:
    await call(ctx, sending.send_message, {**TO_DESK, "inbox_id": "me@postroom.localhost", **more})


async def _to_another_inbox_later(ctx: RequestContext) -> None:
    await _to_another_inbox(ctx, send_at=(ctx.clock() + timedelta(seconds=1)).isoformat())


@pytest.mark.parametrize("bring", [_hand_in, _to_another_inbox, _to_another_inbox_later])
@pytest.mark.parametrize("who", ["the agent", "the owner"])
async def test_an_agent_does_not_send_through_a_rule_of_the_owner(
    outbox_ctx: RequestContext,
    new_key: KeyFactory,
    clock: Clock,
    received: str,
    bring: Any,
    who: str,
) -> None:
    await call(outbox_ctx, inboxes.create_inbox, {"username": "desk"})
    await call(outbox_ctx, rules.create_rule, {"rule_yaml": ANSWER_ALL, "dry_run": False})
    agent = await new_key()

    await bring(agent if who == "the agent" else outbox_ctx)

    async with relaying() as relay, relay_worker(outbox_ctx, relay) as worker:
        clock.now += timedelta(seconds=2)
        await worker.finish(5)
        await _jobs(outbox_ctx).run_due("test")
        await worker.finish(5)
    held = await outbox_ctx.store.outbox(OutboxQuery(EVERYTHING, "held"))
    expected = (0, 1) if who == "the agent" else (1, 0)
    assert expected == (len(relay.mails), held.total)
