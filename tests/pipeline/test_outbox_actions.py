"""Pending and failed mail can be retried, paused and cancelled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, NotFound
from postroom.model.mail.sending import PAUSED
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing.drafts import create_draft, send_draft
from postroom.operations.outgoing.outbox import (
    cancel_message,
    list_outbox,
    pause_outbox,
    resume_outbox,
    retry_message,
)
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
)
from tests.servers.relay import CUT, relaying


async def test_retrying_an_unknown_mail_must_be_explicit(outbox_ctx: RequestContext) -> None:
    async with relaying({"DOT": CUT}) as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, wait_s=10)
        relay.script = {}
        await call(outbox_ctx, retry_message, {"message_id": sent.message_id})

        async def is_out() -> bool:
            return (await statuses(outbox_ctx, sent)) == {"ana@example.com": "sent"}

        await until(outbox_ctx, is_out)

    with pytest.raises(Conflict, match="all recipients have"):
        await call(outbox_ctx, retry_message, {"message_id": sent.message_id})
    with pytest.raises(NotFound):
        await call(outbox_ctx, retry_message, {"message_id": "msg_none"})


async def test_a_failed_mail_is_listed_and_can_be_retried(outbox_ctx: RequestContext) -> None:
    """Its address is local: a retry delivers it to the inbox, never to the relay."""
    sent = await send(outbox_ctx, to=["bo@postroom.localhost"])
    listed = await call(outbox_ctx, list_outbox, {"status": "failed"})
    bo = await new_inbox(outbox_ctx, "bo")
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        again = await call(outbox_ctx, retry_message, {"message_id": sent.message_id})

        async def has_arrived() -> bool:
            return await statuses(outbox_ctx, sent) == {"bo@postroom.localhost": "delivered"}

        await until(outbox_ctx, has_arrived)

    assert ("failed", "queued", []) == (sent.status, again.status, relay.mails)
    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert (
        1
        == (await outbox_ctx.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=bo.id))).total
    )
    assert ["failed", "queued", "delivered"] == [
        kind.removeprefix("message.") for kind in await types(outbox_ctx, sent)
    ]


async def test_captured_mail_is_sent_when_there_is_a_relay(outbox_ctx: RequestContext) -> None:
    sent = await send(replace(outbox_ctx, has_relay=False))
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        await call(outbox_ctx, retry_message, {"message_id": sent.message_id})
        await until(outbox_ctx, lambda: all_sent(outbox_ctx, [sent]))

    assert ("captured", 1) == (sent.status, len(relay.mails))


async def test_a_paused_outbox_holds_mail_back_until_it_is_resumed(
    outbox_ctx: RequestContext,
) -> None:
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        state = await call(outbox_ctx, pause_outbox, {})
        sent = await send(outbox_ctx, wait_s=1)
        before = len(relay.mails)
        await call(outbox_ctx, resume_outbox, {})

        async def is_out() -> bool:
            return (await statuses(outbox_ctx, sent)) == {"ana@example.com": "sent"}

        await until(outbox_ctx, is_out)

    assert (True, "queued", 0) == (state.is_paused, sent.status, before)


async def test_a_pause_is_shown_with_all_paused_mail(outbox_ctx: RequestContext) -> None:
    await call(outbox_ctx, pause_outbox, {})
    sent = await send(outbox_ctx)
    failed = await send(outbox_ctx, to=["gone@postroom.localhost"])
    again = await call(outbox_ctx, retry_message, {"message_id": sent.message_id})
    held = {e.message_id: e.is_paused for e in (await call(outbox_ctx, list_outbox, {})).results}
    await call(outbox_ctx, resume_outbox, {})
    free = [entry.is_paused for entry in (await call(outbox_ctx, list_outbox, {})).results]

    assert ((PAUSED,), (PAUSED,), None) == (sent.warnings, again.warnings, failed.warnings)
    assert {sent.message_id: True, failed.message_id: False} == held
    assert [False, False] == free


async def test_a_retry_does_not_send_scheduled_mail_early(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    at = (clock() + timedelta(days=1)).isoformat()
    draft = await call(outbox_ctx, create_draft, {**OUTGOING, "send_at": at})
    sent = await call(outbox_ctx, send_draft, {"draft_id": draft.id})
    with pytest.raises(Conflict, match=r"2026-06-02.*cancel_message"):
        await call(outbox_ctx, retry_message, {"message_id": sent.message_id})
    clock.now += timedelta(days=1)

    assert (
        "queued" == (await call(outbox_ctx, retry_message, {"message_id": sent.message_id})).status
    )


async def test_pending_mail_can_be_cancelled(outbox_ctx: RequestContext) -> None:
    sent = await send(outbox_ctx)
    listed = await call(outbox_ctx, list_outbox, {"status": "queued"})
    cancelled = await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})

    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert ("failed", "cancelled before it was sent") == (
        cancelled.status,
        cancelled.recipients[0].detail,
    )
    with pytest.raises(NotFound, match="list_drafts"):
        await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})
