"""Mail that waits or has failed can be retried, held back and cancelled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, NotFound
from postroom.model.sending import PAUSED
from postroom.model.storage import MessageQuery
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
from tests.pipeline.posting import OUTGOING, are_out, send, statuses, types, until, working
from tests.servers.relay import CUT, relaying


async def test_whoever_wants_an_unknown_mail_sent_again_says_so(post: RequestContext) -> None:
    async with relaying({"DOT": CUT}) as relay, working(post, relay):
        sent = await send(post, wait_s=10)
        relay.script = {}
        await call(post, retry_message, {"message_id": sent.message_id})

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    with pytest.raises(Conflict, match="all recipients have"):
        await call(post, retry_message, {"message_id": sent.message_id})
    with pytest.raises(NotFound):
        await call(post, retry_message, {"message_id": "msg_none"})


async def test_a_mail_that_failed_at_once_is_seen_and_can_be_helped(post: RequestContext) -> None:
    """Its address is ours: a retry brings it to the inbox, never to the relay."""
    sent = await send(post, to=["bo@postroom.localhost"])
    listed = await call(post, list_outbox, {"status": "failed"})
    bo = await new_inbox(post, "bo")
    async with relaying() as relay, working(post, relay):
        again = await call(post, retry_message, {"message_id": sent.message_id})

        async def has_arrived() -> bool:
            return await statuses(post, sent) == {"bo@postroom.localhost": "delivered"}

        await until(post, has_arrived)

    assert ("failed", "queued", []) == (sent.status, again.status, relay.mails)
    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert 1 == (await post.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=bo.id))).total
    assert ["failed", "queued", "delivered"] == [
        kind.removeprefix("message.") for kind in await types(post, sent)
    ]


async def test_what_was_captured_leaves_when_there_is_a_relay(post: RequestContext) -> None:
    sent = await send(replace(post, has_relay=False))
    async with relaying() as relay, working(post, relay):
        await call(post, retry_message, {"message_id": sent.message_id})
        await until(post, lambda: are_out(post, [sent]))

    assert ("captured", 1) == (sent.status, len(relay.mails))


async def test_a_paused_outbox_holds_mail_back_until_it_is_resumed(post: RequestContext) -> None:
    async with relaying() as relay, working(post, relay):
        state = await call(post, pause_outbox, {})
        sent = await send(post, wait_s=1)
        before = len(relay.mails)
        await call(post, resume_outbox, {})

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert (True, "queued", 0) == (state.is_paused, sent.status, before)


async def test_a_pause_is_said_wherever_mail_waits_for_its_end(post: RequestContext) -> None:
    await call(post, pause_outbox, {})
    sent = await send(post)
    failed = await send(post, to=["gone@postroom.localhost"])
    again = await call(post, retry_message, {"message_id": sent.message_id})
    held = {e.message_id: e.is_paused for e in (await call(post, list_outbox, {})).results}
    await call(post, resume_outbox, {})
    free = [entry.is_paused for entry in (await call(post, list_outbox, {})).results]

    assert ((PAUSED,), (PAUSED,), None) == (sent.warnings, again.warnings, failed.warnings)
    assert {sent.message_id: True, failed.message_id: False} == held
    assert [False, False] == free


async def test_mail_that_is_dated_for_later_is_not_hurried(
    post: RequestContext, clock: Clock
) -> None:
    at = (clock() + timedelta(days=1)).isoformat()
    draft = await call(post, create_draft, {**OUTGOING, "send_at": at})
    sent = await call(post, send_draft, {"draft_id": draft.id})
    with pytest.raises(Conflict, match=r"2026-06-02.*cancel_message"):
        await call(post, retry_message, {"message_id": sent.message_id})
    clock.now += timedelta(days=1)

    assert "queued" == (await call(post, retry_message, {"message_id": sent.message_id})).status


async def test_what_waits_can_be_cancelled(post: RequestContext) -> None:
    sent = await send(post)
    listed = await call(post, list_outbox, {"status": "queued"})
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})

    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert ("failed", "cancelled before it was sent") == (
        cancelled.status,
        cancelled.recipients[0].detail,
    )
    with pytest.raises(NotFound, match="list_drafts"):
        await call(post, cancel_message, {"message_id": sent.message_id})
