"""What an agent does not get of a message, and what the policies would say to its reply."""

from __future__ import annotations

import hashlib
from typing import Annotated

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, inbox_of, message_of, operation
from postroom.calls.request import argument
from postroom.mail.addresses import parse_address
from postroom.mail.message import ParsedMessage
from postroom.model.inbox import Inbox
from postroom.model.key import AGENT_ID, OWNER, Scope
from postroom.model.mail.approval import GateRequest, ReplyVerdict, ReplyVerdicts
from postroom.model.mail.message import Mark, MarkedMessage, Message
from postroom.model.page import Slice
from postroom.operations.mail.messages import inline_pictures
from postroom.operations.outgoing.approvals import is_limited, recipients_outside, verdict_of
from postroom.pipeline.apply_rules import caller_of_key
from postroom.sending.replies import reply_mail_of

_MAX_AGENTS = 8
_MAX_KEYS = 100


class GetMarkedMessage(OneMessage):
    """Get a message for a browser, with everything that an agent does not get marked in place."""


@operation(Scope.READ)
async def get_marked_message(ctx: RequestContext, request: GetMarkedMessage) -> MarkedMessage:
    message = await message_of(ctx, request.message_id)
    raw = await ctx.blobs.read(message.raw)
    (parsed,) = await ctx.parser.parse([raw])
    return await in_thread(_marked, message, parsed, raw)


def _marked(message: Message, parsed: ParsedMessage, raw: bytes) -> MarkedMessage:
    from postroom.mail.html.marks import mark_html
    from postroom.mail.text.marks import AgentText, mark_text

    new_text = message.text if message.new_text is None else message.new_text
    agent_text = AgentText.of(message.text, new_text)
    html, marks = "", tuple[Mark, ...]()
    if parsed.html:
        marked = mark_html(parsed.html, inline_pictures(parsed.attachments), agent_text)
        html, marks = marked.html, marked.marks
        if agent_text.is_text(marked.found.text):
            return MarkedMessage(html, (), marks, message.id)
    plain, more = mark_text(_as_written(message, raw), first=len(marks) + 1)
    return MarkedMessage(html, plain, (*marks, *more), message.id)


_MAX_REREAD_BYTES = 262_144


def _as_written(message: Message, raw: bytes) -> str:
    """The text that the agent gets, with the invisible characters that were removed from it."""
    from postroom.mail.parse import uncleaned_text
    from postroom.mail.text.invisible import cleaned

    if not message.security.get("removed_characters") or len(raw) > _MAX_REREAD_BYTES:
        return message.text
    written = uncleaned_text(raw)
    return written if cleaned(written).strip("\n") == message.text else message.text


class CheckReply(OneMessage):
    """Say what the policies would say to a reply, for each agent that may send. Nothing is sent.

    The text of the reply is not known, so what depends on it is not judged.
    """

    to: Annotated[
        str | None,
        argument("To this address instead of its sender.", "bo@example.com", max_length=320),
    ] = None


@operation(Scope.READ)
async def check_reply(ctx: RequestContext, request: CheckReply) -> ReplyVerdicts:
    message = await message_of(ctx, request.message_id)
    inbox = await inbox_of(ctx, message.inbox_id)
    if request.to is None:
        to = [address for _, address in (await reply_mail_of(ctx, message, "")).to]
    else:
        to = [parse_address(request.to, field="to")[1]]
    agents = await _agents(ctx, inbox)
    outside = await recipients_outside(ctx, to, inbox)
    found = []
    for author, name in agents[:_MAX_AGENTS]:
        digest = hashlib.sha256(message.id.encode()).hexdigest()
        mail = GateRequest(
            0, digest, inbox.address, to, outside, (author,), 0, 0, message.thread_id, (),
            ctx.clock(),
        )  # fmt: skip
        verdict = await verdict_of(ctx, mail, inbox)
        found.append(ReplyVerdict(author, name, tuple(to), verdict))
    return ReplyVerdicts(tuple(found), max(len(agents) - _MAX_AGENTS, 0), message.id)


async def _agents(ctx: RequestContext, inbox: Inbox) -> list[tuple[str, str]]:
    """The agents that may send from an inbox and that the caller may know of: ids and names.

    A caller who may not list keys sees only their own.
    """
    if Scope.ADMIN not in ctx.caller.scopes or is_limited(ctx):
        return [(ctx.caller.key_id, "")] if Scope.SEND in ctx.caller.scopes else []
    keys = (await ctx.store.keys(Slice(limit=_MAX_KEYS))).rows
    usable = [key for key in keys if key.id != OWNER.key_id and not key.has_expired(ctx.clock())]
    callers = [(await caller_of_key(ctx, key), key.name) for key in usable]
    sending = [
        (caller.key_id, name)
        for caller, name in callers
        if Scope.SEND in caller.scopes and caller.inboxes.sees(inbox.id)
    ]
    return [(AGENT_ID, ""), *sending]
