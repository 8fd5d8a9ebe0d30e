"""Mail is transmitted once, whatever the relay replies and however many callers send it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.operations.outgoing.drafts import create_draft, send_draft
from postroom.operations.outgoing.outbox import list_outbox
from postroom.pipeline.services import RELAY_REMEMBERED, heartbeat
from tests.mails import new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import (
    OUTGOING,
    all_sent,
    relay_worker,
    send,
    statuses,
    types,
    until,
    worker_without_relay,
)
from tests.servers.relay import CUT, HANG, relaying


async def test_a_mail_is_queued_and_then_transmitted(outbox_ctx: RequestContext) -> None:
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, bcc=["hidden@example.com"], wait_s=10)

    assert ("sent", ["queued", "sent"]) == (
        sent.status,
        [t.removeprefix("message.") for t in await types(outbox_ctx, sent)],
    )
    [got] = relay.mails
    assert ("me@postroom.localhost", ["ana@example.com", "hidden@example.com"]) == (
        got.sender,
        got.recipients,
    )
    assert b"hidden" not in got.data


async def test_local_recipients_are_delivered_without_the_relay(
    outbox_ctx: RequestContext,
) -> None:
    await new_inbox(outbox_ctx, "bo")
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        to = ["bo@postroom.localhost", "ana@example.com"]
        sent = await send(outbox_ctx, to=to, wait_s=10, **{"from": "me@postroom.localhost"})

    assert {"bo@postroom.localhost": "delivered", "ana@example.com": "sent"} == await statuses(
        outbox_ctx, sent
    )
    assert [["ana@example.com"]] == [mail.recipients for mail in relay.mails]


async def test_a_hanging_relay_does_not_delay_local_mail(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    await new_inbox(outbox_ctx, "bo")
    outgoing_mail = {**OUTGOING, "to": ["bo@postroom.localhost"], "from": "me@postroom.localhost"}
    begun = asyncio.Semaphore(0)

    def hang(_: str) -> object:
        begun.release()
        return HANG

    async with relaying({"DOT": hang}) as relay, relay_worker(outbox_ctx, relay) as outbox:
        for number in range(outbox.at_once + 1):
            await send(outbox_ctx, subject=f"Mail {number}", **{"from": "me@postroom.localhost"})
        for _ in range(outbox.at_once):
            await asyncio.wait_for(begun.acquire(), 10)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(outbox_ctx, create_draft, {**outgoing_mail, "send_at": at})
        sent = await call(outbox_ctx, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_there() -> bool:
            return {"bo@postroom.localhost": "delivered"} == await statuses(outbox_ctx, sent)

        await until(outbox_ctx, is_there)

    assert outbox.at_once == len(relay.mails)


async def test_a_permanent_rejection_is_final(outbox_ctx: RequestContext) -> None:
    async with (
        relaying({"RCPT": b"550 5.1.1 no such user"}) as relay,
        relay_worker(outbox_ctx, relay),
    ):
        sent = await send(outbox_ctx, wait_s=10)

    assert "failed" == sent.status
    assert "550 5.1.1 no such user" == sent.recipients[0].detail


@pytest.mark.parametrize("end", [CUT, HANG, b"354 what?"])
async def test_an_ambiguous_outcome_is_unknown_and_never_retried_automatically(
    outbox_ctx: RequestContext, clock: Clock, end: Any
) -> None:
    async with (
        relaying({"DOT": end}) as relay,
        relay_worker(outbox_ctx, relay, final_response_s=0.5),
    ):
        sent = await send(outbox_ctx, wait_s=10)
        relay.script = {}
        clock.now += timedelta(days=1)
        await outbox_ctx.store.pause_outbox(paused=False)
        other = await send(outbox_ctx, subject="Other", wait_s=10)

    assert ("unknown", "sent") == (sent.status, other.status)
    assert "not retried" in (sent.recipients[0].detail or "")
    assert 2 == len(relay.mails)


async def test_a_send_with_wait_waits_for_queued_recipients(outbox_ctx: RequestContext) -> None:
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, to=["gone@postroom.localhost", "ana@example.com"], wait_s=10)

    assert ["failed", "sent"] == [recipient.status for recipient in sent.recipients]


async def test_a_process_without_a_relay_leaves_mail_to_one_with_a_relay(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    poor = replace(outbox_ctx, has_relay=False)
    async with heartbeat(outbox_ctx, ["relaying"]), worker_without_relay(poor):
        sent = await send(poor)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(poor, create_draft, {**OUTGOING, "subject": "Later", "send_at": at})
        later = await call(poor, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_queued() -> bool:
            return {"ana@example.com": "queued"} == await statuses(outbox_ctx, later)

        await until(outbox_ctx, is_queued)
        attempts = [entry.attempts for entry in (await call(outbox_ctx, list_outbox, {})).results]
        async with relaying() as relay, relay_worker(outbox_ctx, relay):
            await until(outbox_ctx, lambda: all_sent(outbox_ctx, [sent, later]))
    restarting = await send(poor, subject="Whoever relays restarts")
    clock.now += RELAY_REMEMBERED
    after = await send(poor, subject="Nobody relays")

    assert ([0, 0], 2) == (attempts, len(relay.mails))
    assert ("queued", "captured") == (restarting.status, after.status)
    listed = [await call(poor, list_outbox, given) for given in ({}, {"status": "captured"})]
    assert [[restarting.message_id], [after.message_id]] == [
        [entry.message_id for entry in page.results] for page in listed
    ]


async def test_fifty_callers_with_one_idempotency_key_send_one_mail(
    outbox_ctx: RequestContext,
) -> None:
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        answers = await asyncio.gather(
            *(send(outbox_ctx, idempotency_key="k", wait_s=10) for _ in range(50))
        )

    assert 1 == len(relay.mails) == len({answer.message_id for answer in answers})


async def test_a_wait_ends_when_the_relay_defers_the_mail(outbox_ctx: RequestContext) -> None:
    """After the reply of the relay there is nothing more to wait for."""
    async with relaying({"RCPT": b"450 4.7.1 later"}) as relay, relay_worker(outbox_ctx, relay):
        async with asyncio.timeout(20):
            sent = await send(outbox_ctx, wait_s=30)

    assert ("queued", "450 4.7.1 later") == (sent.status, sent.recipients[0].detail)


async def test_a_command_that_sends_waits_for_the_relay(app: App, tmp_path: Path) -> None:
    await new_inbox(app.services, "me")
    async with relaying() as relay:
        settings = replace(app.settings, relay_url=relay.url)
        services = replace(app.services, has_relay=True)
        with_relay = replace(app, settings=settings, services=services)
        async with with_relay.sending():
            await send(with_relay.context(OWNER))

    assert 1 == len(relay.mails)
