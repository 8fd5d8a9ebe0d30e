"""`serve --demo`: fill an inbox with conversations, once.

`demo_mails/steps.json` lists them in order: mails that arrive, and replies of the demo inbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime, formataddr, parseaddr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.message import Message
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import create_inbox
from postroom.operations.sending import reply_to_message
from postroom.pipeline.ingest import Arrival, receive

if TYPE_CHECKING:
    from postroom.app import App

_MAILS = Path(__file__).with_name("demo_mails")
_DONE = "demo.done"
_USERNAME = "demo"


async def seed_demo(app: App) -> Inbox:
    """Create the demo inbox and its mail, unless that was done before.

    Every byte depends only on when the inbox was created, so a run that was interrupted is
    completed by the next one without duplicates.
    """
    ctx = app.context(OWNER)
    inbox: Inbox = await call(
        ctx, create_inbox, {"username": _USERNAME, "name": "Demo", "client_id": "postroom-demo"}
    )
    done = app.settings.data_dir / _DONE
    if not done.exists():
        await _run_steps(ctx, inbox)
        done.touch()
    return inbox


async def _run_steps(ctx: RequestContext, inbox: Inbox) -> None:
    newest: dict[str, Message] = {}
    for number, step in enumerate(json.loads((_MAILS / "steps.json").read_bytes())):
        now = inbox.created_at - timedelta(hours=step["hours_ago"])
        then = replace(ctx, clock=_stopped(now))
        before = newest.get(step["thread"])
        if "file" in step:
            raw = _mail(inbox, step, number, before, format_datetime(now))
            message_id = (await receive(then, Arrival(raw, inbox.id))).message_id
        else:
            assert before is not None
            message_id = await _reply(then, step, number, before)
        message = await ctx.store.message(message_id, EVERYTHING)
        assert message is not None
        newest[step["thread"]] = message


def _stopped(now: datetime) -> Callable[[], datetime]:
    return lambda: now


def _mail(
    inbox: Inbox, step: dict[str, Any], number: int, before: Message | None, date: str
) -> bytes:
    """The file, with the headers that depend on the inbox and on the mail that it answers."""
    raw = _MAILS.joinpath(str(step["file"])).read_bytes()
    sender = parseaddr(raw.partition(b"\n")[0].decode().removeprefix("From: "))[1]
    headers = {
        "To": formataddr((inbox.name, inbox.address)),
        "Date": date,
        "Message-ID": f"<demo.{number}.{step['thread']}@{sender.rpartition('@')[2]}>",
    }
    if before and (previous := before.internet_message_id):
        headers["In-Reply-To"] = f"<{previous}>"
        headers["References"] = " ".join(f"<{one}>" for one in (*before.references, previous))
    lines = "".join(f"{name}: {value}\n" for name, value in headers.items())
    return (lines.encode() + raw).replace(b"\n", b"\r\n")


async def _reply(ctx: RequestContext, step: dict[str, Any], number: int, before: Message) -> str:
    mail = {
        "message_id": before.id,
        "body_text": step["reply"],
        "reply_all": step.get("reply_all", False),
        "idempotency_key": f"postroom-demo-{number}",
    }
    return str((await call(ctx, reply_to_message, mail)).message_id)
