"""A rule signs only with a secret of its own key or of the owner, whatever webhook has its URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client

from postroom.calls.operation import call
from postroom.errors import Forbidden
from postroom.model.event import Webhook
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING, NOTHING, View
from postroom.operations import inboxes, rules, webhooks
from postroom.surfaces.mcp.server import make_server
from tests.isolation.conftest import SharedInstallation
from tests.isolation.tenants import rule_yaml
from tests.isolation.test_matrix import ALL, TOOLS
from tests.isolation.test_rules import BLIND, Limits, blind_key
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import rest_client

URL = "https://example.com/of/the/owner"
Plant = Callable[[SharedInstallation], Awaitable[str]]


async def context_of_key(shared: SharedInstallation, **limits: Any) -> Any:
    return shared.app.context(await shared.app.authenticate(await shared.key(ALL, limits)))


async def planted_by(ctx: Any) -> str:
    """The secret of a webhook that gets no events by itself, only from rules."""
    wanted = {"url": URL, "types": ["message.bounced"]}
    return (await call(ctx, webhooks.create_webhook, wanted)).secret or ""


async def by_who_loses_its_inbox(shared: SharedInstallation) -> str:
    ctx = await context_of_key(shared, inboxes=[shared.own.inbox])
    secret = await planted_by(ctx)
    await call(ctx, inboxes.delete_inbox, {"inbox_id": shared.own.inbox, "force": True})
    return secret


async def by_who_loses_an_account(shared: SharedInstallation) -> str:
    secret = await planted_by(await context_of_key(shared, accounts=[shared.own.account]))
    await shared.app.services.store.remove_inbox(shared.own.account_inbox, EVERYTHING, force=True)
    return secret


async def by_a_tenant(shared: SharedInstallation) -> str:
    return await planted_by(await context_of_key(shared, inboxes=[shared.other.inbox]))


async def by_a_key_for_everything(shared: SharedInstallation) -> str:
    return await planted_by(await context_of_key(shared))


async def by_an_older_version(shared: SharedInstallation) -> str:
    """Without a recorded key, as an older version stored it for a key without inboxes."""
    return await _of_before(shared, NOTHING)


async def by_an_older_version_for_everything(shared: SharedInstallation) -> str:
    return await _of_before(shared, EVERYTHING)


async def _of_before(shared: SharedInstallation, told_of: View) -> str:
    ctx, types = shared.app.context(OWNER), ("message.bounced",)
    old = Webhook("whk_old", URL, types, told_of, ctx.clock(), secret="whsec_b2xk")
    await ctx.store.add_webhook(old)
    return "whsec_b2xk"


PLANTED = [
    by_who_loses_its_inbox,
    by_who_loses_an_account,
    by_a_tenant,
    by_a_key_for_everything,
    by_an_older_version,
    by_an_older_version_for_everything,
]


async def signed_for(shared: SharedInstallation, ctx: Any, to: str) -> list[tuple[str, ...]]:
    """The secrets with which a rule of this caller signs a delivery for a mail in an inbox."""
    owner = shared.app.context(OWNER)
    rule = {"rule_yaml": rule_yaml("Tells", f"{{webhook: '{URL}'}}"), "dry_run": False}
    rule_id = (await call(ctx, rules.create_rule, rule)).id
    inbox = await owner.store.inbox(to, EVERYTHING)
    assert inbox is not None
    added = await deliver(owner, inbox, mail("News"))
    now = owner.clock().replace(year=2099)
    jobs = await owner.store.claim_webhooks("p", now=now, until=now, limit=100)
    return [
        job.secrets
        for job in jobs
        if job.url == URL
        and job.event is not None
        and (job.event.message_id, job.event.data.get("rule_id")) == (added.message_id, rule_id)
    ]


@pytest.mark.parametrize("plant", PLANTED)
async def test_a_rule_of_the_owner_never_signs_with_a_foreign_secret(
    shared: SharedInstallation, plant: Plant
) -> None:
    secret = await plant(shared)

    told = await signed_for(shared, shared.app.context(OWNER), shared.other.inbox)

    assert 1 == len(told)
    assert secret not in told[0]


@pytest.mark.parametrize("who", ["wider", "same"])
async def test_a_rule_of_a_key_never_signs_with_the_secret_of_another_key(
    shared: SharedInstallation, who: str
) -> None:
    secret = await planted_by(await context_of_key(shared, inboxes=[shared.other.inbox]))
    more = [shared.own.inbox] if who == "wider" else []
    other = await context_of_key(shared, inboxes=[shared.other.inbox, *more])

    told = await signed_for(shared, other, shared.other.inbox)

    assert 1 == len(told)
    assert secret not in told[0]


@pytest.mark.parametrize("is_owner", [True, False])
async def test_a_rule_signs_with_the_webhook_that_its_own_key_made(
    shared: SharedInstallation, is_owner: bool
) -> None:
    ctx = (
        shared.app.context(OWNER)
        if is_owner
        else await context_of_key(shared, inboxes=[shared.other.inbox, shared.own.inbox])
    )
    secret = await planted_by(ctx)

    assert [(secret,)] == await signed_for(shared, ctx, shared.other.inbox)


@pytest.mark.parametrize("limits", BLIND)
async def test_a_key_without_inboxes_cannot_create_a_webhook(
    shared: SharedInstallation, limits: Limits
) -> None:
    key = await blind_key(shared, limits)
    caller = await shared.app.authenticate(key)

    async with rest_client(shared.app, key) as rest:
        problem = await rest.problem("POST", "/v1/webhooks", json={"url": URL})
        assert (403, "forbidden") == (problem["status"], problem["code"])
        assert "create the webhook with a key that may see" in problem["detail"]
    with pytest.raises(Forbidden):
        await call(shared.app.context(caller), webhooks.create_webhook, {"url": URL})
    async with Client(make_server(shared.app, TOOLS, lambda _: caller)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        if "create_webhook" in names:
            assert (await client.call_tool("create_webhook", {"url": URL})).is_error
    assert URL not in str(await call(shared.app.context(OWNER), webhooks.list_webhooks, {}))
