"""Two machines that answer each other would never stop: who may be answered by a machine."""

from __future__ import annotations

from datetime import timedelta

from postroom.errors import Conflict
from postroom.model.message import Message
from postroom.operations.context import Context
from postroom.operations.letters import AUTOMATIC
from postroom.operations.threads import thread_of

ONCE_IN = timedelta(hours=24)
_HEAD_BYTES = 16_384
_MARK = f"\r\n{AUTOMATIC[0][0]}: ".lower().encode()


async def refuse_loop(ctx: Context, parent: Message) -> None:
    """Let a machine answer a person, once a day in a thread. Raises Conflict (RFC 3834)."""
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(parent.raw)])
    if parsed.auto_submitted or parsed.report is not None or parent.direction == "outbound":
        raise Conflict(
            f"{parent.id} was sent by a machine; an automatic answer could go on forever"
        )
    thread = await thread_of(ctx, parent.thread_id, limit=100)
    since = ctx.clock() - ONCE_IN
    answered = {parent.from_address, *parent.reply_to_addresses}
    for row in thread.messages:
        is_ours = row.direction == "outbound" and row.date >= since
        if is_ours and answered & set(row.to_addresses) and await _is_automatic(ctx, row.id):
            raise Conflict(
                f"{parent.from_address} got an automatic answer in this thread within a day; "
                "leave out automatic if a person wrote this one"
            )


async def _is_automatic(ctx: Context, message_id: str) -> bool:
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None:
        return False
    head = await ctx.blobs.read(message.raw, size=_HEAD_BYTES)
    return _MARK in head.lower().partition(b"\r\n\r\n")[0]
