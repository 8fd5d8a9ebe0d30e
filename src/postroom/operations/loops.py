"""Two machines that answer each other would never stop: who may be answered by a machine."""

from __future__ import annotations

from postroom.errors import Conflict
from postroom.model.message import Message
from postroom.operations.context import Context


async def refuse_loop(ctx: Context, parent: Message) -> None:
    """Let a machine answer a person, once a day in a thread. Raises Conflict (RFC 3834).

    Of two answers at the same time, the store refuses the second.
    """
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(parent.raw)])
    if parsed.auto_submitted or parsed.report is not None or await _is_ours(ctx, parent):
        raise Conflict(
            f"{parent.id} was sent by a machine; an automatic answer could go on forever"
        )
    answered = (parent.from_address, *parent.reply_to_addresses)
    await ctx.store.refuse_second_answer(parent.thread_id, answered, ctx.clock())


async def _is_ours(ctx: Context, message: Message) -> bool:
    """Whether it is mail of this inbox, or has come back to it."""
    if message.direction == "outbound":
        return True
    own = message.internet_message_id
    return own is not None and await ctx.store.is_own_mail(message.inbox_id, own)
