"""Rules forward and answer mail, once, and never each other's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.model.stored import MessageQuery
from postroom.operations import messages
from postroom.operations.operation import call
from tests.mails import deliver, mail, new_inbox
from tests.operations.ruling import events_of, rule, saved


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

    assert 1 == await app.errands().do_due("proc_1")
    assert 0 == await app.errands().do_due("proc_2")

    (row,) = (await ctx.store.messages(MessageQuery(inbox_id=other.id))).rows
    assert ("Fwd: Invoice", True) == (row.subject, row.has_attachment)
    headers = await headers_of(ctx, row.id)
    assert "auto-generated" == headers["auto-submitted"]
    assert headers["x-postroom-rule"].startswith("rul_")


async def test_two_rules_that_forward_to_each_other_stop(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    for own, to in ((inbox, other), (other, inbox)):
        text = rule(then=f"{{forward: {to.address}}}", more=f"inbox: {own.id}")
        await saved(ctx, text)
    await deliver(ctx, inbox, mail("Invoice"))

    done = [await app.errands().do_due("proc_1") for _ in range(3)]

    assert [1, 0, 0] == done
    found = await ctx.store.messages(MessageQuery(mailbox="*"))
    assert 3 == found.total


async def test_two_rules_that_answer_each_other_stop_at_one(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    await saved(ctx, rule("{size_bytes: {greater_than: 0}}", "{reply: I am a machine}"))
    raw = mail("Hello", sender=f"Other <{other.address}>", to=inbox.address)
    await deliver(ctx, inbox, raw)

    done = [await app.errands().do_due("proc_1") for _ in range(3)]

    assert [1, 0, 0] == done
    (answer,) = (await ctx.store.messages(MessageQuery(inbox_id=other.id))).rows
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
        ([("X-Postroom-Rule", "rul_other")], 0),
        ([("X-Auto-Response-Suppress", "None")], 1),
        ([("X-Auto-Response-Suppress", "All")], 1),
    ],
)
async def test_only_what_a_person_wrote_is_answered(ctx, app, inbox, headers, answers):
    await saved(ctx, rule(then="{reply: Thanks}"))

    await deliver(ctx, inbox, mail("Invoice", headers=headers))

    assert answers == await app.errands().do_due("proc_1")


async def test_a_sender_gets_one_answer_a_day_in_a_thread(ctx, app, inbox):
    await saved(ctx, rule(then="{reply: Thanks}"))
    for number in range(3):
        refs = [] if number == 0 else ["<first@x>"]
        mid = "<first@x>" if number == 0 else "new"
        headers = [("Reply-To", "elsewhere@example.com")]
        raw = mail("Re: Invoice", message_id=mid, references=refs, headers=headers)
        await deliver(ctx, inbox, raw)

    await app.errands().do_due("proc_1")

    sent = await ctx.store.messages(MessageQuery(mailbox="Sent"))
    assert 1 == sent.total
    assert () == await events_of(ctx, "rule.failed")


async def test_a_forward_that_cannot_be_sent_is_an_event_not_a_loss(ctx, app, inbox):
    await saved(ctx, rule(then="{forward: x@example.com}"))
    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    small = replace(app.house, limits=replace(app.house.limits, message_bytes=10))

    await replace(app, house=small).errands().do_due("proc_1")

    (failed,) = await events_of(ctx, "rule.failed")
    assert (invoice, True) == (failed.message_id, "forward" in failed.data["detail"])
