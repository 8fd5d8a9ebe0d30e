"""Drafts are stored, changed and sent once; scheduled mail is sent at its time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput, MailError, NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.mail.sending import Draft
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.operations.outgoing.drafts import (
    create_draft,
    delete_draft,
    get_draft,
    list_drafts,
    send_draft,
    update_draft,
)
from postroom.operations.outgoing.outbox import cancel_message, retry_message
from postroom.operations.outgoing.sending import forward_message, send_message
from postroom.pipeline.outbox import Outbox
from tests.callers import a_caller
from tests.mails import accepted_by_relay, deliver, mail, new_inbox

OUTGOING = {"to": ["bo@postroom.localhost"], "subject": "Plan", "body_text": "Shall we?"}


async def total(ctx: RequestContext) -> int:
    return (await ctx.store.messages(MessageQuery(visible=EVERYTHING))).total


async def test_a_draft_is_no_message_until_it_is_sent(ctx: RequestContext, inbox: Inbox) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    before = await total(ctx)
    first = await call(ctx, send_draft, {"draft_id": draft.id})
    again = await call(ctx, send_draft, {"draft_id": draft.id})

    assert 0 == before
    assert ("delivered", first.message_id) == (first.status, again.message_id)
    assert 2 == await total(ctx)
    assert 0 == (await call(ctx, list_drafts, {})).total


async def test_a_draft_is_sent_once_by_any_caller(
    app: App, ctx: RequestContext, inbox: Inbox
) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    other = app.context(a_caller("key_1"))
    callers = [ctx, other] * 5
    answers = await asyncio.gather(
        *(call(caller, send_draft, {"draft_id": draft.id}) for caller in callers)
    )
    days = replace(app.services, clock=lambda: ctx.clock() + timedelta(days=30))
    later = replace(app, services=days).context(OWNER)
    await call(later, create_draft, {**OUTGOING, "subject": "Another"})
    late = await call(later, send_draft, {"draft_id": draft.id})

    assert {late.message_id} == {answer.message_id for answer in answers}
    assert 2 == await total(ctx)
    with pytest.raises(NotFound, match=late.message_id):
        await call(ctx, update_draft, {"draft_id": draft.id, "subject": "x"})
    with pytest.raises(NotFound, match=late.message_id):
        await call(ctx, delete_draft, {"draft_id": draft.id})


async def test_a_key_sends_a_draft_once_even_if_it_is_a_draft_again(
    ctx: RequestContext, inbox: Inbox
) -> None:
    at = (ctx.clock() + timedelta(hours=1)).isoformat()
    draft = await call(ctx, create_draft, {**OUTGOING, "send_at": at})
    other = await call(ctx, create_draft, {**OUTGOING, "subject": "Another"})
    asked = {"draft_id": draft.id, "idempotency_key": "k"}
    first = await call(ctx, send_draft, asked)
    await call(ctx, cancel_message, {"message_id": first.message_id})
    late = await call(ctx, send_draft, asked)
    with pytest.raises(Conflict, match="used for another mail"):
        await call(ctx, send_draft, {**asked, "draft_id": other.id})
    with pytest.raises(Conflict, match="used for another mail"):
        await call(ctx, send_message, {**OUTGOING, "idempotency_key": "k"})

    assert (first.message_id, "failed") == (late.message_id, late.status)
    assert 0 == await total(ctx)
    new = await call(ctx, send_draft, {**asked, "idempotency_key": "k2"})
    assert first.message_id != new.message_id


async def test_sending_a_draft_and_marking_it_are_one_transaction(
    ctx: RequestContext, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process has sent the draft and marked it as sent, or neither."""
    draft = await call(ctx, create_draft, OUTGOING)

    def killed(*_: object) -> None:
        raise MailError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("postroom.store.sql.outbox.sends.mark_sent", killed)
        with pytest.raises(MailError, match="killed"):
            await call(ctx, send_draft, {"draft_id": draft.id})

    assert (1, 0) == ((await call(ctx, list_drafts, {})).total, await total(ctx))


@pytest.mark.parametrize("name", ["idempotency_key", "wait_s", "allow_duplicate"])
async def test_a_draft_has_no_delivery_status(ctx: RequestContext, inbox: Inbox, name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        await call(ctx, create_draft, {**OUTGOING, name: 1})


async def test_a_draft_that_an_older_version_sent_is_not_sent_again(
    app: App, ctx: RequestContext, inbox: Inbox
) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    database = apsw.Connection(str(app.settings.data_dir / "postroom.db"))
    database.execute("UPDATE drafts SET sent_at = updated_at")
    database.close()

    with pytest.raises(Conflict):
        await call(ctx, send_draft, {"draft_id": draft.id})

    assert 0 == await total(ctx)


async def test_null_removes_a_field_of_a_draft(ctx: RequestContext, inbox: Inbox) -> None:
    more = {"body_html": "<p>Shall we?</p>", "cc": ["cy@example.com"]}
    draft = await call(ctx, create_draft, {**OUTGOING, **more})
    nothing = {"body_text": None, "cc": None}
    changed = await call(ctx, update_draft, {"draft_id": draft.id, **nothing})

    assert (None, "<p>Shall we?</p>", ()) == (changed.body_text, changed.body_html, changed.cc)
    with pytest.raises(InvalidInput, match="body_text"):
        await call(ctx, update_draft, {"draft_id": draft.id, "body_html": None})
    with pytest.raises(InvalidInput, match="to"):
        await call(ctx, update_draft, {"draft_id": draft.id, "to": None})


@pytest.mark.parametrize("named", ["in_reply_to", "thread_id"])
async def test_a_draft_that_answers_a_deleted_mail_can_be_corrected(
    ctx: RequestContext, inbox: Inbox, named: str
) -> None:
    await new_inbox(ctx, "other")
    added = await deliver(ctx, inbox, mail())
    answered = added.message_id if named == "in_reply_to" else added.thread_id
    draft = await call(ctx, create_draft, {**OUTGOING, "inbox_id": inbox.id, named: answered})
    await ctx.store.remove_message(added.message_id, EVERYTHING)
    for record, given in ((send_draft, {}), (update_draft, {"subject": "New"})):
        with pytest.raises(NotFound, match=f"{answered}.*in_reply_to.*null"):
            await call(ctx, record, {"draft_id": draft.id, **given})
    mended = await call(ctx, update_draft, {"draft_id": draft.id, named: None, "subject": "New"})
    sent = await call(ctx, send_draft, {"draft_id": draft.id})

    assert ("New", None, None) == (mended.subject, mended.in_reply_to, mended.thread_id)
    assert "delivered" == sent.status


async def test_a_draft_can_answer_another_mail_and_stays_in_its_inbox(
    ctx: RequestContext, inbox: Inbox
) -> None:
    other = await new_inbox(ctx, "other")
    first, second = [await deliver(ctx, inbox, mail(f"Mail {n}")) for n in range(2)]
    elsewhere = await deliver(ctx, other, mail("Elsewhere"))
    draft = await call(ctx, create_draft, {**OUTGOING, "in_reply_to": first.message_id})
    asked = {"draft_id": draft.id}
    moved = await call(ctx, update_draft, {**asked, "thread_id": second.thread_id})
    with pytest.raises(NotFound, match=inbox.id):
        await call(ctx, update_draft, {**asked, "in_reply_to": elsewhere.message_id})
    sent = await call(ctx, send_draft, asked)

    assert (None, second.thread_id) == (moved.in_reply_to, moved.thread_id)
    assert second.thread_id == sent.thread_id


async def test_a_scheduled_draft_that_is_cancelled_is_a_draft_again(
    ctx: RequestContext, inbox: Inbox
) -> None:
    at = (ctx.clock() + timedelta(hours=1)).isoformat()
    draft = await call(ctx, create_draft, {**OUTGOING, "send_at": at})
    first = await call(ctx, send_draft, {"draft_id": draft.id})
    with pytest.raises(NotFound, match="cancel_message"):
        await call(ctx, update_draft, {"draft_id": draft.id, "subject": "New plan"})
    await call(ctx, cancel_message, {"message_id": first.message_id})
    changed = await call(ctx, update_draft, {"draft_id": draft.id, "subject": "New plan"})
    second = await call(ctx, send_draft, {"draft_id": draft.id})

    assert ("New plan", "scheduled") == (changed.subject, second.status)
    assert first.message_id != second.message_id


async def test_a_cancelled_draft_cannot_also_be_retried(ctx: RequestContext, inbox: Inbox) -> None:
    at = (ctx.clock() + timedelta(hours=1)).isoformat()
    draft = await call(ctx, create_draft, {**OUTGOING, "send_at": at})
    first = await call(ctx, send_draft, {"draft_id": draft.id})
    cancelled = await call(ctx, cancel_message, {"message_id": first.message_id})

    assert draft.id == cancelled.draft_id
    for again in (retry_message, cancel_message):
        with pytest.raises(NotFound, match=first.message_id):
            await call(ctx, again, {"message_id": first.message_id})


async def test_concurrent_changes_conflict(ctx: RequestContext, inbox: Inbox) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    wanted: list[dict[str, str]] = [{"subject": "New plan"}, {"body_text": "Or not?"}]
    told = await asyncio.gather(
        *(call(ctx, update_draft, {"draft_id": draft.id, **one}) for one in wanted),
        return_exceptions=True,
    )
    read = await call(ctx, get_draft, {"draft_id": draft.id})
    made = [one for one, answer in zip(wanted, told, strict=True) if isinstance(answer, Draft)]

    assert made
    assert all(getattr(read, name) == value for one in made for name, value in one.items())
    assert {Conflict, Draft} >= {type(answer) for answer in told}


async def test_a_deleted_draft_does_not_come_back(ctx: RequestContext, inbox: Inbox) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    change = {"draft_id": draft.id, "subject": "New plan"}
    _, removed = await asyncio.gather(
        call(ctx, update_draft, change),
        call(ctx, delete_draft, {"draft_id": draft.id}),
        return_exceptions=True,
    )

    assert removed is None
    with pytest.raises(NotFound):
        await call(ctx, get_draft, {"draft_id": draft.id})


async def test_a_draft_is_sent_in_the_version_that_was_named(
    ctx: RequestContext, inbox: Inbox
) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    change = {"draft_id": draft.id, "subject": "New plan"}
    changed, _ = await asyncio.gather(
        call(ctx, update_draft, change),
        call(ctx, send_draft, {"draft_id": draft.id}),
        return_exceptions=True,
    )
    sent = await call(ctx, send_draft, {"draft_id": draft.id})
    message = await ctx.store.message(sent.message_id, EVERYTHING)

    assert message is not None
    assert ("New plan" if isinstance(changed, Draft) else "Plan") == message.subject


async def test_a_sent_draft_names_its_message(ctx: RequestContext, inbox: Inbox) -> None:
    draft = await call(ctx, create_draft, {**OUTGOING, "to": ["ana@example.com"]})
    sent = await call(ctx, send_draft, {"draft_id": draft.id})
    await accepted_by_relay(ctx, sent.message_id, "ana@example.com")
    after = await call(ctx, send_draft, {"draft_id": draft.id})
    await ctx.store.remove_message(sent.message_id, EVERYTHING)

    assert ("captured", "sent") == (sent.status, after.status)
    with pytest.raises(Conflict, match="which was removed"):
        await call(ctx, send_draft, {"draft_id": draft.id})


async def test_a_draft_can_be_changed_and_deleted(ctx: RequestContext, inbox: Inbox) -> None:
    file = {"filename": "a.txt", "content": "SGk="}
    draft = await call(ctx, create_draft, {**OUTGOING, "attachments": [file]})
    changed = await call(ctx, update_draft, {"draft_id": draft.id, "subject": "New plan"})
    read = await call(ctx, get_draft, {"draft_id": draft.id})
    await call(ctx, delete_draft, {"draft_id": draft.id})

    assert ("New plan", "Shall we?", 2) == (
        changed.subject,
        changed.body_text,
        changed.attachments[0].size,
    )
    assert changed == read
    with pytest.raises(NotFound):
        await call(ctx, send_draft, {"draft_id": draft.id})


@pytest.mark.parametrize(
    "changes",
    [
        {"to": ["nobody"]},
        {"subject": "a\nb"},
        {"attachments": [{"filename": "x", "content": "!"}]},
        {"send_at": "tomorrow"},
        {"in_reply_to": "msg_none"},
    ],
)
async def test_a_failed_mail_is_not_a_draft(
    ctx: RequestContext, inbox: Inbox, changes: dict[str, Any]
) -> None:
    with pytest.raises((InvalidInput, NotFound)):
        await call(ctx, create_draft, {**OUTGOING, **changes})

    assert 0 == (await call(ctx, list_drafts, {})).total


async def test_drafts_of_other_inboxes_do_not_exist(
    app: App, ctx: RequestContext, inbox: Inbox
) -> None:
    draft = await call(ctx, create_draft, OUTGOING)
    other_caller = app.context(a_caller("key_1", inboxes=only("inb_else")))

    assert 0 == (await call(other_caller, list_drafts, {})).total
    with pytest.raises(NotFound):
        await call(other_caller, send_draft, {"draft_id": draft.id})


@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=300)])
async def test_a_scheduled_mail_is_sent_once_at_its_time(app: App, late: timedelta) -> None:
    now = datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)
    services = replace(app.services, clock=lambda: now)
    ctx = replace(app, services=services).context(OWNER)
    await new_inbox(ctx)
    draft = await call(ctx, create_draft, {**OUTGOING, "send_at": "2026-03-29T02:00:00Z"})
    sent = await call(ctx, send_draft, {"draft_id": draft.id})
    first = asyncio.create_task(Outbox(ctx, None).run())
    second = asyncio.create_task(Outbox(ctx, None).run())
    position = ctx.store.notifier.position("events")
    await ctx.store.pause_outbox(paused=False)
    early = await total(ctx)
    now = datetime(2026, 3, 29, 2, 0, 0, tzinfo=UTC) + late
    await ctx.store.pause_outbox(paused=False)
    await asyncio.wait_for(ctx.store.notifier.wait("events", position), 10)
    for task in (first, second):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    types = [e.type for e in (await ctx.store.events(EventQuery(visible=EVERYTHING))).rows]
    assert ("scheduled", 1) == (sent.status, early)
    assert ["message.scheduled", "message.received", "message.delivered"] == types


async def test_a_scheduled_mail_can_be_cancelled(ctx: RequestContext, inbox: Inbox) -> None:
    at = (ctx.clock() + timedelta(hours=1)).isoformat()
    draft = await call(ctx, create_draft, {**OUTGOING, "send_at": at})
    sent = await call(ctx, send_draft, {"draft_id": draft.id})

    cancelled = await call(ctx, cancel_message, {"message_id": sent.message_id})

    assert ("failed", draft.id) == (cancelled.status, cancelled.draft_id)


async def test_a_forward_refers_to_the_forwarded_mail(ctx: RequestContext, inbox: Inbox) -> None:
    root = await deliver(ctx, inbox, mail("Help", message_id="<r@example.com>"))
    arguments = {"message_id": root.message_id, "to": ["ana@example.com"]}
    sent = await call(ctx, forward_message, arguments)
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    original = await ctx.store.message(root.message_id, EVERYTHING)

    assert message is not None
    assert original is not None
    assert ("r@example.com", ("r@example.com",)) == (message.in_reply_to, message.references)
    assert ("Fwd: Help", root.thread_id) == (message.subject, message.thread_id)
    assert "answered" not in original.flags
