"""Letters that are made of a message: whom an answer goes to, and how one is passed on."""

from __future__ import annotations

from postroom.errors import Conflict
from postroom.model.message import Message
from postroom.operations.context import Context
from postroom.operations.enclosures import Enclosure
from postroom.operations.letters import Letter, Pair, each_once
from postroom.operations.origins import own_identities

_LONGEST_NAME = 200


async def reply_recipients(
    ctx: Context, parent: Message, *, reply_all: bool
) -> tuple[list[Pair], list[Pair]]:
    """Who gets the answer: the sender, or whom we wrote to if the message was ours.

    None of our own addresses does, unless nobody else is left.
    """
    names = {a.address.lower(): a.name for a in parent.addresses}
    own = {identity.email for identity in await own_identities(ctx, parent.inbox_id)}
    if parent.direction == "outbound":
        to = list(parent.to_addresses)
    else:
        to = list(parent.reply_to_addresses) or [parent.from_address]
    cc = [*parent.to_addresses, *parent.cc_addresses] if reply_all else []
    main = each_once([a for a in to if a and a.lower() not in own] or [a for a in to if a])
    others = [a for a in each_once(cc) if a.lower() not in own.union(m.lower() for m in main)]
    if not main:
        raise Conflict(f"{parent.id} has no sender to reply to; use send_message")
    return (
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in main],
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in others],
    )


def forward_letter(original: Message, text: str, to: list[Pair]) -> Letter:
    """A letter that carries a message on: its text below ours, its files attached."""
    lines = [
        "---------- Forwarded message ----------",
        f"From: {original.from_name} <{original.from_address}>".replace("  ", " "),
        f"Date: {original.date:%a, %d %b %Y %H:%M:%S} +0000",
        f"Subject: {original.subject}",
        f"To: {', '.join(original.to_addresses)}",
        "",
        original.text,
    ]
    subject = original.subject
    return Letter(
        inbox_id=original.inbox_id,
        to=to,
        subject=subject if subject.lower().startswith("fwd:") else f"Fwd: {subject}",
        text="\n".join(([text, ""] if text else []) + lines),
        in_reply_to=original.id,
        is_forward=True,
        enclosures=[Enclosure(attachment_id=a.id) for a in original.attachments if not a.inline],
    )
