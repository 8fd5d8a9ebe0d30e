"""Creating and running a rule need the rights of its actions, checked at each run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.calls.operation import call
from postroom.errors import Forbidden, NotFound
from postroom.model.key import ALL_SCOPES, Scope
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.operations import keys, memory_search, rules, webhooks
from postroom.pipeline.apply_rules import rules_without_rights
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import context_of_key, events_of, plan_of, rule, saved, state_of

URL = "https://example.com/hook"
REMEMBERS = "{remember: {key: supplier, text: They bill in May}}"
FORWARDS = "{forward: x@example.com}"
REPLIES = "{reply: Thanks}"
TELLS = f"{{webhook: '{URL}'}}"
LABELS = "{apply_label: A}"

LACKING = [
    (LABELS, {"scopes": ALL_SCOPES - {Scope.WRITE}}),
    ("delete", {"scopes": ALL_SCOPES - {Scope.WRITE}}),
    (FORWARDS, {"scopes": ALL_SCOPES - {Scope.SEND}}),
    (REPLIES, {"scopes": ALL_SCOPES - {Scope.SEND}}),
    (TELLS, {"scopes": ALL_SCOPES - {Scope.ADMIN}}),
    (REMEMBERS, {"namespaces": ["other"]}),
    (REMEMBERS, {"namespaces": []}),
    (REMEMBERS, {"scopes": ALL_SCOPES - {Scope.WRITE}}),
    (f"flag, {FORWARDS}", {"scopes": ALL_SCOPES - {Scope.SEND}}),
]
"""An action, and a key without a right that it needs."""


@pytest.mark.parametrize(("then", "limits"), LACKING)
async def test_a_key_without_a_right_of_a_rule_cannot_use_it(
    app, ctx, inbox, invoice, then, limits
):
    lesser = await context_of_key(app, ctx, **limits)
    text = rule(then=then)
    kept, plan = await saved(ctx, text), await plan_of(ctx, text)
    await call(ctx, rules.update_rule, {"rule_id": kept.id, "enabled": False})
    before = await state_of(ctx, invoice)

    for operation, arguments in (
        (rules.create_rule, {"rule_yaml": text}),
        (rules.create_rule, {"rule_yaml": text, "dry_run": False}),
        (rules.run_rule_plan, {"rule_id": kept.id}),
        (rules.apply_rule_plan, {"plan_id": plan.plan_id}),
        (rules.update_rule, {"rule_id": kept.id, "enabled": True}),
        (rules.update_rule, {"rule_id": kept.id, "position": 1}),
        (rules.update_rule, {"rule_id": kept.id, "enabled": False, "position": 1}),
    ):
        with pytest.raises(Forbidden):
            await call(lesser, operation, arguments)
    assert before == await state_of(ctx, invoice)
    assert 0 == await app.rule_jobs().run_due("proc_1")
    assert not (await call(ctx, rules.get_rule, {"rule_id": kept.id})).enabled


@pytest.mark.parametrize(("then", "limits"), [pair for pair in LACKING if "namespaces" in pair[1]])
async def test_a_key_that_may_not_enable_a_rule_may_disable_it(app, ctx, inbox, then, limits):
    lesser = await context_of_key(app, ctx, **limits)
    kept = await saved(ctx, rule(then=then))

    off = await call(lesser, rules.update_rule, {"rule_id": kept.id, "enabled": False})
    on = await call(ctx, rules.update_rule, {"rule_id": kept.id, "enabled": True})

    assert (False, True) == (off.enabled, on.enabled)


async def test_undoing_a_forward_needs_the_right_to_send(app, ctx, inbox, invoice):
    lesser = await context_of_key(app, ctx, scopes=ALL_SCOPES - {Scope.SEND})
    plan = await plan_of(ctx, rule(then=FORWARDS))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    with pytest.raises(Forbidden, match="send"):
        await call(lesser, rules.undo_rule_plan, {"plan_id": plan.plan_id})
    assert 1 == await app.rule_jobs().run_due("proc_1")


async def test_undo_needs_only_the_rights_of_what_it_changes(app, ctx, inbox, invoice):
    lesser = await context_of_key(app, ctx, scopes={Scope.READ, Scope.WRITE}, namespaces=["other"])
    plan = await plan_of(ctx, rule(then=f"flag, {REMEMBERS}, {TELLS}"))
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    undone = await call(lesser, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert (invoice,) == undone.succeeded
    assert "flagged" not in (await state_of(ctx, invoice))[1]


async def _two_tenants(app, ctx, inbox):
    theirs = await new_inbox(ctx, "theirs")
    one = await context_of_key(app, ctx, inboxes=[inbox.id], namespaces=["default"])
    two = await context_of_key(app, ctx, inboxes=[theirs.id])
    return theirs, one, two


async def test_a_foreign_webhook_is_reported_as_unknown(app, ctx, inbox, invoice):
    _, one, two = await _two_tenants(app, ctx, inbox)
    hook = await call(two, webhooks.create_webhook, {"url": URL})
    owners = await call(ctx, webhooks.create_webhook, {"url": URL})
    said = set()

    for hook_id in (hook.id, owners.id, "whk_none"):
        for dry_run in (True, False):
            arguments = {"rule_yaml": rule(then=f"{{webhook: {hook_id}}}"), "dry_run": dry_run}
            with pytest.raises(NotFound) as caught:
                await call(one, rules.create_rule, arguments)
            said.add(str(caught.value).replace(hook_id, "it"))
    assert 1 == len(said)
    assert () == (await call(one, rules.list_rules, {})).results


async def test_a_rule_with_a_hidden_webhook_cannot_be_used(app, ctx, inbox, invoice):
    _, one, _ = await _two_tenants(app, ctx, inbox)
    owners = await call(ctx, webhooks.create_webhook, {"url": URL})
    kept = await saved(ctx, rule(then=f"{{webhook: {owners.id}}}", more=f"inbox: {inbox.id}"))
    plan = await call(ctx, rules.run_rule_plan, {"rule_id": kept.id})

    for operation, arguments in (
        (rules.run_rule_plan, {"rule_id": kept.id}),
        (rules.apply_rule_plan, {"plan_id": plan.plan_id}),
        (rules.update_rule, {"rule_id": kept.id, "enabled": True}),
        (rules.update_rule, {"rule_id": kept.id, "position": 1}),
    ):
        with pytest.raises(NotFound, match="webhook"):
            await call(one, operation, arguments)
    assert 0 == (await call(ctx, webhooks.list_deliveries, {"webhook_id": owners.id})).total


async def _jobs(ctx):
    now = ctx.clock()
    return await ctx.store.claim_webhooks("proc_1", now=now, until=now, limit=100)


@pytest.mark.parametrize("who", ["one", "owner", "planned"])
async def test_a_url_is_never_signed_with_a_foreign_secret(app, ctx, inbox, who):
    theirs, one, two = await _two_tenants(app, ctx, inbox)
    foreign = await call(two, webhooks.create_webhook, {"url": URL, "types": ["message.bounced"]})
    caller = ctx if who == "owner" else one
    if who == "planned":
        await deliver(ctx, inbox, mail("Invoice"))
        plan = await plan_of(caller, rule(then=TELLS))
        await call(caller, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    else:
        await saved(caller, rule(then=TELLS))
        await deliver(ctx, inbox, mail("Invoice"))
        await deliver(ctx, theirs, mail("Invoice"))

    jobs = await _jobs(ctx)

    assert jobs
    assert all(foreign.secret not in job.secrets for job in jobs)
    assert 0 == (await call(two, webhooks.list_deliveries, {"webhook_id": foreign.id})).total
    seen_by_two = [hook.id for hook in (await call(two, webhooks.list_webhooks, {})).results]
    assert [foreign.id] == seen_by_two
    seen = [hook.url for hook in (await call(caller, webhooks.list_webhooks, {})).results]
    assert URL in seen


async def test_a_url_reuses_the_webhook_of_the_same_caller(app, ctx, inbox):
    _, one, _ = await _two_tenants(app, ctx, inbox)
    own = await call(one, webhooks.create_webhook, {"url": URL, "types": ["message.bounced"]})
    owners = await call(ctx, webhooks.create_webhook, {"url": URL, "types": ["message.bounced"]})
    await saved(one, rule(then=TELLS))
    await saved(ctx, rule(then=TELLS))

    await deliver(ctx, inbox, mail("Invoice"))

    assert {own.secret, owners.secret} == {job.secrets[0] for job in await _jobs(ctx)}
    assert 2 == (await call(ctx, webhooks.list_webhooks, {})).total


async def test_a_webhook_does_not_reveal_its_hidden_inbox(app, ctx, inbox):
    theirs = await new_inbox(ctx, "theirs")
    both = await context_of_key(app, ctx, inboxes=[inbox.id, theirs.id])
    one = await context_of_key(app, ctx, inboxes=[inbox.id], namespaces=["default"])
    small = await call(one, webhooks.create_webhook, {"url": URL, "types": ["message.bounced"]})
    await saved(both, rule(then=TELLS))

    await deliver(ctx, theirs, mail("Invoice"))

    assert 0 == (await call(one, webhooks.list_deliveries, {"webhook_id": small.id})).total
    assert [1] == [len(job.secrets) for job in await _jobs(ctx)]


async def _change(ctx, key_id, **columns):
    """Change a key in the database: no operation does, but a changed row must count."""
    sets = ", ".join(f"{name} = :{name}" for name in columns)
    await ctx.store.engine.write(
        lambda tx: tx.run(f"UPDATE keys SET {sets} WHERE id = :id", id=key_id, **columns)
    )


LOST = [
    (FORWARDS, {"scopes": '["read", "write", "admin"]'}, "send"),
    (REPLIES, {"scopes": '["read", "write", "admin"]'}, "send"),
    (TELLS, {"scopes": '["read", "write", "send"]'}, "admin"),
    (REMEMBERS, {"namespaces": '["other"]'}, "namespace default"),
]


@pytest.mark.parametrize(("then", "columns", "word"), LOST)
async def test_a_rule_fails_when_its_key_has_lost_a_right(app, ctx, inbox, then, columns, word):
    maker = await context_of_key(app, ctx)
    kept = await saved(maker, rule(then=f"flag, {then}"))
    await _change(ctx, maker.caller.key_id, **columns)

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert ("flagged",) == (await state_of(ctx, invoice))[1]
    assert 0 == await app.rule_jobs().run_due("proc_1")
    assert [] == await _jobs(ctx)
    assert 0 == (await call(ctx, memory_search.memory_list, {})).total
    (failed,) = await events_of(ctx, "rule.failed")
    assert (kept.id, True) == (failed.data["rule_id"], word in failed.data["detail"])


async def test_a_rule_of_a_revoked_key_does_nothing_until_it_is_enabled_again(app, ctx, inbox):
    maker = await context_of_key(app, ctx, inboxes=[inbox.id])
    kept = await saved(maker, rule(then=f"flag, {FORWARDS}, stop"))
    await saved(ctx, rule(then="{apply_label: Later}"))
    await call(ctx, keys.delete_key, {"key_id": maker.caller.key_id})

    first = (await deliver(ctx, inbox, mail("Invoice 1"))).message_id
    failed = await events_of(ctx, "rule.failed")
    await call(ctx, rules.update_rule, {"rule_id": kept.id, "enabled": True})
    second = (await deliver(ctx, inbox, mail("Invoice 2"))).message_id

    assert (("Later",), (), ("Inbox",)) == await state_of(ctx, first)
    assert [(kept.id, True)] == [(e.data["rule_id"], "revoked" in e.data["detail"]) for e in failed]
    assert ((), ("flagged",), ("Inbox",)) == await state_of(ctx, second)
    assert 1 == await app.rule_jobs().run_due("proc_1")


async def test_a_rule_skips_an_inbox_that_its_key_has_lost(app, ctx, inbox):
    theirs = await new_inbox(ctx, "theirs")
    maker = await context_of_key(app, ctx, inboxes=[inbox.id, theirs.id])
    await saved(maker, rule(then="flag"))
    await _change(ctx, maker.caller.key_id, inboxes=f'["{inbox.id}"]')

    lost = (await deliver(ctx, theirs, mail("Invoice"))).message_id
    kept = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert () == (await state_of(ctx, lost))[1]
    assert ("flagged",) == (await state_of(ctx, kept))[1]


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("then", [FORWARDS, REPLIES])
async def test_pending_mail_of_a_revoked_key_is_not_sent(app, ctx, inbox, then, is_planned):
    maker = await context_of_key(app, ctx)
    if is_planned:
        await deliver(ctx, inbox, mail("Invoice"))
        plan = await plan_of(maker, rule(then=then))
        await call(maker, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    else:
        await saved(maker, rule(then=then))
        await deliver(ctx, inbox, mail("Invoice"))
    await call(ctx, keys.delete_key, {"key_id": maker.caller.key_id})

    await app.rule_jobs().run_due("proc_1")

    assert 0 == (await ctx.store.messages(MessageQuery(EVERYTHING, mailbox="Sent"))).total
    (failed,) = await events_of(ctx, "rule.failed")
    assert "revoked" in failed.data["detail"]


async def test_moving_a_rule_makes_the_caller_its_authority(app, ctx, inbox):
    maker, mover = await context_of_key(app, ctx), await context_of_key(app, ctx)
    kept = await saved(maker, rule(then="flag"))
    await call(mover, rules.update_rule, {"rule_id": kept.id, "position": 1})
    await call(ctx, keys.delete_key, {"key_id": maker.caller.key_id})

    first = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    await call(ctx, keys.delete_key, {"key_id": mover.caller.key_id})
    second = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert (("flagged",), ()) == tuple([(await state_of(ctx, m))[1] for m in (first, second)])


async def test_a_limited_caller_without_a_key_never_has_the_owners_rights(ctx, inbox):
    """There is no such caller today: its rule would do nothing rather than everything."""
    limited = replace(ctx, caller=replace(ctx.caller, key_id="x", inboxes=only(inbox.id)))
    await saved(limited, rule(then="flag"))

    (kept,) = await ctx.store.all_rules()

    assert "x" == kept.authority


async def test_a_rule_without_a_recorded_key_has_no_access_to_memories(app, ctx, inbox):
    _, one, two = await _two_tenants(app, ctx, inbox)
    foreign = await call(two, webhooks.create_webhook, {"url": URL, "types": ["message.bounced"]})
    kept = await saved(one, rule(then=f"flag, {TELLS}, {REMEMBERS}, {FORWARDS}"))
    await ctx.store.engine.write(lambda tx: tx.run("UPDATE rules SET authority = NULL"))
    await call(ctx, keys.delete_key, {"key_id": one.caller.key_id})

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    await app.rule_jobs().run_due("proc_1")

    assert ("flagged",) == (await state_of(ctx, invoice))[1]
    assert 1 == (await ctx.store.messages(MessageQuery(EVERYTHING, mailbox="Sent"))).total
    assert 0 == (await call(ctx, memory_search.memory_list, {})).total
    assert [False] == [foreign.secret in job.secrets for job in await _jobs(ctx)]
    (failed,) = await events_of(ctx, "rule.failed")
    assert "namespace default" in failed.data["detail"]
    ((named, why),) = await rules_without_rights(ctx)
    assert (kept.id, True) == (named.id, "namespace default" in why)
    assert kept.id in [r.id for r in (await ctx.store.rules(EVERYTHING, Slice())).rows]
