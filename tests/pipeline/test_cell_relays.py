"""Mail for domains of other cells is sent to them directly, and repeated until confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.config import ConfigError, read_settings
from postroom.model.key import OWNER
from postroom.model.mail.sending import Sent
from postroom.operations.outgoing.approvals import set_policy
from postroom.pipeline.outbox import (
    CELL_FIRST_WAIT,
    CELL_LONGEST_WAIT,
    Outbox,
    wait_after,
)
from postroom.pipeline.routing import PAUSE_S, SLOW_S, CellSenders
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from tests.mails import new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import running_worker, send, statuses, types, until
from tests.servers.relay import CUT, HANG, Relay, relaying

BEE, SEA, ANA = "bo@b.example", "cy@c.example", "ana@example.com"


def sender_to(relay: Relay) -> SmtpRelay:
    return SmtpRelay(parse_relay_url(relay.url), "postroom.localhost", response_s=60)


@asynccontextmanager
async def handing(
    ctx: RequestContext, cells: Mapping[str, Relay], relay: Relay | None = None
) -> AsyncIterator[Outbox]:
    senders = {domain: sender_to(cell) for domain, cell in cells.items()}
    known = CellSenders(senders, clock=lambda: ctx.clock().timestamp())
    async with running_worker(Outbox(ctx, relay and sender_to(relay), known)) as outbox:
        yield outbox


@pytest.fixture
async def cell(tmp_path: Path, clock: Clock) -> AsyncIterator[RequestContext]:
    """A cell without a relay that knows the domains of two others."""
    relays = "b.example=smtp://127.0.0.1:9,c.example=smtp://127.0.0.1:9"
    settings = read_settings(
        {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_CELL_RELAYS": relays}
    ).settings
    async with open_app(settings) as app:
        ctx = replace(app, services=replace(app.services, clock=clock)).context(OWNER)
        await new_inbox(ctx, "me")
        yield ctx


async def until_status(ctx: RequestContext, sent: Sent, expected: dict[str, str]) -> None:
    async def is_so() -> bool:
        return expected == await statuses(ctx, sent)

    await until(ctx, is_so)


async def until_deferred(ctx: RequestContext, sent: Sent) -> None:
    async def is_so() -> bool:
        return "message.deferred" in await types(ctx, sent)

    await until(ctx, is_so)


async def until_full(outbox: Outbox) -> None:
    async with asyncio.timeout(50):
        while "relay" in outbox._free():  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)


async def later(ctx: RequestContext, clock: Clock, wait: timedelta) -> None:
    """Advance the clock, and wake the worker."""
    clock.now += wait
    await ctx.store.pause_outbox(paused=False)


def took(relay: Relay) -> list[list[str]]:
    return [mail.recipients for mail in relay.mails]


async def test_mail_for_another_cell_is_sent_there_and_other_mail_is_captured(
    cell: RequestContext,
) -> None:
    async with relaying() as bee, handing(cell, {"b.example": bee}):
        sent = await send(cell, to=[BEE.upper(), ANA])
        await until_status(cell, sent, {BEE.upper(): "sent", ANA: "captured"})

    assert [[BEE.upper()]] == took(bee)


async def test_each_recipient_is_routed_separately(outbox_ctx: RequestContext) -> None:
    ctx = replace(outbox_ctx, cell_domains=frozenset({"b.example", "c.example"}))
    async with (
        relaying() as bee,
        relaying() as sea,
        relaying() as relay,
        handing(ctx, {"b.example": bee, "c.example": sea}, relay),
    ):
        sent = await send(ctx, to=[BEE, ANA], cc=[SEA], wait_s=10)

    assert "sent" == sent.status
    assert ([[BEE]], [[SEA]], [[ANA]]) == (took(bee), took(sea), took(relay))


async def test_a_mail_that_a_cell_did_not_confirm_is_sent_to_it_again(
    cell: RequestContext, clock: Clock
) -> None:
    async with relaying({"DOT": CUT}) as bee, handing(cell, {"b.example": bee}):
        sent = await send(cell, to=[BEE])
        await until_deferred(cell, sent)
        bee.script = {}
        await later(cell, clock, CELL_FIRST_WAIT)
        await until_status(cell, sent, {BEE: "sent"})

    assert 3 == len(
        bee.mails
    )  # retried once immediately, because only a connection may have been lost
    assert 1 == len({mail.data for mail in bee.mails})


async def test_replies_of_the_relay_are_stored_before_a_cell_is_tried(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    ctx = replace(outbox_ctx, cell_domains=frozenset({"b.example"}))
    async with relaying({"DATA": HANG}) as bee, relaying() as relay:
        async with handing(ctx, {"b.example": bee}, relay) as outbox:
            sent = await send(ctx, to=[BEE, ANA])
            await until_status(ctx, sent, {BEE: "queued", ANA: "sent"})
            outbox.lease = timedelta()  # as if it had died: its claims are not renewed
        bee.script = {}
        clock.now += timedelta(minutes=1)
        async with handing(ctx, {"b.example": bee}, relay):
            await until_status(ctx, sent, {BEE: "sent", ANA: "sent"})

    assert ([[BEE]], [[ANA]]) == (took(bee), took(relay))


async def test_other_mail_does_not_wait_for_a_cell_that_hangs(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    ctx = replace(outbox_ctx, cell_domains=frozenset({"b.example", "c.example"}))
    async with (
        relaying({"MAIL": HANG}) as bee,
        relaying() as sea,
        relaying() as relay,
        handing(ctx, {"b.example": bee, "c.example": sea}, relay) as outbox,
    ):
        for number in range(2 * outbox.at_once):
            await send(ctx, to=[BEE], subject=f"stuck {number}")
        inside, outside = await send(ctx, to=[SEA]), await send(ctx, to=[ANA])
        await until_full(outbox)
        await later(ctx, clock, timedelta(seconds=SLOW_S + 1))
        await until_status(ctx, inside, {SEA: "sent"})
        await until_status(ctx, outside, {ANA: "sent"})

    assert ([], [[SEA]], [[ANA]]) == (took(bee), took(sea), took(relay))


async def test_a_cell_that_fails_is_tried_by_one_mail_at_a_time(
    cell: RequestContext, clock: Clock
) -> None:
    async with (
        relaying({"GREETING": b"421 4.3.2 not now"}) as bee,
        handing(cell, {"b.example": bee}),
    ):
        sent = [await send(cell, to=[BEE], subject="0")]
        await until_deferred(cell, sent[0])
        for number in range(1, 4):
            sent.append(await send(cell, to=[BEE], subject=str(number)))
            await until_deferred(cell, sent[number])
        tried = bee.connections
        bee.script = {}
        await later(cell, clock, max(CELL_FIRST_WAIT, timedelta(seconds=PAUSE_S)))
        for one in sent:
            while {BEE: "sent"} != await statuses(cell, one):
                await later(cell, clock, CELL_LONGEST_WAIT)
                await asyncio.sleep(0.05)

    assert 1 == tried
    assert len(sent) == len(bee.mails)


async def test_a_rejection_by_a_cell_is_permanent(cell: RequestContext) -> None:
    async with (
        relaying({"RCPT": b"550 5.1.1 no such address"}) as bee,
        handing(cell, {"b.example": bee}),
    ):
        sent = await send(cell, to=[BEE])
        await until_status(cell, sent, {BEE: "failed"})

    assert (1, []) == (bee.connections, bee.mails)


async def test_mail_to_another_cell_needs_approval_like_other_mail(
    cell: RequestContext,
) -> None:
    inbox = {"inbox_id": "me@postroom.localhost", "approval": "always"}
    await call(cell, set_policy, inbox)
    async with relaying() as bee, handing(cell, {"b.example": bee}):
        sent = await send(cell, to=[BEE])

    assert ("held", []) == (sent.status, bee.mails)


def test_retries_to_a_cell_back_off_from_seconds_to_minutes() -> None:
    waits = [wait_after(n, CELL_FIRST_WAIT, CELL_LONGEST_WAIT) for n in range(20)]

    assert (CELL_FIRST_WAIT, 2 * CELL_FIRST_WAIT, CELL_LONGEST_WAIT) == (
        waits[0],
        waits[1],
        waits[-1],
    )
    assert sorted(waits) == waits


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("b.example", "the URL for b.example must be like smtp://"),
        ("b.example=smtp://x,b.example=smtp://y", "each domain once"),
        ("=smtp://127.0.0.1", "must be like"),
        ("b_b=smtp://127.0.0.1", "must be like"),
        ("b.example=http://127.0.0.1", "the URL for b.example must be like smtp://"),
        ("b.example=smtp://10.0.0.2?insecure=true", "only allowed for a relay on this machine"),
        ("postroom.localhost=smtp://127.0.0.1", "is one of POSTROOM_DOMAIN"),
    ],
)
def test_invalid_cell_relays_are_refused_without_showing_a_password(
    value: str, problem: str
) -> None:
    secret = value.replace("smtp://", "smtp://me:hush@") if "insecure" in value else value

    with pytest.raises(ConfigError, match=r"POSTROOM_CELL_RELAYS: ") as refused:
        read_settings({"POSTROOM_CELL_RELAYS": secret})

    assert problem in str(refused.value)
    assert "hush" not in str(refused.value)


def test_relays_are_read_with_commas_and_spaces() -> None:
    value = "b.example=smtp://127.0.0.1:25, C.example = smtps://me:x%2Cy@c.example"

    found = read_settings({"POSTROOM_CELL_RELAYS": value}).settings.cell_relays

    assert (
        ("b.example", "smtp://127.0.0.1:25"),
        ("c.example", "smtps://me:x%2Cy@c.example"),
    ) == found
