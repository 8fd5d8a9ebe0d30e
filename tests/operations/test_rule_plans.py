"""Rules are planned, applied exactly, and undone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.operation import call
from postroom.errors import Conflict, NotFound
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations import rules
from tests.mails import deliver, mail
from tests.operations.rule_helpers import INVOICES, entries, plan_of, rule, saved, state_of


async def test_a_dry_run_saves_no_rule_but_its_plan_can_be_applied(ctx, invoice):
    plan = await plan_of(ctx)

    assert None is plan.rule_id
    assert 0 == (await call(ctx, rules.list_rules, {})).total
    assert ((), (), ("Inbox",)) == await state_of(ctx, invoice)
    assert [] == await entries(ctx)
    result = await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    assert ("ok", (invoice,), plan.plan_id) == (result.status, result.succeeded, result.plan_id)
    assert (("Bookkeeping",), ("seen",), ("Archive",)) == await state_of(ctx, invoice)
    found = await ctx.store.messages(
        MessageQuery(visible=EVERYTHING, labels=("bookkeeping",), mailbox="archive")
    )
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
        await ctx.store.remove_message(invoice, EVERYTHING)
    else:
        await ctx.store.change_messages([invoice], change, EVERYTHING)

    with pytest.raises(Conflict, match=word) as refused:
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    assert [invoice] == refused.value.details["message_ids"]
    assert ((), (), ("Inbox",)) == await state_of(ctx, other)


async def test_a_plan_expires(ctx, invoice):
    plan = await plan_of(ctx)
    later = replace(ctx, clock=lambda: plan.expires_at)

    with pytest.raises(NotFound, match="expired"):
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
    await ctx.store.change_messages([added.message_id], before, EVERYTHING)
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
    await ctx.store.change_messages([invoice], since, EVERYTHING)

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert "partial" == result.status
    assert "place" in result.failed[0].message
    assert (("Mine",), (), ("Projects",)) == await state_of(ctx, invoice)


async def test_undo_names_what_is_gone_and_what_was_sent(ctx, inbox, invoice):
    await deliver(ctx, inbox, mail("Invoice 8"))
    plan = await plan_of(ctx, rule(then="flag, {webhook: 'https://example.com/x'}"))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    await ctx.store.remove_message(invoice, EVERYTHING)

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert {"not_found", "conflict"} == {failed.code for failed in result.failed}
    assert any("was sent already" in failed.message for failed in result.failed)


async def test_a_rule_may_forbid_undoing(ctx, invoice):
    plan = await plan_of(ctx, INVOICES + "safety: {undo: false}")
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    with pytest.raises(Conflict, match="undo: false"):
        await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})


async def test_undo_cancels_a_forward_that_has_not_started(ctx, app, invoice):
    plan = await plan_of(ctx, rule(then="{forward: x@example.com}"))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    result = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert "ok" == result.status
    assert 0 == await app.rule_jobs().run_due("proc_1")


async def test_a_plan_answers_a_sender_once_in_a_thread(ctx, inbox):
    for number in range(2):
        mid = "<first@x>" if number == 0 else "new"
        await deliver(ctx, inbox, mail("Re: Invoice", message_id=mid, references=["<first@x>"]))

    plan = await plan_of(ctx, rule(then="{reply: Thanks}"))

    assert (2, {"reply": 1}) == (plan.total_matches, plan.actions_by_type)
    assert any("one automatic reply" in warning for warning in plan.warnings)


async def test_repeated_requests_are_forgotten_with_their_plan(ctx, invoice):
    old = await plan_of(ctx)
    later = replace(ctx, clock=lambda: old.expires_at + timedelta(seconds=1))

    await plan_of(later)

    with pytest.raises(NotFound):
        await call(ctx, rules.get_rule_plan, {"plan_id": old.plan_id})
