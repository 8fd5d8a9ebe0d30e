"""Rules, webhooks and streams of a caller without inboxes match nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client

from postroom.calls.operation import call
from postroom.errors import Conflict
from postroom.model.event import Webhook
from postroom.model.key import OWNER
from postroom.model.rule import Rule
from postroom.model.view import EVERYTHING, NOTHING
from postroom.operations import accounts, inboxes, keys, rules, webhooks
from postroom.store.sql import rules as kept_rules
from postroom.surfaces.mcp.server import make_server
from tests.isolation.conftest import SharedInstallation
from tests.isolation.tenants import belongings, rule_yaml
from tests.isolation.test_matrix import ALL, TOOLS
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import rest_client

ACTIONS = (
    "delete",
    "archive",
    "mark_read",
    "{forward: thief@example.com}",
    "{reply: Gone.}",
    "{apply_label: Taken}",
    "{move: Trash}",
    "{webhook: 'https://example.com/thief'}",
)
Limits = Callable[[SharedInstallation], Awaitable[dict[str, Any]]]


async def no_inbox(shared: SharedInstallation) -> dict[str, Any]:
    return {"inboxes": []}


async def a_live_account(shared: SharedInstallation) -> dict[str, Any]:
    return {"accounts": [shared.own.live]}


async def an_inbox_that_goes(shared: SharedInstallation) -> dict[str, Any]:
    return {"inboxes": [shared.own.inbox]}


async def an_account_that_goes(shared: SharedInstallation) -> dict[str, Any]:
    return {"accounts": [shared.own.account]}


BLIND = [no_inbox, a_live_account, an_inbox_that_goes, an_account_that_goes]


async def blind_key(shared: SharedInstallation, limits: Limits) -> str:
    """A key that sees no inbox, or no longer sees one."""
    key = await shared.key(ALL, await limits(shared))
    await remove(shared)
    return key


async def remove(shared: SharedInstallation) -> None:
    ctx = shared.app.context(OWNER)
    await call(ctx, inboxes.delete_inbox, {"inbox_id": shared.own.inbox, "force": True})
    await shared.app.services.store.remove_inbox(shared.own.account_inbox, EVERYTHING, force=True)


@pytest.mark.parametrize("limits", BLIND)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_key_without_inboxes_cannot_create_a_rule(
    shared: SharedInstallation, limits: Limits, dry_run: bool
) -> None:
    key = await blind_key(shared, limits)
    before = await belongings(shared.app, shared.other)
    kept = await shared.app.services.store.all_rules()

    async with rest_client(shared.app, key) as rest:
        for action in ACTIONS:
            rule = {"rule_yaml": rule_yaml("Thief", action), "dry_run": dry_run}
            problem = await rest.problem("POST", "/v1/rules", json=rule)
            assert (403, "forbidden") == (problem["status"], problem["code"]), action
            assert "create the rule with a key that may see its inboxes" in problem["detail"]

    assert kept == await shared.app.services.store.all_rules()
    assert before == await belongings(shared.app, shared.other)


async def test_the_limit_of_rules_counts_visible_rules(
    shared: SharedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rules, "MAX_RULES", 3)
    key = await shared.key(ALL, {"inboxes": [shared.own.inbox]})

    async with rest_client(shared.app, key) as rest:
        seen = (await rest.get("/v1/rules"))["total"]
        for number in range(seen, 3):
            rule = {"rule_yaml": rule_yaml(f"Mine {number}", "unflag"), "dry_run": False}
            await rest.post("/v1/rules", **rule)
        refused = await rest.problem("POST", "/v1/rules", json=rule)

    assert 3 < len(await shared.app.services.store.all_rules())
    assert (409, "conflict") == (refused["status"], refused["code"])
    assert refused["detail"].startswith("there are 3 rules already")


async def test_a_key_without_inboxes_cannot_create_a_rule_over_mcp(
    shared: SharedInstallation,
) -> None:
    caller = await shared.app.authenticate(await blind_key(shared, no_inbox))

    async with Client(make_server(shared.app, TOOLS, lambda _: caller)) as client:
        rule = {"rule_yaml": rule_yaml("Thief", "delete"), "dry_run": False}
        result = await client.call_tool("create_rule", rule)

    assert result.is_error
    assert "may see no inbox" in result.content[0].text


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_stored_rule_for_no_inbox_matches_nothing(
    shared: SharedInstallation, action: str
) -> None:
    ctx = shared.app.context(OWNER)
    now = ctx.clock().replace(microsecond=0)
    text = rule_yaml("Thief", action)
    stored = Rule("rul_thief", "Thief", "", True, 0, text, now, now, inboxes=NOTHING)
    await ctx.store.add_rule(stored, EVERYTHING)
    await call(ctx, rules.delete_rule, {"rule_id": shared.other.rule})
    inbox = await ctx.store.inbox(shared.other.inbox, EVERYTHING)
    assert inbox is not None

    added = await deliver(ctx, inbox, mail("Steal me"))
    plan = await call(ctx, rules.run_rule_plan, {"rule_id": stored.id})

    message = await ctx.store.message(added.message_id, EVERYTHING)
    assert message is not None
    assert ((), (), ("Inbox",)) == (message.labels, message.flags, message.mailboxes)
    told = await call(ctx, webhooks.list_events, {"message_id": added.message_id})
    assert "Thief" not in str(told.results)
    assert [] == await rule_jobs(shared)
    assert (0, 0) == (plan.total_matches, plan.total)


async def rule_jobs(shared: SharedInstallation) -> list[Any]:
    """The pending rule jobs."""
    engine = shared.app.services.store.engine  # type: ignore[attr-defined]
    found: list[Any] = await engine.read(lambda tx: tx.all("SELECT rule FROM rule_jobs"))
    return found


async def test_a_stored_rule_for_no_inbox_cannot_be_enabled(
    shared: SharedInstallation,
) -> None:
    ctx = shared.app.context(OWNER)
    now = ctx.clock().replace(microsecond=0)
    text = rule_yaml("Thief", "delete")
    stored = Rule("rul_thief", "Thief", "", False, 0, text, now, now, inboxes=NOTHING)
    await ctx.store.add_rule(stored, EVERYTHING)

    with pytest.raises(Conflict, match="has no inbox"):
        await call(ctx, rules.update_rule, {"rule_id": stored.id, "enabled": True})
    for limits in ({"inboxes": []}, {"inboxes": [shared.own.inbox]}):
        async with rest_client(shared.app, await shared.key(ALL, limits)) as rest:
            assert "rul_thief" not in str(await rest.get("/v1/rules"))
            assert 404 == (await rest.problem("GET", "/v1/rules/rul_thief"))["status"]
            assert 404 == (await rest.problem("DELETE", "/v1/rules/rul_thief"))["status"]


async def test_positions_of_rules_count_only_visible_rules(shared: SharedInstallation) -> None:
    key = await shared.key(ALL, {"inboxes": [shared.own.inbox]})

    async with rest_client(shared.app, key) as rest:
        new = await rest.post("/v1/rules", rule_yaml=rule_yaml("Mine", "flag"), dry_run=False)
        listed = [rule["position"] for rule in (await rest.get("/v1/rules"))["results"]]
        await rest.ask("PATCH", f"/v1/rules/{new['id']}", json={"position": 1})
        order = [rule["id"] for rule in (await rest.get("/v1/rules"))["results"]]

    assert (2, [1, 2]) == (new["position"], listed)
    assert [new["id"], shared.own.rule] == order
    rest_of_them = [r.id for r in await shared.app.services.store.all_rules() if r.id not in order]
    assert shared.other.rule == rest_of_them[0]


async def test_a_webhook_for_no_inbox_gets_no_events(shared: SharedInstallation) -> None:
    ctx = shared.app.context(OWNER)
    made = Webhook("whk_none", "https://example.com/none", (), NOTHING, ctx.clock(), secret="s")
    await ctx.store.add_webhook(made)
    inbox = await ctx.store.inbox(shared.other.inbox, EVERYTHING)
    assert inbox is not None

    await deliver(ctx, inbox, mail("For others"))

    told = await call(ctx, webhooks.list_deliveries, {"webhook_id": made.id})
    assert 0 == told.total


async def test_objects_for_a_removed_inbox_match_nothing(shared: SharedInstallation) -> None:
    ctx, own = shared.app.context(OWNER), shared.own
    both = await shared.key(ALL, {"inboxes": [own.inbox, shared.other.inbox]})
    one = await shared.key(ALL, {"inboxes": [own.inbox]})
    fed = await shared.key(ALL, {"accounts": [own.account]})

    await remove(shared)

    every = {rule.id: rule.inboxes for rule in await ctx.store.all_rules()}
    hooks = (await call(ctx, webhooks.list_webhooks, {})).results
    kept = {k.id: (k.inboxes, k.accounts) for k in (await call(ctx, keys.list_keys, {})).results}
    assert NOTHING == every[own.rule]
    assert [NOTHING] == [hook.inboxes for hook in hooks if hook.id == own.webhook]
    assert (NOTHING, EVERYTHING) == kept[own.key]
    seen = [await total_seen(shared, key) for key in (both, one, fed)]
    assert [1, 0, 0] == seen
    assert own.account not in str(kept)


async def total_seen(shared: SharedInstallation, key: str) -> int:
    ctx = shared.app.context(await shared.app.authenticate(key))
    listed = await call(ctx, accounts.list_accounts, {})
    assert 0 == listed.total
    return (await call(ctx, inboxes.list_inboxes, {})).total


@pytest.mark.parametrize("sees_own", [False, True])
async def test_a_stream_has_only_visible_events(
    shared: SharedInstallation, sees_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "KEEP_ALIVE_S", 0.3)
    limits = {"inboxes": [shared.own.inbox] if sees_own else []}
    caller = await shared.app.authenticate(await shared.key(ALL, limits))
    ctx = shared.app.context(caller)
    owner = shared.app.context(OWNER)
    stream = (await call(ctx, webhooks.stream_events, {})).events
    nothing_yet = await anext(stream)
    for tenant in (shared.other, shared.own):
        inbox = await owner.store.inbox(tenant.inbox, EVERYTHING)
        assert inbox is not None
        await deliver(owner, inbox, mail(f"To {tenant.word}"))

    told = [event async for event in until_quiet(stream)]

    assert nothing_yet is None
    assert ({shared.own.inbox} if sees_own else set()) == {event.inbox_id for event in told}


async def until_quiet(stream: Any) -> Any:
    async for event in stream:
        if event is None:
            return
        yield event
