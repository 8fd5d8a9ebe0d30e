"""Events and audit entries do not name rules, plans and webhooks that the reader may not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from postroom.calls.operation import call
from postroom.model.event import WebhookResponse
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations import keys as key_operations
from postroom.operations import rules, webhooks
from tests.isolation.conftest import SharedInstallation
from tests.isolation.tenants import rule_yaml
from tests.isolation.test_matrix import ALL
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import rest_client

WORD = "heron"
ACTIONS = {
    "webhook by URL": f"{{webhook: 'https://example.com/{WORD}'}}",
    "webhook that is gone": "{webhook: whk_hidden}",
    "forward": "{forward: x@example.com}",
    "reply": "{reply: 'Thanks.'}",
    "label": "{apply_label: Plain}",
}


@dataclass(frozen=True)
class Run:
    """The effects in the own inbox of a rule for both inboxes."""

    tokens: tuple[str, ...]

    def leaks(self, told: Any) -> list[str]:
        return [token for token in self.tokens if token in str(told)]


async def run_rule(shared: SharedInstallation, ctx: Any, action: str) -> Run:
    """Run a rule on an arriving mail, and its plan on stored mail; then delete the rule."""
    made = await _create(shared, ctx, action)
    owner = shared.app.context(OWNER)
    inbox = await owner.store.inbox(shared.own.inbox, EVERYTHING)
    assert inbox is not None
    await deliver(owner, inbox, mail("News", sender="Cy <cy@example.com>"))
    if "whk_" in action:
        return Run((WORD, made, "whk_hidden"))
    plan = await call(ctx, rules.run_rule_plan, {"rule_id": made})
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    await shared.app.rule_jobs().run_due("here")
    await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})
    return Run((WORD, made, plan.plan_id))


async def _create(shared: SharedInstallation, ctx: Any, action: str) -> str:
    if "whk_" not in action:
        wanted = {"rule_yaml": rule_yaml(f"All of {WORD}", action), "dry_run": False}
        return str((await call(ctx, rules.create_rule, wanted)).id)
    wanted = {"rule_yaml": rule_yaml(f"All of {WORD}", "flag"), "dry_run": False}
    rule_id = str((await call(ctx, rules.create_rule, wanted)).id)
    yaml = rule_yaml(f"All of {WORD}", action)

    def change(tx: Any) -> None:
        tx.run("UPDATE rules SET yaml = :yaml WHERE id = :id", yaml=yaml, id=rule_id)

    await shared.app.services.store.engine.write(change)
    return rule_id


async def told_to(shared: SharedInstallation, limits: dict[str, Any]) -> dict[str, Any]:
    """Everything that a key can read about what happened."""
    key = await shared.key(ALL, limits)
    caller = await shared.app.authenticate(key)
    async with rest_client(shared.app, key) as rest:
        listed = await rest.get("/v1/events", limit=100)
        audit = await rest.get("/v1/audit", limit=100)
    ctx = shared.app.context(caller)
    stream = await call(ctx, webhooks.stream_events, {"since": "evt_0"})
    streamed = []
    async for event in stream.events:
        streamed.append(event)
        if len(streamed) == listed["total"]:
            break
    await stream.events.aclose()  # type: ignore[attr-defined]
    return {"events": listed["results"], "audit": audit["results"], "stream": streamed}


async def deliveries_to(shared: SharedInstallation) -> list[Any]:
    """The pending webhook deliveries, by URL."""
    store, now = shared.app.services.store, shared.app.services.clock().replace(year=2099)
    jobs: list[Any] = []
    while found := await store.claim_webhooks("p", now=now, until=now, limit=100):
        jobs += found
        for job in found:
            await store.settle_webhook(job, WebhookResponse(200, ""), now=now, next_at=None)
    return [(job.url, job.event) for job in jobs]


@pytest.mark.parametrize("whose", ["the owner's", "a wider key's"])
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_hidden_rule_is_named_nowhere(
    shared: SharedInstallation, action: str, whose: str
) -> None:
    both = {"inboxes": [shared.own.inbox, shared.other.inbox]}
    ctx = shared.app.context(OWNER)
    if whose != "the owner's":
        ctx = shared.app.context(await shared.app.authenticate(await shared.key(ALL, both)))
    listens = await shared.key(ALL, {"inboxes": [shared.own.inbox]})
    async with rest_client(shared.app, listens) as rest:
        await rest.post("/v1/webhooks", url="https://example.com/narrow")

    run = await run_rule(shared, ctx, ACTIONS[action])

    narrow = await told_to(shared, {"inboxes": [shared.own.inbox]})
    assert {} == {what: run.leaks(told) for what, told in narrow.items() if run.leaks(told)}
    posted = [event for url, event in await deliveries_to(shared) if url.endswith("/narrow")]
    assert posted
    assert [] == run.leaks([event.data for event in posted])
    wide = await told_to(shared, {})
    assert run.leaks(wide["audit"])
    if action != "label":
        assert run.leaks(wide["audit"]) or run.leaks(wide["events"])
    if whose != "the owner's":
        assert run.leaks((await told_to(shared, both))["audit"])


async def test_a_key_cannot_ask_the_audit_log_for_a_rule_it_does_not_see(
    shared: SharedInstallation,
) -> None:
    run = await run_rule(shared, shared.app.context(OWNER), ACTIONS["forward"])
    rule_id = run.tokens[1]

    found = {}
    for name, limits in (("narrow", {"inboxes": [shared.own.inbox]}), ("wide", {})):
        caller = await shared.app.authenticate(await shared.key(ALL, limits))
        asked = {"actor": rule_id}
        page = await call(shared.app.context(caller), key_operations.list_audit, asked)
        found[name] = page.total > 0

    assert {"narrow": False, "wide": True} == found


async def test_a_rule_of_its_own_inbox_is_named_to_a_key(shared: SharedInstallation) -> None:
    limits = {"inboxes": [shared.own.inbox]}
    ctx = shared.app.context(await shared.app.authenticate(await shared.key(ALL, limits)))

    run = await run_rule(shared, ctx, ACTIONS["webhook by URL"])

    told = await told_to(shared, limits)
    assert run.leaks(told["events"])
    assert run.leaks(told["audit"])
    assert run.leaks(told["stream"])


async def test_a_rule_reveals_no_memory_of_a_hidden_namespace(shared: SharedInstallation) -> None:
    ctx, remembers = shared.app.context(OWNER), f"{{remember: {{key: {WORD}, text: '{WORD}'}}}}"
    wanted = {"rule_yaml": rule_yaml("Plain", "flag", remembers), "dry_run": False}
    rule_id = (await call(ctx, rules.create_rule, wanted)).id
    plan_id = (await call(ctx, rules.run_rule_plan, {"rule_id": rule_id})).plan_id
    asked = (
        ("GET", "/v1/rules", None),
        ("GET", f"/v1/rules/{rule_id}", None),
        ("POST", f"/v1/rules/{rule_id}/plan", {}),
        ("PATCH", f"/v1/rules/{rule_id}", {"position": 1}),
        ("PATCH", f"/v1/rules/{rule_id}", {"enabled": False}),
        ("GET", f"/v1/plans/{plan_id}", None),
        ("POST", f"/v1/plans/{plan_id}/apply", {}),
        ("POST", f"/v1/plans/{plan_id}/undo", {}),
        ("DELETE", f"/v1/rules/{rule_id}", None),
    )

    told = {}
    for name, namespace in (("hidden", "other"), ("seen", "default")):
        key = await shared.key(ALL, {"namespaces": [namespace]})
        some = asked if name == "hidden" else asked[5:6]
        async with rest_client(shared.app, key) as rest:
            told[name] = [
                (await rest.send(method, path, **({} if body is None else {"json": body}))).text
                for method, path, body in some
            ]

    assert [] == [text for text in told["hidden"] if WORD in text]
    assert '"type":"flag"' in told["hidden"][5]
    assert WORD in told["seen"][0]


async def test_a_key_without_the_right_to_manage_keys_sees_none(shared: SharedInstallation) -> None:
    told = {}
    for name, limits in (("limited", {"namespaces": ["other"]}), ("unlimited", {})):
        async with rest_client(shared.app, await shared.key(ALL, limits)) as rest:
            await rest.post("/v1/inboxes")
            audit = await rest.get("/v1/audit", limit=100)
            told[name] = {entry["action"] for entry in audit["results"]}

    assert "create_key" not in told["limited"]
    assert told["limited"]
    assert "create_key" in told["unlimited"]
