"""Rules are ordered, persistent, and limited to the rights of their authors."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.model.key import Scope
from postroom.operations import rules
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import INVOICES, context_of_key, plan_of, rule, saved, state_of


async def test_rules_are_kept_in_order_and_can_be_changed(ctx):
    first, second, third = [await saved(ctx, f"{INVOICES}description: {n}") for n in "123"]

    moved = await call(ctx, rules.update_rule, {"rule_id": third.id, "position": 1})
    off = await call(ctx, rules.update_rule, {"rule_id": first.id, "enabled": False})
    gone = await call(ctx, rules.delete_rule, {"rule_id": second.id})

    assert (1, False, second.id) == (moved.position, off.enabled, gone.id)
    listed = await call(ctx, rules.list_rules, {})
    assert [third.id, first.id] == [kept.id for kept in listed.results]
    assert [1, 2, 3] == [kept.position for kept in (first, second, third)]


async def test_a_rule_cannot_exceed_the_rights_of_its_key(app, ctx, inbox, invoice):
    writer = app.context(a_caller("key_1", frozenset({Scope.READ, Scope.WRITE})))
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
    limited = await context_of_key(app, ctx, inboxes=[inbox.id])
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


async def test_a_rule_that_cannot_work_is_refused_when_saved(ctx):
    for then, word in (
        ("{remember: {key: fulltext, text: b}}", "reserved"),
        ("{webhook: 'http://127.0.0.1/x'}", "public Internet"),
        ("{webhook: 'http://[::1]/x'}", "public Internet"),
    ):
        with pytest.raises(InvalidInput, match=word):
            await saved(ctx, rule(then=then))
    with pytest.raises(NotFound, match="account"):
        await saved(ctx, rule(more="account: nowhere"))


async def test_the_rules_of_a_folder_run_after_a_restart(tmp_path: Path):
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path / "data")}).settings
    async with open_app(settings) as app:
        ctx = app.context(a_caller("owner"))
        inbox = await new_inbox(ctx)
        await saved(ctx)
    async with open_app(settings) as app:
        ctx = app.context(a_caller("owner"))
        added = await deliver(ctx, inbox, mail("Invoice"))

        assert ("Bookkeeping",) == (await state_of(ctx, added.message_id))[0]
        assert (await ctx.store.check_audit()).is_whole
