"""Mail is in Outbox until it leaves, then in Sent; every list says what became of it."""

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
from tests.pipeline.posting import send, until, working
from tests.servers.relay import CUT, relaying

ME = {"from": "me@postroom.localhost"}


async def rows(post: RequestContext, mailbox: str) -> list[MessageRow]:
    return list((await call(post, search_messages, {"mailbox": mailbox})).results)


async def place_of(post: RequestContext, message_id: str) -> tuple[tuple[str, ...], str | None]:
    message = await call(post, get_message, {"message_id": message_id})
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
async def test_mail_moves_to_sent_when_it_leaves(
    post: RequestContext, script: Any, status: str, mailbox: str
) -> None:
    before = await send(post)
    waiting = [row.id for row in await rows(post, "Outbox")]
    async with relaying(script) as relay, working(post, relay):

        async def is_settled() -> bool:
            entries = await call(post, list_outbox, {"status": status})
            return any(e.attempts for e in entries.results)

        await until(post, is_settled)

    assert [before.message_id] == waiting
    assert ((mailbox,), status) == await place_of(post, before.message_id)
    assert [(before.message_id, status)] == [(r.id, r.status) for r in await rows(post, mailbox)]
    assert [] == await rows(post, {"Sent": "Outbox", "Outbox": "Sent"}[mailbox])


@pytest.mark.parametrize(
    ("to", "status", "mailbox"),
    [
        ("bo@postroom.localhost", "delivered", "Sent"),
        ("gone@postroom.localhost", "failed", "Outbox"),
        ("ana@example.com", "queued", "Outbox"),
    ],
)
async def test_mail_begins_where_it_belongs(
    post: RequestContext, to: str, status: str, mailbox: str
) -> None:
    await new_inbox(post, "bo")
    sent = await send(post, to=[to], **ME)

    assert ((mailbox,), status) == await place_of(post, sent.message_id)


async def test_mail_that_some_have_is_in_sent_though_others_wait(post: RequestContext) -> None:
    await new_inbox(post, "bo")
    sent = await send(post, to=["bo@postroom.localhost", "ana@example.com"], **ME)

    assert (("Sent",), "queued") == await place_of(post, sent.message_id)


async def test_a_retry_puts_mail_back_until_it_leaves(post: RequestContext) -> None:
    sent = await send(post, to=["gone@postroom.localhost"])
    await new_inbox(post, "gone")
    await call(post, retry_message, {"message_id": sent.message_id})
    waiting = await place_of(post, sent.message_id)
    async with relaying() as relay, working(post, relay):

        async def has_arrived() -> bool:
            return (await place_of(post, sent.message_id))[1] == "delivered"

        await until(post, has_arrived)

    assert (("Outbox",), "queued") == waiting
    assert (("Sent",), "delivered") == await place_of(post, sent.message_id)


async def test_a_row_a_thread_and_an_entry_say_when_it_goes(
    post: RequestContext, clock: Clock
) -> None:
    at = clock().replace(microsecond=0) + timedelta(days=3)
    sent = await send(post, send_at=at.isoformat())
    (row,) = await rows(post, "Outbox")
    thread = await call(post, get_thread, {"thread_id": sent.thread_id})
    message = await call(post, get_message, {"message_id": sent.message_id})
    (entry,) = (await call(post, list_outbox, {})).results

    shapes = (sent, row, thread.messages[0], message, entry)
    assert {("scheduled", at)} == {(shape.status, shape.send_at) for shape in shapes}
    clock.now = at + timedelta(minutes=1)
    async with relaying() as relay, working(post, relay):

        async def is_out() -> bool:
            return bool(await rows(post, "Sent"))

        await until(post, is_out)

    (row,) = await rows(post, "Sent")
    assert ("sent", None, 1) == (row.status, row.send_at, len(relay.mails))


async def test_inbound_rows_have_no_status(post: RequestContext) -> None:
    await deliver(post, await new_inbox(post, "bo"), mail("Hello"))
    (row,) = (await call(post, search_messages, {"q": "Hello"})).results

    assert (None, None) == (row.status, row.send_at)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [(move_message, {"destination": "Archive"}), (delete_message, {})],
)
async def test_mail_that_waits_is_not_moved_away(
    post: RequestContext, operation: Any, arguments: dict[str, Any]
) -> None:
    sent = await send(post)
    result = await call(post, operation, {"message_id": sent.message_id, **arguments})

    assert [Conflict.code] == [failure.code for failure in result.failed]
    assert "cancel_message" in result.failed[0].message
    assert ("Outbox",) == (await place_of(post, sent.message_id))[0]


async def test_mail_that_failed_can_be_moved_away(post: RequestContext) -> None:
    sent = await send(post, to=["gone@postroom.localhost"])
    await call(post, delete_message, {"message_id": sent.message_id})

    assert ("Trash",) == (await place_of(post, sent.message_id))[0]


@pytest.mark.parametrize("name", ["Outbox", "outbox"])
async def test_nothing_is_moved_into_outbox(post: RequestContext, name: str) -> None:
    added = await deliver(post, await new_inbox(post, "bo"), mail("Hello"))
    arguments = {"message_id": added.message_id, "destination": name}
    result = await call(post, move_message, arguments)

    assert [InvalidInput.code] == [failure.code for failure in result.failed]


async def test_a_plan_leaves_mail_alone_that_waits(post: RequestContext) -> None:
    await send(post, subject="Hello from me")
    await deliver(post, await new_inbox(post, "bo"), mail("Hello from Ana"))
    rule = "name: tidy\nwhen:\n  subject: {contains: Hello}\nthen:\n  - move: Archive\n"
    plan = await call(post, create_rule, {"rule_yaml": rule, "dry_run": True})

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
    post: RequestContext, clock: Clock
) -> None:
    at = clock().replace(microsecond=0) + timedelta(hours=1)
    sender = {"from": "Ana <me@postroom.localhost>"}
    sent = await send(post, **CONTENT, **sender, send_at=at.isoformat())
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})
    (listed,) = (await call(post, list_drafts, {})).results
    draft = await call(post, get_draft, {"draft_id": cancelled.draft_id or ""})

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
    assert [] == await rows(post, "*")


async def test_a_cancelled_mail_can_be_sent_as_it_was(post: RequestContext) -> None:
    sent = await send(post, **CONTENT)
    before = await call(post, get_message, {"message_id": sent.message_id, "include_html": True})
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})
    again = await call(post, send_draft, {"draft_id": cancelled.draft_id or ""})
    after = await call(post, get_message, {"message_id": again.message_id, "include_html": True})

    for name in ("subject", "text", "html", "addresses", "bcc_addresses", "recipients"):
        assert getattr(before, name) == getattr(after, name)
    assert [(a.filename, a.sha256) for a in before.attachments] == [
        (a.filename, a.sha256) for a in after.attachments
    ]


async def test_a_cancelled_reply_stays_a_reply(post: RequestContext) -> None:
    (me,) = (await post.store.inboxes(post.visible, Slice())).rows
    asked = await deliver(post, me, mail("Question", message_id="<q@example.com>", to=me.address))
    sent = await send(post, subject="Question", in_reply_to=asked.message_id)
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})
    again = await call(post, send_draft, {"draft_id": cancelled.draft_id or ""})
    message = await call(post, get_message, {"message_id": again.message_id})

    assert (asked.thread_id, "Re: Question") == (message.thread_id, message.subject)
    assert "q@example.com" == message.in_reply_to


async def test_what_some_have_got_is_cancelled_for_the_others_only(post: RequestContext) -> None:
    await new_inbox(post, "bo")
    sent = await send(post, to=["bo@postroom.localhost", "ana@example.com"], **ME)
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})

    assert (None, "failed") == (cancelled.draft_id, cancelled.status)
    assert "bo@postroom.localhost" in (cancelled.warnings or ("",))[0]
    assert {"bo@postroom.localhost": "delivered", "ana@example.com": "failed"} == {
        r.address: r.status for r in cancelled.recipients
    }
    assert ("Sent",) == (await place_of(post, sent.message_id))[0]


async def test_a_mail_is_sent_or_cancelled_but_never_both(post: RequestContext) -> None:
    """Many mails, cancelled while a worker sends them."""
    sent = [await send(post, subject=f"Mail {n}") for n in range(12)]
    async with relaying() as relay, working(post, relay) as worker:
        asked = (call(post, cancel_message, {"message_id": one.message_id}) for one in sent)
        told = await asyncio.gather(*asked, return_exceptions=True)
        await worker.finish(20)

    drafts = {d.subject for d in (await call(post, list_drafts, {})).results}
    out = {m.data.decode().partition("Subject: ")[2].partition("\r\n")[0] for m in relay.mails}
    assert {f"Mail {n}" for n in range(12)} == drafts | out
    assert set() == drafts & out
    assert len(drafts) == sum(not isinstance(answer, Exception) for answer in told)
    assert all(isinstance(a, Conflict) for a in told if isinstance(a, Exception))
