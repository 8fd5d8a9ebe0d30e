"""Rules cannot send mail without end, and a header cannot switch them off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import Conflict
from postroom.mail.addresses import without_tag
from postroom.mail.senders import is_own_forward, mark_key, rule_mark
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.mail.storage import MessageQuery, ReplyLimit
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.operations import rules
from postroom.operations.outgoing.sending import reply_to_message
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import events_of, plan_of, rule, saved

EVERY = "{size_bytes: {greater_than: 0}}"


_SENT = MessageQuery(visible=EVERYTHING, mailbox="Sent", page=Slice(limit=100))


async def sent_mails(ctx):
    rows = (await ctx.store.messages(_SENT)).rows
    messages = [await ctx.store.message(row.id, EVERYTHING) for row in rows]
    return [(message, await ctx.blobs.read(message.raw)) for message in messages]


async def recipients(ctx):
    return sorted(address for m, _ in await sent_mails(ctx) for address in m.to_addresses)


async def test_a_forged_sender_gets_one_reply(ctx, app, inbox):
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    await saved(ctx, rule(EVERY, "{reply: Thanks again}"))
    senders = ["victim@example.com", "Victim@Example.COM", "victim+a@example.com"]
    for number in range(25):
        raw = mail(f"Subject {number}", sender=senders[number % 3], to=inbox.address)
        await deliver(ctx, inbox, raw)

    await app.rule_jobs().run_due("proc_1")

    assert 1 == len(await recipients(ctx))
    assert () == await events_of(ctx, "rule.failed")


async def test_replies_are_limited_by_reply_address(ctx, app, inbox):
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    for number in range(10):
        headers = [("Reply-To", "victim@example.com")]
        await deliver(ctx, inbox, mail(f"S {number}", sender=f"s{number}@x.org", headers=headers))

    await app.rule_jobs().run_due("proc_1")

    assert ["victim@example.com"] == await recipients(ctx)


async def test_replies_to_an_address_are_limited_over_all_inboxes(ctx, app):
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    for number in range(12):
        inbox = await new_inbox(ctx, f"inbox{number}")
        for subject in ("a", "b"):
            await deliver(ctx, inbox, mail(f"{subject} {number}", sender="victim@example.com"))

    await app.rule_jobs().run_due("proc_1")

    assert app.services.limits.automatic_replies_per_day == len(await recipients(ctx))


async def test_the_limit_is_for_one_address_and_one_day(ctx, app, inbox):
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    for sender in ("victim@example.com", "victim@example.com", "other@example.com"):
        await deliver(ctx, inbox, mail("Hello", sender=sender))
    await app.rule_jobs().run_due("proc_1")
    first = await recipients(ctx)
    later = replace(app.services, clock=lambda: ctx.clock() + timedelta(days=1, minutes=1))
    tomorrow = replace(app, services=later)
    await deliver(tomorrow.context(OWNER), inbox, mail("Again", sender="victim@example.com"))
    await tomorrow.rule_jobs().run_due("proc_1")

    assert ["other@example.com", "victim@example.com"] == first
    assert 3 == len(await recipients(ctx))


async def test_the_limit_is_a_setting(ctx, app, inbox):
    limits = replace(
        app.services.limits, automatic_replies_per_inbox=3, automatic_replies_per_day=4
    )
    few = replace(app, services=replace(app.services, limits=limits))
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    other = await new_inbox(ctx, "other")
    for number in range(6):
        await deliver(ctx, inbox, mail(f"S {number}", sender="victim@example.com"))
    await few.rule_jobs().run_due("proc_1")
    of_one = len(await recipients(ctx))
    for number in range(6):
        await deliver(ctx, other, mail(f"S {number}", sender="victim@example.com"))
    await few.rule_jobs().run_due("proc_1")

    assert (3, 4) == (of_one, len(await recipients(ctx)))


@pytest.mark.parametrize("theirs", [1, 2, 3])
async def test_a_refused_reply_does_not_reveal_counts_of_others(ctx, app, inbox, theirs):
    limits = replace(
        app.services.limits, automatic_replies_per_inbox=3, automatic_replies_per_day=4
    )
    few = replace(app, services=replace(app.services, limits=limits))
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    other = await new_inbox(ctx, "other")
    for where in [other] * theirs + [inbox] * (4 - theirs):
        await deliver(ctx, where, mail("S", sender="victim@example.com"))
    await few.rule_jobs().run_due("proc_1")

    with pytest.raises(Conflict) as refused:
        await ctx.store.refuse_many_replies(
            inbox.id, ["victim@example.com"], ReplyLimit(3, 4), ctx.clock()
        )

    assert not any(outgoing_mail.isdigit() for outgoing_mail in str(refused.value))


async def test_the_limit_applies_to_plans(ctx, app, inbox):
    for number in range(5):
        await deliver(ctx, inbox, mail(f"Invoice {number}", sender="victim@example.com"))
    plan = await plan_of(ctx, rule(then="{reply: Thanks}"))

    assert {"reply": 1} == plan.actions_by_type
    assert any("one automatic reply" in warning for warning in plan.warnings)


async def answered(ctx, inbox, number, sender="victim@example.com", **more):
    """Whether an agent may send one more automatic answer, in a new thread."""
    added = await deliver(ctx, inbox, mail(f"S {number} {inbox.id}", sender=sender))
    arguments = {"message_id": added.message_id, "body_text": f"{number}", "automatic": True}
    try:
        return "captured" == (await call(ctx, reply_to_message, {**arguments, **more})).status
    except Conflict as error:
        return "leave out automatic" not in str(error)


async def test_automatic_answers_of_an_agent_to_an_address_are_limited(ctx, app, inbox):
    senders = ["victim@example.com", "Victim@Example.COM", "victim+a@example.com"]
    sent = [await answered(ctx, inbox, number, senders[number % 3]) for number in range(25)]

    assert app.services.limits.automatic_replies_per_day == sum(sent)
    assert await answered(ctx, inbox, 30, automatic=False)
    assert await answered(ctx, inbox, 31, "somebody@example.com")


async def test_automatic_answers_are_limited_over_all_inboxes(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    sent = [await answered(ctx, where, number) for number in range(10) for where in (inbox, other)]

    assert app.services.limits.automatic_replies_per_day == sum(sent)


async def test_a_key_learns_nothing_of_the_answers_of_other_inboxes(ctx, app, inbox):
    other = await new_inbox(ctx, "other")
    for number in range(9):
        await answered(ctx, other, number)
    key = replace(OWNER, key_id="key_a", inboxes=only(inbox.id), is_owner=False)
    limited = app.context(key)
    sent = [await answered(limited, inbox, number) for number in range(9)]

    assert app.services.limits.automatic_replies_per_day == sum(sent)


async def test_rules_and_agents_share_one_limit(ctx, app, inbox):
    await answered(ctx, inbox, 1)
    await saved(ctx, rule(EVERY, "{reply: Thanks}"))
    await deliver(ctx, inbox, mail("S 2", sender="victim@example.com"))
    await app.rule_jobs().run_due("proc_1")

    assert ["victim@example.com"] == await recipients(ctx)


@given(st.sampled_from(["ana", "ANA", "ana+x", "Ana+", '"ana+y"']), st.sampled_from(["", "."]))
def test_case_and_tag_do_not_make_another_address(local, dot):
    assert "ana@example.com" == without_tag(f"{local}@Example.com{dot}")


def test_an_address_with_only_a_tag_is_not_a_shared_mailbox():
    assert "+x@example.com" == without_tag("+x@example.com")
    assert without_tag("a@example.com") != without_tag("b@example.com")


async def test_a_header_of_a_sender_disables_no_rule(ctx, app, inbox):
    kept = await saved(ctx, rule(EVERY, "{forward: boss@example.com}"))
    foreign = rule_mark(mark_key(b"another"), "forward", "m3@x.org")
    for number, mark in enumerate(("1", kept.id, "t=forward; s=", foreign)):
        headers = [("X-Postroom-Rule", mark)]
        raw = mail(f"S {number}", message_id=f"<m{number}@x.org>", headers=headers)
        await deliver(ctx, inbox, raw)

    await app.rule_jobs().run_due("proc_1")

    assert ["boss@example.com"] * 4 == await recipients(ctx)


async def test_a_loop_header_copied_from_our_mail_disables_no_rule(ctx, app, inbox):
    """Neither that of a forward on another mail, nor that of a reply with its Message-ID."""
    await saved(ctx, rule("{subject: {contains: first}}", "{forward: friend@example.com}"))
    await saved(ctx, rule("{subject: {contains: first}}", "{reply: Thanks}"))
    await deliver(ctx, inbox, mail("first", sender="stranger@example.com"))
    await app.rule_jobs().run_due("proc_1")
    marks = {m.to_addresses[0]: (head_value(raw), m) for m, raw in await sent_mails(ctx)}
    await saved(ctx, rule("{subject: {contains: copied}}", "{forward: boss@example.com}"))
    forward, _ = marks["friend@example.com"]
    reply, answer = marks["stranger@example.com"]
    for mark, message_id in (
        (forward, "<other@x.org>"),
        (reply, "<other2@x.org>"),
        (reply, f"<{answer.internet_message_id}>"),
    ):
        headers = [("X-Postroom-Rule", mark)]
        await deliver(ctx, inbox, mail("copied", message_id=message_id, headers=headers))

    await app.rule_jobs().run_due("proc_1")

    assert 3 == (await recipients(ctx)).count("boss@example.com")


def head_value(raw: bytes) -> str:
    head = raw.decode("latin-1").replace("\r\n ", " ").split("\r\n\r\n")[0]
    (line,) = [one for one in head.split("\r\n") if one.lower().startswith("x-postroom-rule:")]
    return line.partition(":")[2].strip()


async def test_a_returned_forward_is_ignored_and_planned_so(ctx, app, inbox):
    kept = await saved(ctx, rule(EVERY, "{forward: list@example.com}"))
    await deliver(ctx, inbox, mail("Hello"))
    await app.rule_jobs().run_due("proc_1")
    ((_, raw),) = await sent_mails(ctx)
    assert kept.id.encode() not in raw

    other = await new_inbox(ctx, "other")
    await deliver(ctx, other, b"Received: from list.example.com\r\n" + raw)
    plan = await plan_of(ctx, rule(EVERY, "{forward: x@example.com}", f"inbox: {other.id}"))

    assert 0 == await app.rule_jobs().run_due("proc_1")
    assert ({}, 1) == (plan.actions_by_type, plan.total_matches)


@given(st.binary(min_size=1), st.text(), st.text())
def test_only_the_complete_loop_header_with_its_message_id_counts(secret, kind, other):
    key = mark_key(secret)
    mark = rule_mark(key, "forward", "a@x.org")
    own = [("Message-ID", "<a@x.org>"), ("X-Postroom-Rule", mark)]

    assert is_own_forward(key, own)
    assert not is_own_forward(mark_key(secret + b"1"), own)
    assert not is_own_forward(b"", own)
    assert not is_own_forward(key, [*own, ("message-id", "<b@x.org>")])
    assert not is_own_forward(key, own[1:])
    assert not is_own_forward(key, [own[0], ("X-Postroom-Rule", f"{kind}; {other}")])
    assert not is_own_forward(key, [own[0], ("X-Postroom-Rule", mark[:-1])])
    reply = rule_mark(key, "reply", "a@x.org")
    assert not is_own_forward(key, [own[0], ("X-Postroom-Rule", reply)])


@asynccontextmanager
async def installation(folder, domain, then) -> AsyncIterator:
    """Another Postroom, with an inbox and a rule on every mail."""
    given = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_DOMAIN": domain}
    async with open_app(read_settings(given).settings) as app:
        ctx = app.context(OWNER)
        made = Inbox(ctx.new_id("inb"), f"a@{domain}", "", None, ctx.clock())
        inbox = await ctx.store.add_inbox(made, client_id=None, payload=b"")
        await saved(ctx, rule(EVERY, then))
        yield app, ctx, inbox


async def exchange(one, other) -> int:
    """Carry mail between two installations until there is none left; returns how much there was."""
    carried = dict[bytes, None]()
    for _ in range(40):
        before = len(carried)
        for (app, ctx, _), (_, to, inbox) in ((one, other), (other, one)):
            await app.rule_jobs().run_due("proc_1")
            for _, raw in await sent_mails(ctx):
                if raw not in carried:
                    carried[raw] = None
                    await deliver(to, inbox, raw)
        if before == len(carried):
            break
    return len(carried)


@pytest.mark.parametrize(
    ("thens", "most"),
    [
        (("{reply: I am out}", "{reply: So am I}"), 1),
        (("{forward: a@two.test}", "{forward: a@one.test}"), 8),
        (("{forward: a@two.test}", "{reply: Thanks}"), 2),
    ],
)
async def test_two_installations_do_not_reply_to_each_other_forever(tmp_path, thens, most):
    async with (
        installation(tmp_path / "one", "one.test", thens[0]) as one,
        installation(tmp_path / "two", "two.test", thens[1]) as two,
    ):
        raw = mail("Hello", sender="a@two.test", to="a@one.test")
        await deliver(one[1], one[2], raw)

        assert 1 <= await exchange(one, two) <= most


async def test_many_mails_of_a_machine_in_one_thread_are_forwarded(ctx, app, inbox):
    await saved(ctx, rule(EVERY, "{forward: boss@example.com}"))
    for _ in range(8):
        headers = [("Auto-Submitted", "auto-generated")]
        refs = ["<root@github.example>"]
        await deliver(ctx, inbox, mail("Re: Pull request", headers=headers, references=refs))

    await app.rule_jobs().run_due("proc_1")

    assert 8 == len(await recipients(ctx))


@pytest.mark.parametrize("tag", ["", "+{}"])
async def test_a_plan_announces_as_many_replies_as_are_sent(ctx, app, inbox, tag):
    for number in range(4):
        address = f"victim{tag.format(number)}@example.com"
        raw = mail("S", sender=f"s{number}@example.com", headers=[("Reply-To", address)])
        await deliver(ctx, inbox, raw)
    await deliver(ctx, inbox, mail("S", sender="other@example.com"))

    promised = []
    for text in ("Thanks", "Thanks again"):
        plan = await plan_of(ctx, rule(EVERY, f"{{reply: {text}}}"))
        promised.append(plan.actions_by_type.get("reply", 0))
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
        await app.rule_jobs().run_due("proc_1")

    assert [len(await recipients(ctx)), 0] == promised
