"""Rules forward and answer mail once, and never answer each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.calls.operation import call
from postroom.model.key import AGENT, OWNER
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.operations import rules
from postroom.operations.mail import messages
from postroom.operations.outgoing import sending
from postroom.pipeline.apply_rules import rules_without_rights
from postroom.sending.replies import caller_of, run_rule_job
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import context_of_key, events_of, plan_of, rule, saved, state_of


async def headers_of(ctx, message_id):
    found = await call(
        ctx, messages.get_message, {"message_id": message_id, "include_headers": True}
    )
    return {header.name.lower(): header.value for header in found.headers}


async def test_a_forward_goes_out_once_marked_as_ours(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    await saved(ctx, rule(then=f"{{forward: {other.address}}}", more=f"inbox: {inbox.id}"))
    file = ("a.txt", "text/plain", b"a")
    await deliver(ctx, inbox, mail("Invoice", "Pay", attachments=[file]))

    assert 1 == await app.rule_jobs().run_due("proc_1")
    assert 0 == await app.rule_jobs().run_due("proc_2")

    (row,) = (await ctx.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=other.id))).rows
    assert ("Fwd: Invoice", True) == (row.subject, row.has_attachment)
    headers = await headers_of(ctx, row.id)
    assert "auto-generated" == headers["auto-submitted"]
    assert headers["x-postroom-rule"].startswith("t=forward; s=")


async def test_two_rules_that_forward_to_each_other_stop(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    for own, to in ((inbox, other), (other, inbox)):
        text = rule(then=f"{{forward: {to.address}}}", more=f"inbox: {own.id}")
        await saved(ctx, text)
    await deliver(ctx, inbox, mail("Invoice"))

    done = [await app.rule_jobs().run_due("proc_1") for _ in range(3)]

    assert [1, 0, 0] == done
    found = await ctx.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))
    assert 3 == found.total


async def test_two_rules_that_answer_each_other_stop_at_one(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    await saved(ctx, rule("{size_bytes: {greater_than: 0}}", "{reply: I am a machine}"))
    raw = mail("Hello", sender=f"Other <{other.address}>", to=inbox.address)
    await deliver(ctx, inbox, raw)

    done = [await app.rule_jobs().run_due("proc_1") for _ in range(3)]

    assert [1, 0, 0] == done
    (answer,) = (await ctx.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=other.id))).rows
    assert "auto-replied" == (await headers_of(ctx, answer.id))["auto-submitted"]


@pytest.mark.parametrize(
    ("headers", "answers"),
    [
        ([], 1),
        ([("Auto-Submitted", "auto-replied")], 0),
        ([("Precedence", "bulk")], 0),
        ([("List-Id", "<l.example>")], 0),
        ([("X-Loop", "x")], 0),
        ([("X-Autoreply", "yes")], 0),
        ([("Return-Path", "<>")], 0),
        ([("X-Postroom-Rule", "rul_other")], 1),
        ([("X-Auto-Response-Suppress", "None")], 1),
        ([("X-Auto-Response-Suppress", "All")], 1),
    ],
)
async def test_only_what_a_person_wrote_is_answered(ctx, app, inbox, headers, answers):
    await saved(ctx, rule(then="{reply: Thanks}"))

    await deliver(ctx, inbox, mail("Invoice", headers=headers))

    assert answers == await app.rule_jobs().run_due("proc_1")


async def test_a_sender_gets_one_answer_a_day_in_a_thread(ctx, app, inbox):
    await saved(ctx, rule(then="{reply: Thanks}"))
    for number in range(3):
        refs = [] if number == 0 else ["<first@x>"]
        mid = "<first@x>" if number == 0 else "new"
        headers = [("Reply-To", "elsewhere@example.com")]
        raw = mail("Re: Invoice", message_id=mid, references=refs, headers=headers)
        await deliver(ctx, inbox, raw)

    await app.rule_jobs().run_due("proc_1")

    sent = await ctx.store.messages(MessageQuery(visible=EVERYTHING, mailbox="Sent"))
    assert 1 == sent.total
    assert () == await events_of(ctx, "rule.failed")


async def test_a_forward_that_cannot_be_sent_is_an_event_not_a_loss(ctx, app, inbox):
    await saved(ctx, rule(then="{forward: x@example.com}"))
    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    small = replace(app.services, limits=replace(app.services.limits, message_bytes=10))

    await replace(app, services=small).rule_jobs().run_due("proc_1")

    (failed,) = await events_of(ctx, "rule.failed")
    assert (invoice, True) == (failed.message_id, "forward" in failed.data["detail"])


def _few(app, sends):
    return replace(
        app,
        services=replace(app.services, limits=replace(app.services.limits, sends_per_hour=sends)),
    )


async def _sent_by(ctx, *inboxes):
    found = [
        MessageQuery(visible=EVERYTHING, inbox_id=inbox.id, mailbox="Sent") for inbox in inboxes
    ]
    return sum([(await ctx.store.messages(query)).total for query in found])


async def test_many_rules_of_one_inbox_share_one_limit(ctx, app, inbox):
    for number in range(6):
        at = rule(then=f"{{forward: x{number}@example.com}}", more=f"inbox: {inbox.id}")
        await saved(ctx, at)
    await deliver(ctx, inbox, mail("Invoice"))

    await _few(app, 2).rule_jobs().run_due("proc_1")

    assert 2 == await _sent_by(ctx, inbox)
    assert () == await events_of(ctx, "rule.failed")


async def _made_by(app, ctx, who):
    if who in ("owner", "agent"):
        return app.context(OWNER if who == "owner" else AGENT)
    if who == "owner's key":
        return app.context(await app.authenticate(await app.owner_key()))
    return await context_of_key(app, ctx)


@pytest.mark.parametrize("who", ["owner", "agent", "owner's key", "a key"])
@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("then", ["forward: x@example.com", "reply: Thanks"])
async def test_rules_under_one_key_share_one_limit_over_all_inboxes(
    app, ctx, who, is_planned, then
):
    by = await _made_by(app, ctx, who)
    inboxes = [await new_inbox(ctx, f"i{number}") for number in range(5)]
    if not is_planned:
        await saved(by, rule(then=f"{{{then}}}"))
        await saved(by, rule(then=f"{{{then}}}", more=f"inbox: {inboxes[0].id}"))
    for number, inbox in enumerate(inboxes):
        await deliver(ctx, inbox, mail("Invoice", sender=f"s{number}@example.com"))
    if is_planned:
        plan = await plan_of(by, rule(then=f"{{{then}}}"))
        await call(by, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    await _few(app, 2).rule_jobs().run_due("proc_1")

    assert 2 == await _sent_by(ctx, *inboxes)


async def test_each_authority_has_a_limit_and_direct_sends_their_own(app, ctx, inbox):
    few = _few(app, 1)
    makers = [
        few.context(OWNER),
        few.context(AGENT),
        await context_of_key(few, ctx),
        await context_of_key(few, ctx),
    ]
    for by in makers:
        await saved(by, rule(then="{forward: x@example.com}"))
    for number in range(3):
        await deliver(ctx, inbox, mail(f"Invoice {number}"))

    await few.rule_jobs().run_due("proc_1")
    outgoing_mail = {
        "inbox_id": inbox.id,
        "to": ["y@example.com"],
        "subject": "Hi",
        "body_text": "Hi",
    }
    for by in makers[1:]:
        await call(by, sending.send_message, outgoing_mail)

    assert len(makers) + len(makers[1:]) == await _sent_by(ctx, inbox)


async def test_a_rule_without_a_recorded_key_has_the_limit_of_its_inbox(app, ctx, inbox):
    other = await new_inbox(ctx, "other")
    for one in (inbox, other):
        await saved(ctx, rule(then="{forward: x@example.com}", more=f"inbox: {one.id}"))
    await ctx.store.engine.write(lambda tx: tx.run("UPDATE rules SET authority = NULL"))
    for one in (inbox, other, inbox):
        await deliver(ctx, one, mail("Invoice"))

    await _few(app, 1).rule_jobs().run_due("proc_1")

    assert [1, 1] == [await _sent_by(ctx, one) for one in (inbox, other)]


async def test_rules_of_the_agent_may_do_what_the_owner_may(app, ctx, inbox, invoice):
    made = await saved(app.context(AGENT), rule(then="flag, {forward: x@example.com}"))
    second = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    await app.rule_jobs().run_due("proc_1")

    assert ("flagged",) == (await state_of(ctx, second))[1]
    assert 1 == await _sent_by(ctx, inbox)
    assert [] == await rules_without_rights(app.services)
    assert ("agent", True) == (made.authority, made.enabled)


@pytest.mark.parametrize("former", ["rule:{rule}", "rules:{inbox}"])
async def test_what_an_earlier_version_sent_for_a_rule_is_not_sent_again(ctx, app, inbox, former):
    made = await saved(ctx, rule(then="{forward: x@example.com}"))
    await deliver(ctx, inbox, mail("Invoice"))
    (job,) = await ctx.store.claim_rule_jobs("old", now=ctx.clock(), until=ctx.clock(), limit=9)
    old = a_caller(former.format(rule=made.id, inbox=inbox.id), inboxes=only(inbox.id))
    await run_rule_job(app.context(old), job)

    await run_rule_job(app.context(caller_of(job)), job)

    assert 1 == (await ctx.store.messages(MessageQuery(visible=EVERYTHING, mailbox="Sent"))).total
