"""Rules are planned, applied exactly, undone, and run on mail that arrives."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound
from postroom.model.event import EventQuery
from postroom.model.key import Caller, Scope
from postroom.model.stored import Change, MessageQuery
from postroom.operations import audit, memories, messages, rules, webhooks
from postroom.operations.operation import call
from postroom.pipeline.importing import import_mail
from postroom.pipeline.sources import SourceMail
from tests.mails import deliver, mail, new_inbox

INVOICES = """
name: Invoices
when: [{subject: {contains: invoice}}]
then: [{apply_label: Bookkeeping}, mark_read, {move: Archive}]
"""


def rule(when: str = "{subject: {contains: invoice}}", then: str = "mark_read", more: str = ""):
    return f"name: r\nwhen: [{when}]\nthen: [{then}]\n{more}"


async def plan_of(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text})


async def saved(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text, "dry_run": False})


async def state_of(ctx, message_id):
    message = await ctx.store.message(message_id, None)
    return message and (message.labels, message.flags, message.mailboxes)


async def events_of(ctx, *types):
    return (await ctx.store.events(EventQuery(types=types))).rows


async def entries(ctx, **given):
    page = await call(ctx, audit.list_audit, {"limit": 100, **given})
    return [(entry.actor, entry.action, entry.target) for entry in page.results]


@pytest.fixture
async def inbox(ctx):
    return await new_inbox(ctx)


@pytest.fixture
async def invoice(ctx, inbox):
    return (await deliver(ctx, inbox, mail("Invoice 7"))).message_id


async def test_a_dry_run_saves_no_rule_but_its_plan_can_be_applied(ctx, invoice):
    plan = await plan_of(ctx)

    assert None is plan.rule_id
    assert 0 == (await call(ctx, rules.list_rules, {})).total
    assert ((), (), ("Inbox",)) == await state_of(ctx, invoice)
    assert [] == await entries(ctx)
    result = await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    assert ("ok", (invoice,), plan.plan_id) == (result.status, result.succeeded, result.plan_id)
    assert (("Bookkeeping",), ("seen",), ("Archive",)) == await state_of(ctx, invoice)
    found = await ctx.store.messages(MessageQuery(labels=("bookkeeping",), mailbox="archive"))
    assert [invoice] == [row.id for row in found.rows]


async def test_a_plan_is_applied_once(ctx, invoice):
    plan = await plan_of(ctx)
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    with pytest.raises(Conflict, match="applied already"):
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (Change(add_labels=("X",)), "relabelled"),
        (Change(flags=("flagged",)), "flagged"),
        (Change(move_to="Projects"), "moved"),
        (None, "deleted"),
    ],
)
async def test_a_stale_plan_does_nothing(ctx, inbox, invoice, change, word):
    other = (await deliver(ctx, inbox, mail("Invoice 8"))).message_id
    plan = await plan_of(ctx)
    if change is None:
        await ctx.store.remove_message(invoice, None)
    else:
        await ctx.store.change_messages([invoice], change, None)

    with pytest.raises(Conflict, match=word) as refused:
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    assert [invoice] == refused.value.details["message_ids"]
    assert ((), (), ("Inbox",)) == await state_of(ctx, other)


async def test_a_plan_has_its_time(ctx, invoice):
    plan = await plan_of(ctx)
    later = replace(ctx, clock=lambda: plan.expires_at)

    with pytest.raises(NotFound, match="over"):
        await call(later, rules.apply_rule_plan, {"plan_id": plan.plan_id})


async def test_more_messages_than_the_rule_allows_are_refused(ctx, inbox):
    for number in range(3):
        await deliver(ctx, inbox, mail(f"Invoice {number}"))

    plan = await plan_of(ctx, INVOICES + "safety: {max_messages: 2}")

    assert "3 messages match, but safety.max_messages is 2" in plan.warnings[0]
    with pytest.raises(Conflict, match="max_messages"):
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})


async def test_a_plan_of_a_deleted_rule_is_not_applied(ctx, invoice):
    kept = await saved(ctx)
    plan = await call(ctx, rules.run_rule_plan, {"rule_id": kept.id})
    await call(ctx, rules.delete_rule, {"rule_id": kept.id})

    with pytest.raises(Conflict, match="deleted"):
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})


async def test_a_plan_is_read_in_pages(ctx, inbox):
    for number in range(5):
        await deliver(ctx, inbox, mail(f"Invoice {number}"))
    kept = await saved(ctx)

    first = await call(ctx, rules.run_rule_plan, {"rule_id": kept.id, "limit": 2})
    rest = await call(
        ctx,
        rules.get_rule_plan,
        {"plan_id": first.plan_id, "limit": 100, "cursor": first.next_cursor},
    )
    skipped = await call(ctx, rules.get_rule_plan, {"plan_id": first.plan_id, "offset": 4})

    assert (5, 2, True) == (first.total_matches, first.count, first.has_more)
    assert (3, 2, False) == (rest.count, rest.offset, rest.has_more)
    assert [row["subject"] for row in rest.matched_messages][-1:] == [
        row["subject"] for row in skipped.matched_messages
    ]
    assert {"apply_label": 5, "mark_read": 5, "move": 5} == skipped.actions_by_type


async def test_trash_and_junk_are_left_out_unless_they_are_named(ctx, inbox):
    ids = {}
    for box in ("Inbox", "Trash", "Junk"):
        ids[box] = (await deliver(ctx, inbox, mail("Invoice"), box)).message_id

    usual = await plan_of(ctx)
    named = await plan_of(
        ctx, rule("{any: [{mailbox: {equals: trash}}, {subject: {contains: invoice}}]}", "flag")
    )
    negated = await plan_of(ctx, rule("{not: {mailbox: {equals: Trash}}}", "flag"))

    assert [ids["Inbox"]] == [row["message_id"] for row in usual.matched_messages]
    assert {ids["Inbox"], ids["Trash"]} == {row["message_id"] for row in named.matched_messages}
    assert [ids["Inbox"]] == [row["message_id"] for row in negated.matched_messages]


async def test_headers_of_stored_mail_are_looked_at(ctx, inbox):
    for number, priority in enumerate(("1", "5")):
        raw = mail(f"Invoice {number}", headers=[("X-Priority", priority), ("List-Id", "<l.x>")])
        await deliver(ctx, inbox, raw)

    plan = await plan_of(
        ctx, rule("{header.x-priority: {equals: '1'}}, {list_id: {equals: l.x}}", "flag")
    )

    assert ["Invoice 0"] == [row["subject"] for row in plan.matched_messages]


async def test_undo_puts_everything_back_exactly(ctx, inbox):
    added = await deliver(ctx, inbox, mail("Invoice"))
    before = Change(labels=("B", "a", "C"), flags=("flagged",), move_to="Projects")
    await ctx.store.change_messages([added.message_id], before, None)
    state = await state_of(ctx, added.message_id)
    then = "{remove_label: A}, {apply_label: Z}, unflag, mark_read, archive"
    plan = await plan_of(ctx, rule(then=then))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert ("ok", (added.message_id,)) == (result.status, result.succeeded)
    assert state == await state_of(ctx, added.message_id)
    with pytest.raises(Conflict, match="undone already"):
        await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})


async def test_undo_leaves_what_others_changed_and_names_it(ctx, invoice):
    plan = await plan_of(ctx)
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    since = Change(add_labels=("Mine",), move_to="Projects")
    await ctx.store.change_messages([invoice], since, None)

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert "partial" == result.status
    assert "place" in result.failed[0].message
    assert (("Mine",), (), ("Projects",)) == await state_of(ctx, invoice)


async def test_undo_names_what_is_gone_and_what_left_the_house(ctx, inbox, invoice):
    await deliver(ctx, inbox, mail("Invoice 8"))
    plan = await plan_of(ctx, rule(then="flag, {webhook: 'https://example.com/x'}"))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    await ctx.store.remove_message(invoice, None)

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert {"not_found", "conflict"} == {failed.code for failed in result.failed}
    assert any("has left the house" in failed.message for failed in result.failed)


async def test_a_rule_may_forbid_undoing(ctx, invoice):
    plan = await plan_of(ctx, INVOICES + "safety: {undo: false}")
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    with pytest.raises(Conflict, match="undo: false"):
        await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})


async def test_a_forward_that_nobody_began_is_taken_back(ctx, app, invoice):
    plan = await plan_of(ctx, rule(then="{forward: x@example.com}"))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert "ok" == result.status
    assert 0 == await app.errands().do_due("proc_1")


async def test_rules_are_kept_in_order_and_can_be_changed(ctx):
    first, second, third = [await saved(ctx, f"{INVOICES}description: {n}") for n in "123"]

    moved = await call(ctx, rules.update_rule, {"rule_id": third.id, "position": 1})
    off = await call(ctx, rules.update_rule, {"rule_id": first.id, "enabled": False})
    gone = await call(ctx, rules.delete_rule, {"rule_id": second.id})

    assert (1, False, second.id) == (moved.position, off.enabled, gone.id)
    listed = await call(ctx, rules.list_rules, {})
    assert [third.id, first.id] == [kept.id for kept in listed.results]
    assert [1, 2, 3] == [kept.position for kept in (first, second, third)]


async def test_a_key_cannot_let_a_rule_do_what_it_may_not_do_itself(app, ctx, inbox, invoice):
    writer = app.context(Caller("key_1", frozenset({Scope.READ, Scope.WRITE})))
    forwarding = rule(then="{forward: x@example.com}")
    owners = await plan_of(ctx, forwarding)
    kept = await saved(ctx, forwarding)
    await call(ctx, rules.update_rule, {"rule_id": kept.id, "enabled": False})

    for text in (forwarding, rule(then="{reply: Thanks}"), rule(then="{webhook: whk_1}")):
        with pytest.raises(Forbidden, match="needs a key with the scope"):
            await saved(writer, text)
    with pytest.raises(Forbidden, match="send"):
        await call(writer, rules.apply_rule_plan, {"plan_id": owners.plan_id})
    with pytest.raises(Forbidden, match="send"):
        await call(writer, rules.update_rule, {"rule_id": kept.id, "enabled": True})
    assert await saved(writer)


async def test_a_limited_key_makes_rules_for_its_own_inboxes(app, ctx, inbox):
    theirs = await new_inbox(ctx, "theirs")
    limited = app.context(Caller("key_1", inboxes=frozenset({inbox.id})))
    owners = await saved(ctx)
    own = await saved(limited, rule(then="flag"))
    foreign = (await deliver(ctx, theirs, mail("Invoice"))).message_id
    seen = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert (("Bookkeeping",), ("seen",), ("Archive",)) == await state_of(ctx, foreign)
    assert "flagged" in (await state_of(ctx, seen))[1]
    assert [own.id] == [kept.id for kept in (await call(limited, rules.list_rules, {})).results]
    with pytest.raises(NotFound):
        await call(limited, rules.run_rule_plan, {"rule_id": owners.id})
    with pytest.raises(NotFound):
        await saved(limited, f"inbox: {theirs.id}\n{rule()}")


async def test_what_cannot_be_done_here_is_refused_when_it_is_saved(ctx):
    for then, word in (
        ("{remember: {key: fulltext, text: b}}", "reserved"),
        ("{webhook: 'http://127.0.0.1/x'}", "public Internet"),
        ("{webhook: 'http://[::1]/x'}", "public Internet"),
    ):
        with pytest.raises(InvalidInput, match=word):
            await saved(ctx, rule(then=then))
    with pytest.raises(NotFound, match="account"):
        await saved(ctx, rule(more="account: nowhere"))


async def test_rules_run_on_mail_that_arrives_until_one_says_stop(ctx, inbox):
    first = await saved(ctx, rule(then="{apply_label: A}, flag, stop"))
    await saved(ctx, rule(then="{apply_label: Never}"))
    await saved(ctx, rule("{subject: {contains: other}}", "archive", "enabled: false"))
    await saved(ctx, rule("{subject: {contains: other}}", "delete", "safety: {require_plan: true}"))

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    other = (await deliver(ctx, inbox, mail("Other"))).message_id

    assert (("A",), ("flagged",), ("Inbox",)) == await state_of(ctx, invoice)
    assert ((), (), ("Inbox",)) == await state_of(ctx, other)
    assert [(first.id, "rule_applied", invoice)] == await entries(ctx, actor=first.id)


async def test_imported_mail_is_no_arrival(ctx, inbox):
    await saved(ctx)

    await import_mail(ctx, [SourceMail("x", mail("Invoice"))], inbox.id)

    (row,) = (await ctx.store.messages(MessageQuery(mailbox="*"))).rows
    assert ((), ("Inbox",)) == (row.labels, row.mailboxes)


async def test_a_duplicate_is_ruled_once(ctx, inbox):
    kept = await saved(ctx)
    raw = mail("Invoice")

    added = [await deliver(ctx, inbox, raw) for _ in range(2)]

    assert [False, True] == [one.is_duplicate for one in added]
    assert 1 == len(await entries(ctx, actor=kept.id))


async def test_mail_is_stored_even_if_a_rule_fails_and_the_failure_is_an_event(ctx, inbox):
    hook = await call(ctx, webhooks.create_webhook, {"url": "https://example.com/hook"})
    kept = await saved(ctx, rule(then=f"flag, {{webhook: {hook.id}}}"))
    await call(ctx, webhooks.delete_webhook, {"webhook_id": hook.id})

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert ((), ("flagged",), ("Inbox",)) == await state_of(ctx, invoice)
    (failed,) = await events_of(ctx, "rule.failed")
    assert (kept.id, invoice) == (failed.data["rule_id"], failed.message_id)


async def test_a_webhook_is_told_of_a_match_and_a_url_gets_one_of_its_own(ctx, inbox):
    named = await call(
        ctx,
        webhooks.create_webhook,
        {"url": "https://example.com/named", "types": ["message.bounced"]},
    )
    await saved(ctx, rule(then=f"{{webhook: {named.id}}}, {{webhook: 'https://example.com/new'}}"))

    for _ in range(2):
        await deliver(ctx, inbox, mail("Invoice"))

    hooks = (await call(ctx, webhooks.list_webhooks, {})).results
    assert ["https://example.com/named", "https://example.com/new"] == [h.url for h in hooks]
    for hook in hooks:
        told = await call(ctx, webhooks.list_deliveries, {"webhook_id": hook.id})
        assert ["rule.matched", "rule.matched"] == [delivery.type for delivery in told.results]


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


async def headers_of(ctx, message_id):
    found = await call(
        ctx, messages.get_message, {"message_id": message_id, "include_headers": True}
    )
    return {header.name.lower(): header.value for header in found.headers}


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


async def test_a_plan_answers_a_sender_once_in_a_thread(ctx, inbox):
    for number in range(2):
        mid = "<first@x>" if number == 0 else "new"
        await deliver(ctx, inbox, mail("Re: Invoice", message_id=mid, references=["<first@x>"]))

    plan = await plan_of(ctx, rule(then="{reply: Thanks}"))

    assert (2, {"reply": 1}) == (plan.total_matches, plan.actions_by_type)
    assert any("one automatic answer" in warning for warning in plan.warnings)


async def test_a_forward_that_cannot_be_sent_is_an_event_not_a_loss(ctx, app, inbox):
    await saved(ctx, rule(then="{forward: x@example.com}"))
    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    small = replace(app.house, limits=replace(app.house.limits, message_bytes=10))

    await replace(app, house=small).errands().do_due("proc_1")

    (failed,) = await events_of(ctx, "rule.failed")
    assert (invoice, True) == (failed.message_id, "forward" in failed.data["detail"])


async def test_the_rules_of_a_folder_run_after_a_restart(tmp_path: Path):
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path / "data")}).settings
    async with open_app(settings) as app:
        ctx = app.context(Caller("owner"))
        inbox = await new_inbox(ctx)
        await saved(ctx)
    async with open_app(settings) as app:
        ctx = app.context(Caller("owner"))
        added = await deliver(ctx, inbox, mail("Invoice"))

        assert ("Bookkeeping",) == (await state_of(ctx, added.message_id))[0]
        assert (await ctx.store.check_audit()).is_whole


async def test_what_is_done_again_after_a_day_is_forgotten_with_its_plan(ctx, invoice):
    old = await plan_of(ctx)
    later = replace(ctx, clock=lambda: old.expires_at + timedelta(seconds=1))

    await plan_of(later)

    with pytest.raises(NotFound):
        await call(ctx, rules.get_rule_plan, {"plan_id": old.plan_id})


REMEMBERS = rule(then='{remember: {key: supplier, text: "They bill in May."}}')


async def test_a_rule_remembers_and_the_memory_says_that_it_is_mails_word(ctx):
    inbox = await new_inbox(ctx)
    await saved(ctx, REMEMBERS)

    message = (await deliver(ctx, inbox, mail("An invoice"))).message_id

    memory = await call(ctx, memories.memory_get, {"key": "supplier"})
    assert ("They bill in May.", "mail") == (memory.text, memory.trust)
    assert [("learnt_from", message)] == [(link.type, link.to) for link in memory.links]


async def test_undoing_a_plan_names_the_memory_that_stays(ctx):
    await deliver(ctx, await new_inbox(ctx), mail("An invoice"))
    plan = await plan_of(ctx, REMEMBERS)
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    undone = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert ["the memory supplier stays; memory_delete forgets it"] == [
        failure.message for failure in undone.failed
    ]


@pytest.mark.parametrize("key", ["search", "k" * 257])
async def test_a_memory_must_have_a_key_that_memories_can_have(ctx, key):
    text = rule(then=f'{{remember: {{key: "{key}", text: t}}}}')

    with pytest.raises(InvalidInput, match="key"):
        await saved(ctx, text)


async def test_who_may_not_write_a_namespace_saves_no_rule_that_would(ctx):
    limited = replace(ctx, caller=replace(ctx.caller, namespaces=frozenset({"other"})))

    with pytest.raises(Forbidden, match="namespace default"):
        await saved(limited, REMEMBERS)
