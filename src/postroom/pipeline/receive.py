"""A mail arrives: parse it, put its bytes away, store it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, TooLarge
from postroom.mail.authentication import Auth, Trust, authenticate
from postroom.mail.fingerprint import fingerprint
from postroom.mail.fold import fold
from postroom.mail.message import (
    PARSER_VERSION,
    ParsedAttachment,
    ParsedMessage,
    ReportRecipient,
)
from postroom.mail.threads import subject_key
from postroom.model.attachment import BlobKey
from postroom.model.inbox import INBOX, SENT
from postroom.model.message import AddressLine, Direction
from postroom.model.stored import (
    FIELD_BORDER,
    Added,
    DeliveryReport,
    Fate,
    NewAttachment,
    NewMessage,
)
from postroom.pipeline.house import House
from postroom.pipeline.parsing import PARSE_FAILED
from postroom.pipeline.ruling import run_rules

CLOCK_SKEW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A mail at the door: its bytes and the inbox it is for.

    Mail from elsewhere may be in other mailboxes too, carry labels, and have been there a while.
    `envelope_sender` is None where there was no envelope, and empty where nobody wants an answer.
    """

    raw: bytes
    inbox_id: str
    mailbox: str = INBOX
    direction: Direction = "inbound"
    flags: tuple[str, ...] = ()
    is_imported: bool = False
    other_mailboxes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    arrived_at: datetime | None = None
    envelope_sender: str | None = None


ParsedArrival = tuple[Arrival, ParsedMessage]
"""A mail at the door that was read."""


async def receive(house: House, arrival: Arrival) -> Added:
    """Take in one mail; when this returns, it is on disk.

    Raises:
        InvalidInput: there are no bytes.
        TooLarge: it is over the limit for a message.
        NotFound: the inbox is gone.
    """
    return (await receive_many(house, [arrival]))[0]


async def receive_many(house: House, arrivals: Sequence[Arrival]) -> list[Added]:
    """Take in several mails with one sync of the disk for all of them."""
    return await store_parsed(house, await parse_arrivals(house, arrivals))


async def parse_arrivals(house: House, arrivals: Sequence[Arrival]) -> list[ParsedArrival]:
    """Read what arrives; copies of one mail are read once. Raises InvalidInput, TooLarge."""
    for arrival in arrivals:
        check_size(arrival.raw, house.limits.message_bytes)
    raws = list(dict.fromkeys(arrival.raw for arrival in arrivals))
    parsed = dict(zip(raws, await house.parser.parse(raws), strict=True))
    for raw, found in parsed.items():
        if any(defect.startswith(PARSE_FAILED) for defect in found.defects):
            house.counts.failed("parsing_failed", {"bytes": len(raw)})
    return [(arrival, parsed[arrival.raw]) for arrival in arrivals]


async def store_parsed(
    house: House, mails: Sequence[ParsedArrival], keys: Sequence[BlobKey] | None = None
) -> list[Added]:
    """Put mails away that were read; when this returns, they are on disk."""
    async with put_away(house, mails, keys) as messages:
        return await house.store.add_messages(messages)


async def keep_bytes(house: House, mails: Sequence[ParsedArrival]) -> list[BlobKey]:
    """Write raw bytes and attachments to the blob store, in the order of the mails."""
    return await house.blobs.put(_contents(mails))


def _contents(mails: Sequence[ParsedArrival]) -> list[bytes]:
    return [
        content
        for arrival, parsed in mails
        for content in (arrival.raw, *(a.content for a in parsed.attachments))
    ]


def check_size(raw: bytes, most: int) -> None:
    """Refuse a message that is empty or over the limit."""
    if not raw:
        raise InvalidInput("the message is empty; send the whole mail, headers first")
    if len(raw) > most:
        raise TooLarge(f"the message has {len(raw)} bytes; the limit is {most}")


@asynccontextmanager
async def put_away(
    house: House, mails: Sequence[ParsedArrival], keys: Sequence[BlobKey] | None = None
) -> AsyncIterator[list[NewMessage]]:
    """Write bytes that have no keys yet to the blob store, for messages stored within the block.

    Somebody may have removed the last message with the same bytes just before ours was stored,
    and the bytes with it: so we look again afterwards, while we still have them.
    """
    vouched = await _vouched(mails, house.trust)
    keys = await keep_bytes(house, mails) if keys is None else keys
    left, now = iter(keys), house.clock()
    messages = [
        replace(_new_message(house, arrival, parsed, left, now), auth=asdict(auth))
        for (arrival, parsed), auth in zip(mails, vouched, strict=True)
    ]
    yield await run_rules(house, messages, [parsed for _, parsed in mails])
    if await house.blobs.missing(keys):
        await keep_bytes(house, mails)


async def _vouched(mails: Sequence[tuple[Arrival, ParsedMessage]], trust: Trust) -> list[Auth]:
    """What is known of each sender; only signatures take long enough to leave the loop."""

    def vouch() -> list[Auth]:
        return [authenticate(arrival.raw, parsed, trust) for arrival, parsed in mails]

    return await in_thread(vouch) if trust.keys else vouch()


def _new_message(
    house: House, arrival: Arrival, parsed: ParsedMessage, keys: Iterator[BlobKey], now: datetime
) -> NewMessage:
    raw = next(keys)
    attachments = tuple(_new_attachment(house, a, next(keys)) for a in parsed.attachments)
    received_at = min(arrival.arrived_at or now, now).replace(microsecond=0)
    return NewMessage(
        id=house.new_id("msg"),
        inbox_id=arrival.inbox_id,
        direction=arrival.direction,
        subject=parsed.subject,
        addresses=tuple(AddressLine(a.role, a.name, a.address) for a in parsed.addresses),
        date=effective_date(parsed.date, received_at),
        received_at=received_at,
        internet_message_id=parsed.internet_message_id,
        in_reply_to=parsed.in_reply_to,
        references=parsed.references,
        base_subject=subject_key(parsed.subject),
        text=parsed.text,
        new_text=parsed.new_text if len(parsed.new_text) < len(parsed.text) else None,
        snippet=parsed.snippet,
        searchable=searchable(parsed),
        size_bytes=parsed.size_bytes,
        raw=raw,
        fingerprint=fingerprint(parsed),
        parser_version=PARSER_VERSION,
        attachments=attachments,
        defects=parsed.defects,
        security=_security(parsed),
        mailboxes=(arrival.mailbox, *arrival.other_mailboxes),
        labels=arrival.labels,
        flags=arrival.flags,
        is_imported=arrival.is_imported,
        report=_report(arrival, parsed),
    )


def _report(arrival: Arrival, parsed: ParsedMessage) -> DeliveryReport | None:
    """What a delivery report says, in our words; a delay is no outcome.

    A report has no sender on its envelope (RFC 3464 §2): what has one may be anybody's.
    """
    report = parsed.report
    if report is None or report.kind != "delivery" or report.original_message_id is None:
        return None
    if _envelope_sender(arrival, parsed):
        return None
    fates = tuple(_fate(recipient) for recipient in report.recipients if recipient.action in _FATES)
    return DeliveryReport(report.original_message_id, fates) if fates else None


def _envelope_sender(arrival: Arrival, parsed: ParsedMessage) -> str:
    """Who sent it, by the envelope; empty if nobody did, or nobody says."""
    if arrival.envelope_sender is not None:
        return arrival.envelope_sender
    said = next((value for name, value in parsed.headers if name.lower() == "return-path"), "")
    return said.strip().strip("<>")


def _fate(recipient: ReportRecipient) -> Fate:
    addresses = tuple(filter(None, (recipient.original, recipient.address)))
    if recipient.action == "delivered":
        return Fate(addresses, "delivered")
    detail = " ".join((recipient.diagnostic or recipient.reason).split())[:500]
    return Fate(addresses, _FATES[recipient.action], detail)


_FATES = {"failed": "bounced", "delivered": "delivered"}


def _new_attachment(house: House, attachment: ParsedAttachment, key: str) -> NewAttachment:
    return NewAttachment(
        id=house.new_id("att"),
        filename=attachment.filename,
        content_type=attachment.content_type,
        size=len(attachment.content),
        is_inline=attachment.inline,
        sha256=key,
    )


def _security(parsed: ParsedMessage) -> dict[str, Any]:
    """What is worth a warning; an ordinary mail has nothing to say."""
    return {name: value for name, value in asdict(parsed.security).items() if value}


def effective_date(stated: datetime | None, received_at: datetime) -> datetime:
    """The Date header if it can be believed, else the arrival."""
    if stated is None or stated > received_at + CLOCK_SKEW:
        return received_at
    return stated.replace(microsecond=0)


def searchable(parsed: ParsedMessage) -> str:
    """Fold each field that a search looks at; a match lies within one of them."""
    sender = parsed.sender
    fields = [parsed.subject, parsed.text]
    if sender is not None:
        fields += [sender.address, sender.name]
    fields += [a.filename for a in parsed.attachments]
    return FIELD_BORDER.join(fold(field) for field in fields)


def as_sent(message: NewMessage, bcc: Sequence[str]) -> NewMessage:
    """The sender's own copy: in Sent, seen, and the only one that knows the bcc."""
    hidden = tuple(AddressLine("bcc", "", address) for address in bcc)
    return replace(
        message,
        direction="outbound",
        mailboxes=(SENT,),
        flags=("seen",),
        addresses=message.addresses + hidden,
    )
