"""Reparse: stored mail is parsed again after a change of the parser, or compared with its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from hashlib import sha256

from postroom.errors import NotFound
from postroom.mail.message import PARSER_VERSION, ParsedMessage
from postroom.mail.senders import Auth
from postroom.model.message import AddressLine, BlobKey
from postroom.model.storage import NewMessage, OutdatedMessage, ParsedValues, StoredParse
from postroom.pipeline.ingest import (
    ParsedMail,
    authenticate_mails,
    build_message,
    parse_mails,
    restore_blobs,
    searchable,
    write_blobs,
)
from postroom.pipeline.services import Services

_AT_ONCE = 100


async def reparse(services: Services, *, version: int = PARSER_VERSION) -> AsyncIterator[int]:
    """Parse messages again that an older parser has parsed; yields the size of each batch.

    Each batch is one transaction, so it can be stopped at any time and continues where it was.
    """
    after = 0
    while batch := await services.store.outdated(version, after, _AT_ONCE):
        raws = [await services.blobs.read(message.raw) for message in batch]
        mails = await write_blobs(services, await parse_mails(services, raws))
        auths = await authenticate_mails(services, mails)
        await services.store.reparse_messages(
            [_reparsed(services, *each) for each in zip(batch, mails, auths, strict=True)]
        )
        await restore_blobs(services, mails)
        after = batch[-1].number
        yield len(batch)


def _reparsed(
    services: Services, stored: OutdatedMessage, mail: ParsedMail, auth: Auth
) -> NewMessage:
    """The new content under the old id, with the bcc addresses that are not in the bytes."""
    message = build_message(
        services, mail, stored.inbox_id, auth=auth, received_at=stored.received_at
    )
    is_ours = stored.direction == "outbound"
    hidden = tuple(AddressLine("bcc", "", address) for address in stored.bcc if is_ours)
    return replace(
        message,
        id=stored.id,
        direction=stored.direction,
        addresses=message.addresses + hidden,
        thread_id=None if message.internet_message_id else stored.thread_id,
    )


async def parse_differences(
    services: Services, *, damaged: Collection[BlobKey]
) -> AsyncIterator[tuple[int, list[str]]]:
    """Compare stored messages with their bytes; yields the size of each batch and its problems."""
    after = 0
    while batch := await services.store.stored_parses(PARSER_VERSION, after, _AT_ONCE):
        whole = [stored_parse for stored_parse in batch if stored_parse.raw not in damaged]
        yield len(batch), await _differences(services, whole)
        after = batch[-1].number


async def _differences(services: Services, stored_parses: Sequence[StoredParse]) -> list[str]:
    readable, raws = list[StoredParse](), list[bytes]()
    for stored_parse in stored_parses:
        with suppress(NotFound):  # removed meanwhile, or reported as missing before
            raws.append(await services.blobs.read(stored_parse.raw))
            readable.append(stored_parse)
    parsed = await services.parser.parse(raws)
    return [
        f"message {stored.id}: its {name} differs from its bytes (run `postroom reparse --all`)"
        for stored, mail in zip(readable, parsed, strict=True)
        for name in _differing_fields(stored.values, _content_of(mail))
    ]


def _differing_fields(stored: ParsedValues, read: ParsedValues) -> list[str]:
    """The names of the fields that differ."""
    names = [field.name for field in fields(ParsedValues)]
    return [n.replace("_", " ") for n in names if getattr(stored, n) != getattr(read, n)]


def _content_of(parsed: ParsedMessage) -> ParsedValues:
    return ParsedValues(
        subject=parsed.subject,
        sender=parsed.sender.address if parsed.sender else "",
        internet_message_id=parsed.internet_message_id,
        snippet=parsed.snippet,
        text=parsed.text,
        searchable=searchable(parsed),
        attachments=tuple(sha256(a.content).hexdigest() for a in parsed.attachments),
    )
