"""Stored mail compared with its own bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256

from postroom.errors import NotFound
from postroom.mail.message import PARSER_VERSION, ParsedMessage
from postroom.model.attachment import BlobKey
from postroom.model.stored import Reading, Words
from postroom.pipeline.house import House
from postroom.pipeline.receive import searchable

_AT_ONCE = 100


async def misread(
    house: House, *, damaged: Collection[BlobKey]
) -> AsyncIterator[tuple[int, list[str]]]:
    """Read mail again that this parser has read; yields how many, and what is amiss."""
    after = 0
    while batch := await house.store.readings(PARSER_VERSION, after, _AT_ONCE):
        whole = [reading for reading in batch if reading.raw not in damaged]
        yield len(batch), await _differences(house, whole)
        after = batch[-1].number


async def _differences(house: House, readings: Sequence[Reading]) -> list[str]:
    there, raws = list[Reading](), list[bytes]()
    for reading in readings:
        with suppress(NotFound):  # removed meanwhile; what is missing was told of before
            raws.append(await house.blobs.read(reading.raw))
            there.append(reading)
    parsed = await house.parser.parse(raws)
    return [
        f"message {reading.id}: its {name} is not what its bytes say (`postroom reparse --all`)"
        for reading, mail in zip(there, parsed, strict=True)
        for name in _unlike(reading.words, _words(mail))
    ]


def _unlike(kept: Words, read: Words) -> list[str]:
    """The names of what differs."""
    names = [field.name for field in fields(Words)]
    return [n.replace("_", " ") for n in names if getattr(kept, n) != getattr(read, n)]


def _words(parsed: ParsedMessage) -> Words:
    return Words(
        subject=parsed.subject,
        sender=parsed.sender.address if parsed.sender else "",
        internet_message_id=parsed.internet_message_id,
        snippet=parsed.snippet,
        text=parsed.text,
        searchable=searchable(parsed),
        attachments=tuple(sha256(a.content).hexdigest() for a in parsed.attachments),
    )
