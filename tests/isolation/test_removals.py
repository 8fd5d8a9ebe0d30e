"""Removing an inbox does not make anything visible to anybody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations import inboxes, memories, rules, webhooks
from tests.isolation.conftest import OTHER, SharedInstallation
from tests.isolation.tenants import populate, rule_yaml
from tests.isolation.test_matrix import ALL, steps_of_rest, walk
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import RestClient, rest_client

URL = "https://example.com/of/both"


async def remove(shared: SharedInstallation, inbox_id: str) -> None:
    store = shared.app.services.store
    await store.remove_inbox(inbox_id, EVERYTHING, force=True)


async def made_by_both(
    shared: SharedInstallation, key: str, *, action: str = "flag"
) -> dict[str, str]:
    """One object of each kind, created with a key for two inboxes."""
    ctx = shared.app.context(await shared.app.authenticate(key))
    text = {"rule_yaml": rule_yaml("Both", action), "dry_run": False}
    rule = await call(ctx, rules.create_rule, text)
    plan = await call(ctx, rules.create_rule, {**text, "dry_run": True})
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    hook = await call(ctx, webhooks.create_webhook, {"url": URL})
    tells = {"rule_yaml": rule_yaml("Tells", f"{{webhook: '{URL}/rule'}}"), "dry_run": False}
    teller = await call(ctx, rules.create_rule, tells)
    inbox = await ctx.store.inbox(shared.own.inbox, EVERYTHING)
    assert inbox is not None
    await deliver(shared.app.context(OWNER), inbox, mail("News"))
    listed = (await call(ctx, webhooks.list_webhooks, {})).results
    (made,) = [one.id for one in listed if one.url == f"{URL}/rule"]
    return {
        "rule": rule.id,
        "teller": teller.id,
        "plan": plan.plan_id,
        "hook": hook.id,
        "made": made,
    }


async def seen(rest: RestClient, things: dict[str, str]) -> dict[str, bool]:
    """The objects that a key can read by id, find in a list, or change."""
    paths = {
        "rule": f"/v1/rules/{things['rule']}",
        "teller": f"/v1/rules/{things['teller']}",
        "plan": f"/v1/plans/{things['plan']}",
        "hook": f"/v1/webhooks/{things['hook']}/deliveries",
        "made": f"/v1/webhooks/{things['made']}/deliveries",
    }
    there = {what: await status(rest, "GET", path) == 200 for what, path in paths.items()}
    lists = str([await rest.get("/v1/rules"), await rest.get("/v1/webhooks")])
    for what in ("rule", "teller", "hook", "made"):
        assert there[what] == (things[what] in lists), what
    return there


async def status(rest: RestClient, method: str, path: str, **given: Any) -> int:
    response = await rest.client.request(method, path, **given)
    return int(response.status_code)


LIMITS = {
    "inboxes": lambda s: (
        {"inboxes": [s.own.inbox, s.other.inbox]},
        {"inboxes": [s.own.inbox]},
        s.other.inbox,
    ),
    "accounts": lambda s: (
        {"accounts": [s.own.account, s.other.account], "inboxes": [s.own.inbox]},
        {"accounts": [s.own.account], "inboxes": [s.own.inbox]},
        s.other.account_inbox,
    ),
}


@pytest.mark.parametrize("kind", LIMITS)
async def test_a_removal_does_not_change_what_a_key_sees(
    shared: SharedInstallation, kind: str
) -> None:
    both, one, gone = LIMITS[kind](shared)
    wide, narrow = await shared.key(ALL, both), await shared.key(ALL, one)
    things = await made_by_both(shared, wide)
    async with rest_client(shared.app, narrow) as rest:
        before = await seen(rest, things)

    await remove(shared, gone)

    async with rest_client(shared.app, narrow) as rest:
        after = await seen(rest, things)
        for path in (f"/v1/webhooks/{things['hook']}/renew", f"/v1/plans/{things['plan']}/undo"):
            assert 404 == await status(rest, "POST", path, json={})
        for method, what in (("PATCH", {"enabled": True}), ("DELETE", None)):
            assert 404 == await status(rest, method, f"/v1/rules/{things['rule']}", json=what)
    fresh = await shared.key(ALL, one)
    async with rest_client(shared.app, fresh) as rest:
        assert before == await seen(rest, things)
    async with rest_client(shared.app, wide) as rest:
        own = await seen(rest, things)
        planned = await rest.post(f"/v1/rules/{things['rule']}/plan")
    async with rest_client(shared.app, narrow) as rest:
        assert 404 == await status(rest, "GET", f"/v1/plans/{planned['plan_id']}")
    assert dict.fromkeys(things, False) == before == after
    assert dict.fromkeys(things, True) == own


@pytest.mark.parametrize("kind", LIMITS)
async def test_what_is_created_again_under_the_same_name_is_hidden(
    shared: SharedInstallation, kind: str
) -> None:
    """A key does not see the new inbox at an address, nor the new account of a name."""
    both, _, _ = LIMITS[kind](shared)
    key, other, ctx = await shared.key(ALL, both), shared.other, shared.app.context(OWNER)
    for inbox_id in (other.inbox, other.account_inbox):
        await remove(shared, inbox_id)
    gone = {"namespace": other.namespace, "key": other.memory}
    await call(ctx, memories.memory_delete, gone)
    await call(ctx, rules.delete_rule, {"rule_id": other.rule})
    await call(ctx, webhooks.delete_webhook, {"webhook_id": other.webhook})

    again = replace(shared, other=await populate(shared.app, OTHER, f"{other.word}again"))
    async with rest_client(shared.app, key) as rest:
        found = await walk(again, steps_of_rest(rest), [again.other])

    assert (other.address, other.account) == (again.other.address, again.other.account)
    assert not found, "\n".join(found)


async def test_objects_for_removed_inboxes_are_left_to_the_owner(
    shared: SharedInstallation,
) -> None:
    key = await shared.key(ALL, {"inboxes": [shared.own.inbox, shared.other.inbox]})
    things = await made_by_both(shared, key)

    for inbox_id in (shared.own.inbox, shared.other.inbox):
        await remove(shared, inbox_id)

    async with rest_client(shared.app, key) as rest:
        assert dict.fromkeys(things, False) == await seen(rest, things)
    kept = {rule.id for rule in await shared.app.services.store.all_rules()}
    assert {things["rule"], things["teller"]} <= kept


async def test_a_rule_continues_in_the_remaining_inbox_with_its_secret(
    shared: SharedInstallation,
) -> None:
    key = await shared.key(ALL, {"inboxes": [shared.own.inbox, shared.other.inbox]})
    things = await made_by_both(shared, key)
    ctx = shared.app.context(OWNER)

    await call(ctx, inboxes.delete_inbox, {"inbox_id": shared.other.inbox, "force": True})
    inbox = await ctx.store.inbox(shared.own.inbox, EVERYTHING)
    assert inbox is not None
    await deliver(ctx, inbox, mail("More"))

    told = await call(ctx, webhooks.list_deliveries, {"webhook_id": things["made"]})
    at_url = [
        hook.id
        for hook in (await call(ctx, webhooks.list_webhooks, {})).results
        if hook.url == f"{URL}/rule"
    ]
    assert (2, [things["made"]]) == (told.total, at_url)
