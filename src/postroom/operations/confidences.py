"""What is known about people, beside their mail; and a warning before it goes to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postroom.model.memory import RecalledMemory, TiedMemory
from postroom.model.message import Message
from postroom.model.thread import Thread
from postroom.operations.context import Context

MOST_RECALLED = 10
_MOST_NAMED = 3


async def recall_beside(ctx: Context, mail: Message | Thread) -> tuple[RecalledMemory, ...]:
    """Memories about those who take part in a message or thread, and what was learnt from it."""
    if isinstance(mail, Message):
        people: Iterable[str] = (line.address for line in mail.addresses)
        ids = [mail.id, mail.thread_id]
    else:
        people = mail.participants
        ids = [mail.id, *(message.id for message in mail.messages)]
    inbox = await ctx.store.inbox(mail.inbox_id, ctx.visible)
    own = inbox.address.lower() if inbox else ""
    return await ctx.store.recall_about(
        [address for address in people if address.lower() != own],
        ids,
        ctx.caller.namespaces,
        now=ctx.clock(),
        limit=MOST_RECALLED,
    )


async def warn_of_confidences(
    ctx: Context, text: str, recipients: Sequence[str]
) -> tuple[str, ...]:
    """A sentence for each memory about somebody whose text is on its way to somebody else."""
    tied = await ctx.store.tied_memories(text, recipients, ctx.caller.namespaces)
    return tuple(_sentence(memory) for memory in tied)


def _sentence(memory: TiedMemory) -> str:
    return (
        f"this mail repeats the memory {memory.key} ({memory.namespace}), which is about "
        f"{_names(memory.about)}, to {_names(memory.others)}; make sure that they may know it"
    )


def _names(addresses: Sequence[str]) -> str:
    more = len(addresses) - _MOST_NAMED
    named = ", ".join(addresses[:_MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named
