"""Fill the demo inbox, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.mail.compose import Outgoing, OutgoingAttachment, compose
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.message import Message
from postroom.operations.context import Context
from postroom.operations.inboxes import create_inbox
from postroom.operations.operation import call
from postroom.operations.sending import reply_to_message
from postroom.pipeline.receive import Arrival, receive
from postroom.surfaces.cli.demo.letters import STEPS, Incoming, Reply

if TYPE_CHECKING:
    from postroom.app import App

_DONE = "demo.done"
_USERNAME = "demo"


async def seed_demo(app: App) -> Inbox:
    """Make the demo inbox and its mail, unless that was done before.

    Every byte follows from when the inbox was made, so that a start that was cut short is
    finished by the next one and nothing is there twice.
    """
    ctx = app.context(OWNER)
    inbox: Inbox = await call(
        ctx, create_inbox, {"username": _USERNAME, "name": "Demo", "client_id": "postroom-demo"}
    )
    done = app.settings.data_dir / _DONE
    if not done.exists():
        await _play(ctx, inbox, STEPS)
        _mark(done)
    return inbox


def _mark(done: Path) -> None:
    done.touch()


async def _play(ctx: Context, inbox: Inbox, steps: Sequence[Incoming | Reply]) -> None:
    newest: dict[str, Message] = {}
    for number, step in enumerate(steps):
        then = inbox.created_at - timedelta(hours=step.hours_ago)
        at_that_time = replace(ctx, clock=_stopped(then))
        before = newest.get(step.thread)
        if isinstance(step, Incoming):
            message_id = await _receive(at_that_time, inbox, step, number, before)
        else:
            assert before is not None
            message_id = await _answer(at_that_time, step, number, before)
        message = await ctx.store.message(message_id, None)
        assert message is not None
        newest[step.thread] = message


def _stopped(moment: datetime) -> Callable[[], datetime]:
    return lambda: moment


async def _receive(
    ctx: Context, inbox: Inbox, step: Incoming, number: int, before: Message | None
) -> str:
    previous = before.internet_message_id if before else None
    references = (*before.references, previous) if before and previous else ()
    domain = step.sender[1].rpartition("@")[2]
    mail = Outgoing(
        sender=step.sender,
        to=((inbox.name, inbox.address),),
        cc=step.cc,
        subject=step.subject,
        text=step.text,
        html=step.html,
        attachments=tuple(
            OutgoingAttachment(e.filename, e.content_type, e.make()) for e in step.enclosed
        ),
        internet_message_id=f"demo.{number}.{step.thread}@{domain}",
        date=ctx.clock(),
        in_reply_to=previous,
        references=references,
        headers=step.headers,
    )
    return (await receive(ctx, Arrival(compose(mail), inbox.id))).message_id


async def _answer(ctx: Context, step: Reply, number: int, before: Message) -> str:
    sent = await call(
        ctx,
        reply_to_message,
        {
            "message_id": before.id,
            "body_text": step.text,
            "reply_all": step.reply_all,
            "idempotency_key": f"postroom-demo-{number}",
        },
    )
    return str(sent.message_id)
