"""Mail is in Outbox until it is sent, then in Sent; every list shows its status."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput
from postroom.model.mail.message import MessageRow
from postroom.model.page import Slice
from postroom.operations.mail.message_changes import delete_message, move_message
from postroom.operations.mail.messages import get_message, search_messages
from postroom.operations.mail.threads import get_thread
from postroom.operations.outgoing.drafts import get_draft, list_drafts, send_draft
from postroom.operations.outgoing.outbox import cancel_message, list_outbox, retry_message
from postroom.operations.rules import create_rule
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import relay_worker, send, until
from tests.servers.relay import CUT, relaying

ME = {"from": "me@postroom.localhost"}


async def rows(outbox_ctx: RequestContext, mailbox: str) -> list[MessageRow]:
    return list((await call(outbox_ctx, search_messages, {"mailbox": mailbox})).results)


async def place_of(
    outbox_ctx: RequestContext, message_id: str
) -> tuple[tuple[str, ...], str | None]:
    message = await call(outbox_ctx, get_message, {"message_id": message_id})
    return message.mailboxes, message.status


@pytest.mark.parametrize(
    ("script", "status", "mailbox"),
    [
        ({}, "sent", "Sent"),
        ({"RCPT": b"550 no such user"}, "failed", "Outbox"),
        ({"RCPT": b"450 later"}, "queued", "Outbox"),
        ({"DOT": CUT}, "unknown", "Sent"),
    ],
)
async def test_mail_moves_to_sent_when_it_is_sent(
    outbox_ctx: RequestContext, script: Any, status: str, mailbox: str
) -> None:
    before = await send(outbox_ctx)
    waiting = [row.id for row in await rows(outbox_ctx, "Outbox")]
    async with relaying(script) as relay, relay_worker(outbox_ctx, relay):

        async def is_settled() -> bool:
            entries = await call(outbox_ctx, list_outbox, {"status": status})
            return any(e.attempts for e in entries.results)

        await until(outbox_ctx, is_settled)

    assert [before.message_id] == waiting
    assert ((mailbox,), status) == await place_of(outbox_ctx, before.message_id)
    assert [(before.message_id, status)] == [
        (r.id, r.status) for r in await rows(outbox_ctx, mailbox)
    ]
    assert [] == await rows(outbox_ctx, {"Sent": "Outbox", "Outbox": "Sent"}[mailbox])


@pytest.mark.parametrize(
    ("to", "status", "mailbox"),
    [
        ("bo@postroom.localhost", "delivered", "Sent"),
        ("gone@postroom.localhost", "failed", "Outbox"),
        ("ana@example.com", "queued", "Outbox"),
    ],
)
async def test_new_mail_is_in_the_right_mailbox(
    outbox_ctx: RequestContext, to: str, status: str, mailbox: str
) -> None:
    await new_inbox(outbox_ctx, "bo")
    sent = await send(outbox_ctx, to=[to], **ME)

    assert ((mailbox,), status) == await place_of(outbox_ctx, sent.message_id)


async def test_partly_delivered_mail_is_in_sent(outbox_ctx: RequestContext) -> None:
    await new_inbox(outbox_ctx, "bo")
    sent = await send(outbox_ctx, to=["bo@postroom.localhost", "ana@example.com"], **ME)

    assert (("Sent",), "queued") == await place_of(outbox_ctx, sent.message_id)


async def test_a_retry_moves_mail_back_to_outbox(outbox_ctx: RequestContext) -> None:
    sent = await send(outbox_ctx, to=["gone@postroom.localhost"])
    await new_inbox(outbox_ctx, "gone")
    await call(outbox_ctx, retry_message, {"message_id": sent.message_id})
    waiting = await place_of(outbox_ctx, sent.message_id)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):

        async def has_arrived() -> bool:
            return (await place_of(outbox_ctx, sent.message_id))[1] == "delivered"

        await until(outbox_ctx, has_arrived)

    assert (("Outbox",), "queued") == waiting
    assert (("Sent",), "delivered") == await place_of(outbox_ctx, sent.message_id)


async def test_rows_threads_and_outbox_entries_show_the_time_of_sending(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    at = clock().replace(microsecond=0) + timedelta(days=3)
    sent = await send(outbox_ctx, send_at=at.isoformat())
    (row,) = await rows(outbox_ctx, "Outbox")
    thread = await call(outbox_ctx, get_thread, {"thread_id": sent.thread_id})
    message = await call(outbox_ctx, get_message, {"message_id": sent.message_id})
    (entry,) = (await call(outbox_ctx, list_outbox, {})).results

    shapes = (sent, row, thread.messages[0], message, entry)
    assert {("scheduled", at)} == {(shape.status, shape.send_at) for shape in shapes}
    clock.now = at + timedelta(minutes=1)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):

        async def is_out() -> bool:
            return bool(await rows(outbox_ctx, "Sent"))

        await until(outbox_ctx, is_out)

    (row,) = await rows(outbox_ctx, "Sent")
    assert ("sent", None, 1) == (row.status, row.send_at, len(relay.mails))


async def test_inbound_rows_have_no_status(outbox_ctx: RequestContext) -> None:
    await deliver(outbox_ctx, await new_inbox(outbox_ctx, "bo"), mail("Hello"))
    (row,) = (await call(outbox_ctx, search_messages, {"q": "Hello"})).results

    assert (None, None) == (row.status, row.send_at)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [(move_message, {"destination": "Archive"}), (delete_message, {})],
)
async def test_pending_mail_cannot_be_moved(
    outbox_ctx: RequestContext, operation: Any, arguments: dict[str, Any]
) -> None:
    sent = await send(outbox_ctx)
    result = await call(outbox_ctx, operation, {"message_id": sent.message_id, **arguments})

    assert [Conflict.code] == [failure.code for failure in result.failed]
    assert "cancel_message" in result.failed[0].message
    assert ("Outbox",) == (await place_of(outbox_ctx, sent.message_id))[0]


async def test_failed_mail_can_be_moved(outbox_ctx: RequestContext) -> None:
    sent = await send(outbox_ctx, to=["gone@postroom.localhost"])
    await call(outbox_ctx, delete_message, {"message_id": sent.message_id})

    assert ("Trash",) == (await place_of(outbox_ctx, sent.message_id))[0]


@pytest.mark.parametrize("name", ["Outbox", "outbox"])
async def test_nothing_is_moved_into_outbox(outbox_ctx: RequestContext, name: str) -> None:
    added = await deliver(outbox_ctx, await new_inbox(outbox_ctx, "bo"), mail("Hello"))
    arguments = {"message_id": added.message_id, "destination": name}
    result = await call(outbox_ctx, move_message, arguments)

    assert [InvalidInput.code] == [failure.code for failure in result.failed]


async def test_a_plan_skips_pending_mail(outbox_ctx: RequestContext) -> None:
    await send(outbox_ctx, subject="Hello from me")
    await deliver(outbox_ctx, await new_inbox(outbox_ctx, "bo"), mail("Hello from Ana"))
    rule = "name: tidy\nwhen:\n  subject: {contains: Hello}\nthen:\n  - move: Archive\n"
    plan = await call(outbox_ctx, create_rule, {"rule_yaml": rule, "dry_run": True})

    assert ["Hello from Ana"] == [found["subject"] for found in plan.matched_messages]


CONTENT = {
    "to": ["Ana Lee <ana@example.com>"],
    "cc": ["bo@example.com"],
    "bcc": ["cy@example.com"],
    "subject": "Grüße",
    "body_text": "Good morning.\n\n-- \nnot a signature",
    "body_html": "<p>Good morning.</p>",
    "attachments": [{"filename": "a.txt", "content_type": "text/plain", "content": "SGk="}],
    "reply_to": ["team@example.com"],
    "headers": [{"name": "X-Campaign", "value": "spring"}],
}


async def test_a_cancelled_mail_is_a_draft_with_its_content(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    at = clock().replace(microsecond=0) + timedelta(hours=1)
    sender = {"from": "Ana <me@postroom.localhost>"}
    sent = await send(outbox_ctx, **CONTENT, **sender, send_at=at.isoformat())
    cancelled = await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})
    (listed,) = (await call(outbox_ctx, list_drafts, {})).results
    draft = await call(outbox_ctx, get_draft, {"draft_id": cancelled.draft_id or ""})

    assert draft == listed
    assert [("a.txt", "text/plain", 2)] == [
        (file.filename, file.content_type, file.size) for file in draft.attachments
    ]
    assert (at, sender["from"]) == (draft.send_at, draft.from_)
    for name in ("to", "cc", "bcc", "reply_to"):
        assert tuple(CONTENT[name]) == getattr(draft, name)
    for name in ("subject", "body_text", "body_html"):
        assert CONTENT[name] == getattr(draft, name)
    assert [("X-Campaign", "spring")] == [(h.name, h.value) for h in draft.headers]
    assert [] == await rows(outbox_ctx, "*")


async def test_a_cancelled_mail_can_be_sent_as_it_was(outbox_ctx: RequestContext) -> None:
    sent = await send(outbox_ctx, **CONTENT)
    before = await call(
        outbox_ctx, get_message, {"message_id": sent.message_id, "include_html": True}
    )
    cancelled = await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})
    again = await call(outbox_ctx, send_draft, {"draft_id": cancelled.draft_id or ""})
    after = await call(
        outbox_ctx, get_message, {"message_id": again.message_id, "include_html": True}
    )

    for name in ("subject", "text", "html", "addresses", "bcc_addresses", "recipients"):
        assert getattr(before, name) == getattr(after, name)
    assert [(a.filename, a.sha256) for a in before.attachments] == [
        (a.filename, a.sha256) for a in after.attachments
    ]


async def test_a_cancelled_reply_stays_a_reply(outbox_ctx: RequestContext) -> None:
    (me,) = (await outbox_ctx.store.inboxes(outbox_ctx.visible, Slice())).rows
    asked = await deliver(
        outbox_ctx, me, mail("Question", message_id="<q@example.com>", to=me.address)
    )
    sent = await send(outbox_ctx, subject="Question", in_reply_to=asked.message_id)
    cancelled = await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})
    again = await call(outbox_ctx, send_draft, {"draft_id": cancelled.draft_id or ""})
    message = await call(outbox_ctx, get_message, {"message_id": again.message_id})

    assert (asked.thread_id, "Re: Question") == (message.thread_id, message.subject)
    assert "q@example.com" == message.in_reply_to


async def test_partly_delivered_mail_is_cancelled_for_the_others_only(
    outbox_ctx: RequestContext,
) -> None:
    await new_inbox(outbox_ctx, "bo")
    sent = await send(outbox_ctx, to=["bo@postroom.localhost", "ana@example.com"], **ME)
    cancelled = await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})

    assert (None, "failed") == (cancelled.draft_id, cancelled.status)
    assert "bo@postroom.localhost" in (cancelled.warnings or ("",))[0]
    assert {"bo@postroom.localhost": "delivered", "ana@example.com": "failed"} == {
        r.address: r.status for r in cancelled.recipients
    }
    assert ("Sent",) == (await place_of(outbox_ctx, sent.message_id))[0]


async def test_a_mail_is_either_sent_or_cancelled(outbox_ctx: RequestContext) -> None:
    """Many mails, cancelled while a worker sends them."""
    sent = [await send(outbox_ctx, subject=f"Mail {n}") for n in range(12)]
    async with relaying() as relay, relay_worker(outbox_ctx, relay) as worker:
        asked = (call(outbox_ctx, cancel_message, {"message_id": one.message_id}) for one in sent)
        told = await asyncio.gather(*asked, return_exceptions=True)
        await worker.finish(20)

    drafts = {d.subject for d in (await call(outbox_ctx, list_drafts, {})).results}
    out = {m.data.decode().partition("Subject: ")[2].partition("\r\n")[0] for m in relay.mails}
    assert {f"Mail {n}" for n in range(12)} == drafts | out
    assert set() == drafts & out
    assert len(drafts) == sum(not isinstance(answer, Exception) for answer in told)
    assert all(isinstance(a, Conflict) for a in told if isinstance(a, Exception))
