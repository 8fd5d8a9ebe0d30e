"""When a key loses its rights, its webhooks get no events and its scheduled mail is not sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import WebhookResponse
from postroom.model.key import AGENT, OWNER
from postroom.model.view import EVERYTHING
from postroom.operations import keys, rules, webhooks
from postroom.operations.mail import messages
from postroom.operations.outgoing import drafts, outbox
from postroom.pipeline.outbox import Outbox
from postroom.pipeline.webhooks import Webhooks
from tests.isolation.conftest import SharedInstallation
from tests.isolation.tenants import rule_yaml
from tests.isolation.test_matrix import ALL
from tests.mails import deliver, mail

URL = "https://example.com/hook"
Loss = Callable[[SharedInstallation, str], Awaitable[None]]


async def revoked(shared: SharedInstallation, key_id: str) -> None:
    await call(shared.app.context(OWNER), keys.delete_key, {"key_id": key_id})


def without(column: str, value: str | int) -> Loss:
    async def lose(shared: SharedInstallation, key_id: str) -> None:
        def update(tx: Any) -> None:
            tx.run(f"UPDATE keys SET {column} = :value WHERE id = :id", value=value, id=key_id)

        await shared.app.services.store.engine.write(update)

    return lose


LOSSES: dict[str, Loss] = {
    "revoked": revoked,
    "expired": without("expires_at", 1),
    "no inbox": without("inboxes", "[]"),
    "no scope": without("scopes", '["write"]'),
}


class RecordingPoster:
    """Records the requests that webhooks make."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def check(self, url: str) -> None:
        """Every URL is allowed."""

    async def post(self, url: str, headers: Any, body: bytes) -> WebhookResponse:
        self.urls.append(url)
        return WebhookResponse(200, "")


async def context_of_key(shared: SharedInstallation) -> tuple[RequestContext, str]:
    secret = await shared.key(ALL, {"inboxes": [shared.own.inbox]})
    caller = await shared.app.authenticate(secret)
    return shared.app.context(caller), caller.key_id


async def arrive(shared: SharedInstallation) -> None:
    ctx = shared.app.context(OWNER)
    inbox = await ctx.store.inbox(shared.own.inbox, EVERYTHING)
    assert inbox is not None
    await deliver(ctx, inbox, mail("News"))


async def posted(shared: SharedInstallation) -> list[str]:
    """The URLs that get the pending deliveries."""
    receiver = RecordingPoster()
    worker = Webhooks(replace(shared.app.services, webhook_client=receiver))  # type: ignore[arg-type]
    while True:
        await worker._start_due("here")
        tasks = list(worker._active)
        if not tasks:
            return receiver.urls
        for task in tasks:
            await task


async def redirected(ctx: RequestContext) -> None:
    """A webhook of the owner, to which the key has given another URL."""
    owner = replace(ctx, caller=OWNER)
    wanted = {"url": f"{URL}/before", "inboxes": list(ctx.visible.named)}  # type: ignore[union-attr]
    made = await call(owner, webhooks.create_webhook, wanted)
    await call(ctx, webhooks.update_webhook, {"webhook_id": made.id, "url": URL})


MADE_BY: dict[str, Callable[[RequestContext], Awaitable[Any]]] = {
    "itself": lambda ctx: call(ctx, webhooks.create_webhook, {"url": URL}),
    "the owner, before": redirected,
    "a rule": lambda ctx: call(
        ctx,
        rules.create_rule,
        {"rule_yaml": rule_yaml("Tells", f"{{webhook: '{URL}'}}"), "dry_run": False},
    ),
}


@pytest.mark.parametrize("when", ["before the event", "after the event"])
@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("made_by", MADE_BY)
async def test_a_webhook_ends_with_the_rights_of_its_key(
    shared: SharedInstallation, made_by: str, how: str, when: str
) -> None:
    ctx, key_id = await context_of_key(shared)
    await MADE_BY[made_by](ctx)
    await arrive(shared)
    assert URL in await posted(shared)

    if when == "after the event":
        await arrive(shared)
    await LOSSES[how](shared, key_id)
    if when == "before the event":
        await arrive(shared)

    assert URL not in await posted(shared)
    owner = shared.app.context(OWNER)
    listed = (await call(owner, webhooks.list_webhooks, {})).results
    (stopped,) = [hook.stopped for hook in listed if hook.url == URL]
    if made_by != "a rule" or how == "revoked":
        assert "the key that created this webhook" in (stopped or "")


@pytest.mark.parametrize("how", LOSSES)
async def test_renewing_a_stopped_webhook_makes_it_the_callers(
    shared: SharedInstallation, how: str
) -> None:
    ctx, key_id = await context_of_key(shared)
    made = await call(ctx, webhooks.create_webhook, {"url": URL})
    await LOSSES[how](shared, key_id)
    owner = shared.app.context(OWNER)

    await call(owner, webhooks.renew_webhook, {"webhook_id": made.id})
    await arrive(shared)
    now = shared.app.services.clock() + timedelta(minutes=1)
    jobs = await owner.store.claim_webhooks("p", now=now, until=now, limit=100)

    (job,) = [job for job in jobs if job.webhook_id == made.id]
    assert made.secret not in job.secrets
    listed = (await call(owner, webhooks.list_webhooks, {})).results
    assert [None] == [hook.stopped for hook in listed if hook.id == made.id]


async def test_renewing_an_active_webhook_does_not_change_its_key(
    shared: SharedInstallation,
) -> None:
    ctx, key_id = await context_of_key(shared)
    made = await call(ctx, webhooks.create_webhook, {"url": URL})
    await call(shared.app.context(OWNER), webhooks.renew_webhook, {"webhook_id": made.id})

    await revoked(shared, key_id)
    await arrive(shared)

    assert URL not in await posted(shared)


async def test_a_url_that_the_owner_corrects_still_ends_with_the_key(
    shared: SharedInstallation,
) -> None:
    ctx, key_id = await context_of_key(shared)
    made = await call(ctx, webhooks.create_webhook, {"url": f"{URL}/before"})
    change = {"webhook_id": made.id, "url": URL}
    await call(shared.app.context(OWNER), webhooks.update_webhook, change)

    await revoked(shared, key_id)
    await arrive(shared)

    assert URL not in await posted(shared)


async def test_another_url_does_not_resume_a_stopped_webhook(shared: SharedInstallation) -> None:
    ctx, key_id = await context_of_key(shared)
    made = await call(ctx, webhooks.create_webhook, {"url": f"{URL}/before"})
    await revoked(shared, key_id)
    other, _ = await context_of_key(shared)

    await call(other, webhooks.update_webhook, {"webhook_id": made.id, "url": URL})
    await arrive(shared)

    assert URL not in await posted(shared)


async def schedule(shared: SharedInstallation, ctx: RequestContext) -> str:
    """A mail that is due in a minute."""
    at = shared.app.services.clock() + timedelta(minutes=1)
    wanted = {
        "inbox_id": shared.own.inbox,
        "to": [shared.other.address],
        "subject": "Later",
        "body_text": "Later.",
        "send_at": at.isoformat(),
    }
    draft = await call(ctx, drafts.create_draft, wanted)
    return str((await call(ctx, drafts.send_draft, {"draft_id": draft.id})).message_id)


async def two_minutes_later(shared: SharedInstallation) -> None:
    """Run the outbox two minutes later."""
    services = shared.app.services
    ahead = replace(services, clock=lambda: services.clock() + timedelta(minutes=2))
    worker = Outbox(ahead, None)
    await worker._start_due("here")
    for task in list(worker._active):
        await task


async def status_of(shared: SharedInstallation, message_id: str) -> tuple[str, str]:
    ctx = shared.app.context(OWNER)
    message = await call(ctx, messages.get_message, {"message_id": message_id})
    (recipient,) = message.recipients
    return recipient.status, recipient.detail or ""


@pytest.mark.parametrize("how", LOSSES)
async def test_a_scheduled_mail_is_not_sent_without_the_rights_of_its_key(
    shared: SharedInstallation, how: str
) -> None:
    ctx, key_id = await context_of_key(shared)
    message_id = await schedule(shared, ctx)
    await LOSSES[how](shared, key_id)

    await two_minutes_later(shared)

    status, detail = await status_of(shared, message_id)
    assert ("failed", True) == (status, "the key that scheduled it" in detail)
    owner = shared.app.context(OWNER)
    waiting = await call(owner, outbox.list_outbox, {"status": "failed"})
    assert message_id in [entry.message_id for entry in waiting.results]

    await call(owner, outbox.retry_message, {"message_id": message_id})
    await two_minutes_later(shared)

    assert "delivered" == (await status_of(shared, message_id))[0]


@pytest.mark.parametrize("who", ["a key", "the owner", "the agent"])
async def test_a_scheduled_mail_is_sent_while_its_key_has_the_rights(
    shared: SharedInstallation, who: str
) -> None:
    callers = {"the owner": OWNER, "the agent": AGENT}
    ctx = shared.app.context(callers[who]) if who in callers else (await context_of_key(shared))[0]
    message_id = await schedule(shared, ctx)

    await two_minutes_later(shared)

    assert "delivered" == (await status_of(shared, message_id))[0]
