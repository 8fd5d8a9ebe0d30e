"""Mail goes out once, whatever the relay does and whoever asks."""

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
from tests.pipeline.posting import OUTGOING, are_out, send, statuses, types, unable, until, working
from tests.servers.relay import CUT, HANG, relaying


async def test_a_mail_is_queued_and_then_handed_over(post: RequestContext) -> None:
    async with relaying() as relay, working(post, relay):
        sent = await send(post, bcc=["hidden@example.com"], wait_s=10)

    assert ("sent", ["queued", "sent"]) == (
        sent.status,
        [t.removeprefix("message.") for t in await types(post, sent)],
    )
    [got] = relay.mails
    assert ("me@postroom.localhost", ["ana@example.com", "hidden@example.com"]) == (
        got.sender,
        got.recipients,
    )
    assert b"hidden" not in got.data


async def test_local_inboxes_get_theirs_at_once_and_the_relay_never_sees_them(
    post: RequestContext,
) -> None:
    await new_inbox(post, "bo")
    async with relaying() as relay, working(post, relay):
        to = ["bo@postroom.localhost", "ana@example.com"]
        sent = await send(post, to=to, wait_s=10, **{"from": "me@postroom.localhost"})

    assert {"bo@postroom.localhost": "delivered", "ana@example.com": "sent"} == await statuses(
        post, sent
    )
    assert [["ana@example.com"]] == [mail.recipients for mail in relay.mails]


async def test_a_relay_that_hangs_holds_up_no_local_mail(
    post: RequestContext, clock: Clock
) -> None:
    await new_inbox(post, "bo")
    outgoing_mail = {**OUTGOING, "to": ["bo@postroom.localhost"], "from": "me@postroom.localhost"}
    begun = asyncio.Semaphore(0)

    def hang(_: str) -> object:
        begun.release()
        return HANG

    async with relaying({"DOT": hang}) as relay, working(post, relay) as outbox:
        for number in range(outbox.at_once + 1):
            await send(post, subject=f"Mail {number}", **{"from": "me@postroom.localhost"})
        for _ in range(outbox.at_once):
            await asyncio.wait_for(begun.acquire(), 10)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(post, create_draft, {**outgoing_mail, "send_at": at})
        sent = await call(post, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await post.store.pause_outbox(paused=False)

        async def is_there() -> bool:
            return {"bo@postroom.localhost": "delivered"} == await statuses(post, sent)

        await until(post, is_there)

    assert outbox.at_once == len(relay.mails)


async def test_a_refusal_is_final(post: RequestContext) -> None:
    async with relaying({"RCPT": b"550 5.1.1 no such user"}) as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    assert "failed" == sent.status
    assert "550 5.1.1 no such user" == sent.recipients[0].detail


@pytest.mark.parametrize("end", [CUT, HANG, b"354 what?"])
async def test_an_ambiguous_end_is_said_and_never_sent_again_by_itself(
    post: RequestContext, clock: Clock, end: Any
) -> None:
    async with relaying({"DOT": end}) as relay, working(post, relay, final_response_s=0.5):
        sent = await send(post, wait_s=10)
        relay.script = {}
        clock.now += timedelta(days=1)
        await post.store.pause_outbox(paused=False)
        other = await send(post, subject="Other", wait_s=10)

    assert ("unknown", "sent") == (sent.status, other.status)
    assert "not retried" in (sent.recipients[0].detail or "")
    assert 2 == len(relay.mails)


async def test_who_waits_waits_for_those_who_are_queued(post: RequestContext) -> None:
    async with relaying() as relay, working(post, relay):
        sent = await send(post, to=["gone@postroom.localhost", "ana@example.com"], wait_s=10)

    assert ["failed", "sent"] == [recipient.status for recipient in sent.recipients]


async def test_a_process_without_a_relay_leaves_mail_to_one_that_has_it(
    post: RequestContext, clock: Clock
) -> None:
    poor = replace(post, has_relay=False)
    async with heartbeat(post, ["relaying"]), unable(poor):
        sent = await send(poor)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(poor, create_draft, {**OUTGOING, "subject": "Later", "send_at": at})
        later = await call(poor, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await post.store.pause_outbox(paused=False)

        async def is_queued() -> bool:
            return {"ana@example.com": "queued"} == await statuses(post, later)

        await until(post, is_queued)
        attempts = [entry.attempts for entry in (await call(post, list_outbox, {})).results]
        async with relaying() as relay, working(post, relay):
            await until(post, lambda: are_out(post, [sent, later]))
    restarting = await send(poor, subject="Whoever relays restarts")
    clock.now += RELAY_REMEMBERED
    after = await send(poor, subject="Nobody relays")

    assert ([0, 0], 2) == (attempts, len(relay.mails))
    assert ("queued", "captured") == (restarting.status, after.status)
    listed = [await call(poor, list_outbox, given) for given in ({}, {"status": "captured"})]
    assert [[restarting.message_id], [after.message_id]] == [
        [entry.message_id for entry in page.results] for page in listed
    ]


async def test_fifty_callers_with_one_key_are_one_mail(post: RequestContext) -> None:
    async with relaying() as relay, working(post, relay):
        answers = await asyncio.gather(
            *(send(post, idempotency_key="k", wait_s=10) for _ in range(50))
        )

    assert 1 == len(relay.mails) == len({answer.message_id for answer in answers})


async def test_who_waits_is_told_at_once_that_it_takes_longer(post: RequestContext) -> None:
    """The relay has spoken: there is nothing more to wait for."""
    async with relaying({"RCPT": b"450 4.7.1 later"}) as relay, working(post, relay):
        async with asyncio.timeout(20):
            sent = await send(post, wait_s=30)

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
