"""Automatic answers go to people, once a day, and never to machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing.sending import reply_to_message, send_message
from tests.mails import deliver, mail, new_inbox

OUTGOING = {"to": ["bo@postroom.localhost"], "subject": "Plan", "body_text": "Shall we?"}


async def test_machines_do_not_answer_each_other(ctx: RequestContext) -> None:
    one, two = await new_inbox(ctx, "one"), await new_inbox(ctx, "two")
    first = await call(
        ctx,
        send_message,
        {"inbox_id": one.id, "to": [two.address], "subject": "Hi", "body_text": "x"},
    )
    answers, inbox, stopped = 0, two, ""
    for _ in range(10):
        newest = (
            await ctx.store.messages(
                MessageQuery(visible=EVERYTHING, inbox_id=inbox.id, mailbox="Inbox")
            )
        ).rows[0]
        arguments = {"message_id": newest.id, "body_text": f"auto {answers}", "automatic": True}
        try:
            await call(ctx, reply_to_message, arguments)
        except Conflict as error:
            stopped = str(error)
            break
        answers, inbox = answers + 1, one if inbox is two else two

    assert first.status == "delivered"
    assert (1, True) == (answers, "sent automatically" in stopped)


async def test_a_person_gets_one_automatic_answer_a_day(ctx: RequestContext, inbox: Inbox) -> None:
    root = await deliver(ctx, inbox, mail("Help", message_id="<r@example.com>"))
    await call(
        ctx, reply_to_message, {"message_id": root.message_id, "body_text": "1", "automatic": True}
    )
    more = await deliver(ctx, inbox, mail("Re: Help", in_reply_to="<r@example.com>"))

    with pytest.raises(Conflict, match="within a day"):
        await call(
            ctx,
            reply_to_message,
            {"message_id": more.message_id, "body_text": "2", "automatic": True},
        )
    by_hand = await call(ctx, reply_to_message, {"message_id": more.message_id, "body_text": "3"})
    assert "captured" == by_hand.status


async def _answer(ctx: RequestContext, message_id: str, words: str) -> str:
    """The status of an automatic answer, or the reason why there is none."""
    arguments = {"message_id": message_id, "body_text": words, "automatic": True}
    try:
        return (await call(ctx, reply_to_message, arguments)).status
    except Conflict as error:
        return str(error)


async def test_concurrent_automatic_answers_send_one_mail(
    ctx: RequestContext, inbox: Inbox
) -> None:
    root = await deliver(ctx, inbox, mail("Help", sender="Ana@Example.com", message_id="<r@x.org>"))
    answers = await asyncio.gather(*(_answer(ctx, root.message_id, f"{n}") for n in range(8)))
    more = await deliver(
        ctx, inbox, mail("Re: Help", sender="ana@example.com", in_reply_to="<r@x.org>")
    )

    assert 1 == answers.count("captured")
    assert "within a day" in await _answer(ctx, more.message_id, "again")


async def test_the_next_day_there_may_be_another_automatic_answer(
    app: App, ctx: RequestContext
) -> None:
    inbox = await new_inbox(ctx)
    root = await deliver(ctx, inbox, mail("Help", message_id="<r@x.org>"))
    first = await _answer(ctx, root.message_id, "1")
    days = replace(app.services, clock=lambda: ctx.clock() + timedelta(days=1, minutes=1))

    assert (first, "captured") == (
        "captured",
        await _answer(replace(app, services=days).context(OWNER), root.message_id, "2"),
    )


async def test_our_own_mail_that_comes_back_is_not_answered(
    ctx: RequestContext, inbox: Inbox
) -> None:
    sent = await call(ctx, send_message, {**OUTGOING, "to": ["ana@example.com"]})
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    back = await deliver(ctx, inbox, mail("Back", message_id=f"<{message.internet_message_id}>"))

    assert "sent automatically" in await _answer(ctx, back.message_id, "x")
