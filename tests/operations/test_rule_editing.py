"""Rule texts are validated by line, replaced with conflict detection, and compared."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import Conflict, Forbidden, NotFound
from postroom.model.key import OWNER
from postroom.model.view import only
from postroom.operations import rule_editing, rule_runs, rules
from postroom.operations.mail import bulk_changes
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import INVOICES, context_of_key, plan_of, rule, saved, state_of


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    """An open Postroom with nothing in it, on each database."""
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    if request.param == "postgres":
        given["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    async with open_app(read_settings(given).settings) as opened:
        yield opened


def version(text):
    return hashlib.sha256(text.encode()).hexdigest()


async def checked(ctx, text):
    found = await call(ctx, rule_editing.check_rule, {"rule_yaml": text})
    return [(p.line, p.severity, p.message.split(";")[0]) for p in found.problems]


async def replaced(ctx, made, text, sha256=None):
    given = {"rule_id": made.id, "rule_yaml": text, "sha256": sha256 or version(made.yaml)}
    return await call(ctx, rule_editing.replace_rule, given)


async def states(ctx):
    return (await call(ctx, rule_runs.list_rule_states, {})).results


async def test_every_problem_has_its_line(ctx):
    text = (
        "name: r\nwhen:\n  - subjct: {contains: a}\n  - size_bytes: {less_than: x}\nthen: [fly]\n"
    )

    assert [
        (3, "error", "unknown field `subjct`"),
        (4, "error", "`size_bytes` is a number"),
        (5, "error", "unknown action `fly`"),
    ] == await checked(ctx, text)


async def test_a_condition_that_never_matches_has_a_warning_with_its_line(ctx):
    text = (
        "name: r\nwhen:\n  - from: builds.example\n  - date: {after: 2026-02-01}\n"
        "  - date: {before: 2026-01-01}\n  - subject: a\n  - none: [{subject: a}]\n"
        "then: [archive]\n"
    )

    found = await checked(ctx, text)

    assert [(3, "warning"), (5, "warning"), (7, "warning")] == [one[:2] for one in found]


async def test_a_missing_right_of_the_key_is_a_problem_of_the_rule(app, ctx, inbox):
    limited = await context_of_key(app, ctx, scopes=["read", "write"], inboxes=[inbox.id])
    reader = await context_of_key(app, ctx, scopes=["read"], inboxes=[inbox.id])

    (problem,) = await checked(limited, rule(then="{forward: a@b.org}"))
    assert (0, "error") == problem[:2]
    assert "scope send" in problem[2]
    (problem,) = await checked(limited, "inbox: inb_unknown\n" + rule())
    assert "no inbox inb_unknown" in problem[2]
    assert [] == await checked(reader, rule())


async def test_replacing_a_text_keeps_the_fields_that_it_omits(app, ctx, inbox):
    limited = await context_of_key(app, ctx, scopes=["read", "write"], inboxes=[inbox.id])
    made = await saved(limited)
    await call(limited, rules.update_rule, {"rule_id": made.id, "enabled": False})

    changed = await replaced(ctx, made, rule(more="description: d\n"))

    assert ("r", "d", False) == (changed.name, changed.description, changed.enabled)
    assert only(inbox.id) == changed.inboxes  # not all of what the owner sees
    assert OWNER.key_id == changed.authority
    assert limited.caller.key_id == changed.made_by  # under the policy of who wrote it


async def test_a_text_can_enable_a_rule_and_change_its_inbox(ctx, inbox):
    other = await new_inbox(ctx, "other")
    made = await saved(ctx)

    changed = await replaced(ctx, made, rule(more=f"enabled: false\ninbox: {other.id}\n"))

    assert (False, only(other.id)) == (changed.enabled, changed.inboxes)


async def test_a_concurrently_changed_text_is_not_overwritten(ctx, inbox):
    made = await saved(ctx)
    first = await replaced(ctx, made, rule("{subject: one}"))

    with pytest.raises(Conflict, match="changed by somebody else"):
        await replaced(ctx, made, rule("{subject: two}"))

    kept = await call(ctx, rules.get_rule, {"rule_id": made.id})
    assert first.yaml == kept.yaml


async def test_a_key_without_the_rights_cannot_replace_a_rule(app, ctx, inbox):
    made = await saved(ctx, f"inbox: {inbox.id}\n{INVOICES}")
    limited = await context_of_key(app, ctx, scopes=["read", "write"], inboxes=[inbox.id])
    other_caller = await context_of_key(app, ctx, inboxes=[(await new_inbox(ctx, "other")).id])

    with pytest.raises(Forbidden):
        await replaced(limited, made, rule(then="{forward: a@b.org}"))
    with pytest.raises(NotFound):
        await replaced(other_caller, made, rule())
    with pytest.raises(NotFound):
        await replaced(limited, made, f"inbox: {(await new_inbox(ctx, 'third')).id}\n{rule()}")
    changed = await replaced(limited, made, f"inbox: {inbox.id}\n{rule()}")
    assert limited.caller.key_id == changed.authority == changed.made_by


async def test_a_rule_with_hidden_memories_is_not_replaced_blindly(app, ctx, inbox):
    made = await saved(ctx, f"inbox: {inbox.id}\n" + rule(then="{remember: {key: k, text: t}}"))
    blind = await context_of_key(app, ctx, inboxes=[inbox.id], namespaces=[])
    shown = await call(blind, rules.get_rule, {"rule_id": made.id})

    for sha256 in (version(shown.yaml), version(made.yaml)):
        with pytest.raises(Conflict):
            await replaced(blind, made, rule(), sha256)


async def test_two_versions_are_compared(ctx, inbox, invoice):
    both = (await deliver(ctx, inbox, mail("Invoice and receipt"))).message_id
    receipt = (await deliver(ctx, inbox, mail("Receipt"))).message_id
    await deliver(ctx, inbox, mail("Lunch"))
    made = await saved(ctx)
    new = INVOICES.replace("invoice", "receipt").replace("mark_read", "flag")

    found = await call(ctx, rule_editing.compare_rules, {"rule_yaml": new, "rule_id": made.id})

    sides = {d.item.message_id: (bool(d.old), bool(d.new)) for d in found.differences}
    assert {invoice: (True, False), receipt: (False, True), both: (True, True)} == sides
    assert (1, 1, 1) == (found.only_before, found.only_after, found.changed)
    assert (2, 2, 3, False) == (
        found.matches_before, found.matches_after, found.considered, found.is_cut
    )  # fmt: skip
    assert 0 == (await call(ctx, rule_runs.list_rule_plans, {})).total


async def test_a_comparison_is_bounded_and_equal_versions_do_not_differ(ctx, inbox, invoice):
    newest = (await deliver(ctx, inbox, mail("Invoice 8"))).message_id
    given = {"rule_yaml": INVOICES, "against_yaml": rule(), "newest": 1}

    found = await call(ctx, rule_editing.compare_rules, given)
    same = await call(ctx, rule_editing.compare_rules, {**given, "against_yaml": INVOICES})

    assert (1, True) == (found.considered, found.is_cut)
    assert [newest] == [d.item.message_id for d in found.differences]
    assert () == same.differences


async def test_a_comparison_shows_only_visible_mail(app, ctx, inbox, invoice):
    other_caller = await context_of_key(app, ctx, inboxes=[(await new_inbox(ctx, "other")).id])
    made = await saved(ctx)

    found = await call(
        other_caller, rule_editing.compare_rules, {"rule_yaml": INVOICES, "against_yaml": rule()}
    )
    assert (0, ()) == (found.considered, found.differences)
    for given in ({"rule_id": made.id}, {"against_yaml": f"inbox: {inbox.id}\n{rule()}"}):
        with pytest.raises(NotFound):
            await call(other_caller, rule_editing.compare_rules, {"rule_yaml": INVOICES, **given})


async def test_plans_are_listed_with_who_applied_them(app, ctx, inbox, invoice):
    limited = await context_of_key(app, ctx, scopes=["read", "write"], inboxes=[inbox.id])
    plan = await plan_of(limited)
    await call(limited, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    waiting = await plan_of(ctx, rule(then="flag"))
    await call(
        ctx, bulk_changes.update_messages, {"message_ids": [invoice], "add_flags": ["answered"]}
    )

    found = (await call(ctx, rule_runs.list_rule_plans, {})).results
    own = (await call(limited, rule_runs.list_rule_plans, {"state": "applied"})).results

    assert [(waiting.plan_id, "open", None), (plan.plan_id, "applied", limited.caller.key_id)] == [
        (one.id, one.state, one.applied_by) for one in found
    ]
    assert [(plan.plan_id, "you", 1)] == [(one.id, one.applied_by, one.total) for one in own]
    assert own[0].applied_at is not None


async def test_a_plan_shows_each_message_before_and_after(ctx, inbox, invoice):
    plan = await plan_of(ctx)

    found = await call(ctx, rule_runs.get_plan_changes, {"plan_id": plan.plan_id})

    (item,) = found.items.results
    assert (("Inbox",), ("Archive",)) == (item.before.mailboxes, item.after.mailboxes)
    assert ((), ("Bookkeeping",)) == (item.before.labels, item.after.labels)
    assert ((), (), ("Inbox",)) == await state_of(ctx, invoice)


async def test_plans_of_others_do_not_exist(app, ctx, inbox, invoice):
    plan = await plan_of(ctx)
    other_caller = await context_of_key(app, ctx, inboxes=[(await new_inbox(ctx, "other")).id])

    assert 0 == (await call(other_caller, rule_runs.list_rule_plans, {})).total
    with pytest.raises(NotFound):
        await call(other_caller, rule_runs.get_plan_changes, {"plan_id": plan.plan_id})


async def test_what_rules_did_with_arriving_mail_is_counted_by_day(app, ctx, inbox):
    made = await saved(ctx)
    await saved(ctx, rule("{subject: never}"))
    days = (datetime(2026, 5, 1, 23, tzinfo=UTC), datetime(2026, 5, 2, 1, tzinfo=UTC))
    for day, subjects in zip(days, (("Invoice 1",), ("Invoice 2", "Invoice 3")), strict=True):
        then = replace(ctx, clock=lambda day=day: day)
        for subject in subjects:
            await deliver(then, inbox, mail(subject))
    now = replace(ctx, clock=lambda: datetime(2026, 5, 3, tzinfo=UTC))
    other_caller = await context_of_key(app, ctx, inboxes=[(await new_inbox(ctx, "other")).id])

    first, second = await states(now)

    assert [(2, 0), (1, 0)] == [(day.messages, day.failed) for day in first.days]
    assert (3, days[1]) == (first.messages, first.last_at)
    assert (0, None) == (second.messages, second.last_at)
    assert () == await states(other_caller)
    assert [] == await ctx.store.rule_days([made.id], other_caller.visible, days[0])
    later = replace(ctx, clock=lambda: datetime(2026, 8, 1, tzinfo=UTC))
    assert 0 == (await states(later))[0].messages


async def test_the_state_of_a_rule_says_who_made_it_and_what_is_wrong(app, ctx, inbox):
    limited = await context_of_key(app, ctx, scopes=["read", "write"], inboxes=[inbox.id])
    await saved(limited, rule("{from: builds.example}", more="safety: {require_plan: true}\n"))
    other = await context_of_key(app, ctx, scopes=["read"], inboxes=[inbox.id])

    (own,), (seen,), (known,) = [await states(one) for one in (limited, other, ctx)]

    assert ["you", "another key", limited.caller.key_id] == [own.author, seen.author, known.author]
    assert (inbox.address,) == own.inboxes
    assert not own.runs_on_arrival
    assert ["from equals"] == [warning[:11] for warning in own.warnings]
