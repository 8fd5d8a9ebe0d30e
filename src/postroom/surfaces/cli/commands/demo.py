"""`serve --demo`: fill an inbox with conversations, held replies, rules and memories, once.

`demo_mails/steps.json` lists the mails in order: those that arrive, replies of the owner, and
replies of an agent, which are held. `demo_mails/organisation.json` has the rest.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime, formataddr, parseaddr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.inbox import Inbox
from postroom.model.key import AGENT, OWNER
from postroom.model.mail.message import Message
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import create_inbox
from postroom.operations.mail.message_changes import update_message
from postroom.operations.mail.messages import get_message
from postroom.operations.memories import memory_add
from postroom.operations.outgoing.drafts import create_draft, list_drafts
from postroom.operations.outgoing.sending import reply_to_message
from postroom.operations.rules import apply_rule_plan, create_rule, list_rules, run_rule_plan
from postroom.pipeline.ingest import Arrival, receive

if TYPE_CHECKING:
    from postroom.app import App

_MAILS = Path(__file__).with_name("demo_mails")
_DONE = "demo.done"
_USERNAME = "demo"
_UNREAD_HOURS = 24


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
        await _organise(ctx, await _run_steps(ctx, inbox))
        done.touch()
    return inbox


async def _run_steps(ctx: RequestContext, inbox: Inbox) -> dict[str, Message]:
    """Receive and send the mails; returns the newest one of each thread."""
    newest: dict[str, Message] = {}
    for number, step in enumerate(_data("steps.json")):
        now = inbox.created_at - timedelta(hours=step["hours_ago"])
        then = replace(ctx, clock=_stopped(now))
        before = newest.get(step["thread"])
        if "file" in step:
            raw = _mail(inbox, step, number, before, format_datetime(now))
            message_id = (await receive(then, Arrival(raw, inbox.id))).message_id
            if step["hours_ago"] > _UNREAD_HOURS:
                change = {"message_id": message_id, "add_flags": ["seen"]}
                await call(then, update_message, change)
        else:
            assert before is not None
            message_id = await _reply(then, step, number, before, newest)
        message = await ctx.store.message(message_id, EVERYTHING)
        assert message is not None
        newest[step["thread"]] = message
    return newest


async def _organise(ctx: RequestContext, newest: Mapping[str, Message]) -> None:
    """Add memories, a draft, and two rules: one is applied to the mail, the other is planned."""
    organisation = _data("organisation.json")
    for memory in organisation["memories"]:
        await call(ctx, memory_add, memory)
    if (await call(ctx, list_rules, {})).total == 0:
        for rule in organisation["rules"]:
            new = {"rule_yaml": rule["yaml"], "dry_run": False}
            created: Any = await call(ctx, create_rule, new)
            plan = await call(ctx, run_rule_plan, {"rule_id": created.id})
            if rule["is_applied"]:
                await call(ctx, apply_rule_plan, {"plan_id": plan.plan_id})
    if (await call(ctx, list_drafts, {})).total == 0:
        draft = organisation["draft"]
        answered = newest[draft.pop("thread")]
        mail = {"to": ["team@postroom.localhost"], "in_reply_to": answered.id, **draft}
        await call(ctx, create_draft, {"subject": answered.subject, **mail})


def _data(name: str) -> Any:
    return json.loads((_MAILS / name).read_bytes())


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


async def _reply(
    ctx: RequestContext,
    step: dict[str, Any],
    number: int,
    before: Message,
    newest: Mapping[str, Message],
) -> str:
    """Reply to a message; an agent reads it first.

    The agent's replies wait for their time. Without a relay, only such mail is held.
    """
    mail = {
        "message_id": before.id,
        "body_text": step["reply"],
        "reply_all": step.get("reply_all", False),
        "idempotency_key": f"postroom-demo-{number}",
        "attachments": _attachments(step, newest),
    }
    if step.get("by") == "agent":
        ctx = replace(ctx, caller=AGENT, via="mcp-stdio")
        mail["send_at"] = (ctx.clock() + timedelta(hours=step["send_in_hours"])).isoformat()
        await call(ctx, get_message, {"message_id": before.id})
    return str((await call(ctx, reply_to_message, mail)).message_id)


def _attachments(step: dict[str, Any], newest: Mapping[str, Message]) -> list[dict[str, str]]:
    """Files of a step, and those of the message that it attaches."""
    files = [
        {
            "filename": file["filename"],
            "content_type": file["content_type"],
            "content": b64encode(file["text"].encode()).decode(),
        }
        for file in step.get("attachments", ())
    ]
    attached = newest[step["attaches"]].attachments if "attaches" in step else ()
    return [*files, *({"attachment_id": file.id} for file in attached)]
