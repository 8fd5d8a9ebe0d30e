"""Webhook deliveries are made at least once and in order, whatever the receiver replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import Webhook, WebhookResponse
from postroom.model.inbox import Inbox
from postroom.operations.webhooks import create_webhook, list_deliveries, redeliver
from postroom.pipeline.webhooks import Webhooks, wait_after
from postroom.providers.allowed_hosts import AddressGuard
from postroom.providers.http_clients import HttpWebhookClient
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.webhook_receiver import (
    LOOPBACK,
    WebhookReceiver,
    until_deliveries_are,
    webhook_worker,
)


async def tried(ctx: RequestContext, webhook: Webhook, attempts: int) -> None:
    """Wait until the oldest delivery has had this many attempts."""
    notifier = ctx.store.notifier
    async with asyncio.timeout(50):
        position = notifier.position("webhooks")
        while True:
            page = await call(ctx, list_deliveries, {"webhook_id": webhook.id})
            if page.results[-1].attempts == attempts:
                return
            position = await notifier.wait("webhooks", position)


async def test_a_failed_delivery_is_retried_before_later_ones(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver, clock: Clock
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count <= 2 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    for subject in ("one", "two", "three"):
        await deliver(open_ctx, inbox, mail(subject))
    async with webhook_worker(open_ctx):
        for count in (1, 2):
            await tried(open_ctx, webhook, count)
            clock.now += timedelta(minutes=5)
            await deliver(open_ctx, inbox, mail("late", message_id=f"<late{count}@x.org>"))
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert ["one", "one", "one", "two", "three", "late", "late"] == receiver.subjects


@pytest.mark.parametrize(
    "answer",
    [b"302 Found\r\nLocation: http://127.0.0.1:1/", b"404 No", b"x", b"200 " + b"O" * 20_000],
    ids=["redirect", "missing", "not HTTP", "endless line"],
)
async def test_other_statuses_are_failures_and_redirects_are_not_followed(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver, answer: bytes
) -> None:
    receiver.answer = lambda _: answer
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with webhook_worker(open_ctx):
        await tried(open_ctx, webhook, 1)

    [delivery] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ("pending", 1) == (delivery.status, delivery.attempts)
    assert 1 == len(receiver.got)


async def test_informational_responses_are_skipped(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    early = b"103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\nHTTP/1.1 "
    receiver.answer = lambda _: b"100 Continue\r\n\r\nHTTP/1.1 " + early + b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with webhook_worker(open_ctx):
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert 1 == len(receiver.got)


async def test_any_error_is_a_failed_attempt(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    class Broken(HttpWebhookClient):
        async def post(self, url: str, headers: object, body: bytes) -> WebhookResponse:
            raise RuntimeError

    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with webhook_worker(replace(open_ctx, webhook_client=Broken())):
        await tried(open_ctx, webhook, 1)

    [delivery] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ("pending", True) == (delivery.status, "log" in delivery.detail)


async def test_a_hanging_receiver_delays_only_its_own_deliveries(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    patient = replace(
        open_ctx, webhook_client=HttpWebhookClient(AddressGuard(LOOPBACK), timeout_s=3600)
    )
    others = [await new_inbox(open_ctx, f"other{number}") for number in range(70)]
    async with silent() as (url, held):
        await call(open_ctx, create_webhook, {"url": url})
        await call(open_ctx, create_webhook, {"url": receiver.url, "inboxes": [inbox.id]})
        for other in others:
            await deliver(open_ctx, other, mail())
        await deliver(open_ctx, inbox, mail("urgent"))
        async with webhook_worker(patient):
            await receiver.has(1)

    assert ["urgent"] == receiver.subjects
    assert len(held) <= Webhooks(patient).at_once_each


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """A server that accepts connections and sends nothing."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", held
    finally:
        server.close()
        for writer in held:
            writer.close()


async def test_a_delivery_is_abandoned_after_a_day_and_can_be_retried(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver, clock: Clock
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 1 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    clock.now += timedelta(hours=24)
    async with webhook_worker(open_ctx):
        await until_deliveries_are(open_ctx, webhook, "dead")
        [dead] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
        await call(open_ctx, redeliver, {"webhook_id": webhook.id, "delivery_id": dead.id})
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert (500, 2) == (dead.code, len(receiver.got))


async def test_a_manual_retry_starts_over_and_delays_nothing(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 2 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail("old"))
    async with webhook_worker(open_ctx):
        await until_deliveries_are(open_ctx, webhook, "delivered")
        [old] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
        again = {"webhook_id": webhook.id, "delivery_id": old.id}
        await call(open_ctx, redeliver, again)
        await receiver.has(2)
        await deliver(open_ctx, inbox, mail("new"))
        await receiver.has(3)
        await tried(open_ctx, webhook, 1)

    _, old = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ["old", "old", "new"] == receiver.subjects
    assert ("pending", 1) == (old.status, old.attempts)


async def test_a_manual_retry_keeps_the_order(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 1 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail("first"))
    await deliver(open_ctx, inbox, mail("second"))
    async with webhook_worker(open_ctx):
        await tried(open_ctx, webhook, 1)
        first = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results[-1]
        again = {"webhook_id": webhook.id, "delivery_id": first.id}
        told = await call(open_ctx, redeliver, again)
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert ("pending", 0) == (told.status, told.attempts)
    assert ["first", "first", "second"] == receiver.subjects


async def test_a_delivery_whose_worker_died_is_made_by_another(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver, clock: Clock
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    await open_ctx.store.claim_webhooks(
        "dead", now=clock(), until=clock() + timedelta(seconds=60), limit=9
    )
    clock.now += timedelta(seconds=61)
    async with webhook_worker(open_ctx):
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert 1 == len(receiver.got)


def test_delivery_retries_back_off_to_hours() -> None:
    waits = [wait_after(attempts) for attempts in range(30)]

    assert (timedelta(seconds=5), timedelta(seconds=20)) == (waits[0], waits[1])
    assert timedelta(hours=4) == max(waits)
