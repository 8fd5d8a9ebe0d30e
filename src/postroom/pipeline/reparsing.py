"""Stored mail read again, after the parser has learnt something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from postroom.mail.message import PARSER_VERSION, ParsedMessage
from postroom.model.message import AddressLine
from postroom.model.stored import NewMessage, Outdated
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, effective_date, put_away

_AT_ONCE = 100


async def reparse(house: House, *, version: int = PARSER_VERSION) -> AsyncIterator[int]:
    """Read again what a parser before *version* has read; yields how many were just done.

    Each batch is one transaction, and what is done is marked, so it can be stopped at any time
    and goes on where it was.
    """
    after = 0
    while batch := await house.store.outdated(version, after, _AT_ONCE):
        raws = [await house.blobs.read(message.raw) for message in batch]
        parsed = await house.parser.parse(raws)
        arrivals = [Arrival(r, m.inbox_id) for r, m in zip(raws, batch, strict=True)]
        async with put_away(house, list(zip(arrivals, parsed, strict=True))) as messages:
            await house.store.reread(
                [_as_stored(*pair) for pair in zip(messages, batch, parsed, strict=True)]
            )
        after = batch[-1].number
        yield len(batch)


def _as_stored(message: NewMessage, stored: Outdated, parsed: ParsedMessage) -> NewMessage:
    """The new words under the old id, with what only the first reading knew."""
    is_ours = stored.direction == "outbound"
    hidden = tuple(AddressLine("bcc", "", address) for address in stored.bcc if is_ours)
    return replace(
        message,
        id=stored.id,
        direction=stored.direction,
        addresses=message.addresses + hidden,
        date=effective_date(parsed.date, stored.received_at),
        received_at=stored.received_at,
        thread_id=None if message.internet_message_id else stored.thread_id,
    )
