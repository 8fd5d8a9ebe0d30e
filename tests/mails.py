"""Build mails, and deliver them to an installation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from itertools import count

from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import TRANSPORTS
from postroom.model.mail.storage import Added, NewMessage
from postroom.pipeline.ingest import (
    Arrival,
    arrived_messages,
    parse_arrivals,
    receive,
    write_blobs,
)
from postroom.pipeline.services import Services
from postroom.store.sql.outbox.queue import set_recipients
from postroom.store.store import Store
from postroom.store.transaction import Transaction

Attached = tuple[str, str, bytes]
"""A filename, a type and the content."""

SOME = dict.fromkeys(TRANSPORTS, 5)
"""The limits of a claim: a few mails of each route."""

_numbers = count(1)


def mail(
    subject: str = "Hello",
    text: str | None = "Good morning.",
    *,
    html: str | None = None,
    sender: str = "Ana Lee <ana@example.com>",
    to: str = "bo@postroom.localhost",
    cc: str | None = None,
    message_id: str | None = "new",
    in_reply_to: str | None = None,
    references: Sequence[str] = (),
    date: datetime | None = datetime(2026, 3, 1, 9, 0, tzinfo=UTC),
    attachments: Sequence[Attached] = (),
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """A mail as bytes; each has a Message-ID of its own unless told otherwise."""
    message = EmailMessage()
    values = {
        "From": sender,
        "To": to,
        "Cc": cc,
        "Subject": subject,
        "Date": date and format_datetime(date),
        "Message-ID": f"<m{next(_numbers)}@example.com>" if message_id == "new" else message_id,
        "In-Reply-To": in_reply_to,
        "References": " ".join(references) or None,
    }
    for name, value in (*values.items(), *headers):
        if value is not None:
            message[name] = value
    if text is not None:
        message.set_content(text)
    if html is not None:
        (message.add_alternative if text is not None else message.set_content)(html, subtype="html")
    for filename, content_type, content in attachments:
        maintype, _, subtype = content_type.partition("/")
        message.add_attachment(content, maintype=maintype, subtype=subtype, filename=filename)
    return message.as_bytes()


async def new_inbox(services: Services, username: str = "bo", name: str = "") -> Inbox:
    """An inbox at the installation's own domain."""
    inbox = Inbox(
        services.new_id("inb"), f"{username}@postroom.localhost", name, None, services.clock()
    )
    return await services.store.add_inbox(inbox, client_id=None, payload=b"")


async def deliver(services: Services, inbox: Inbox, raw: bytes, mailbox: str = "Inbox") -> Added:
    """Let a mail arrive."""
    return await receive(services, Arrival(raw, inbox.id, mailbox))


async def prepare(services: Services, arrival: Arrival) -> NewMessage:
    """The message that ingest would store, with its blobs written."""
    mails = await write_blobs(services, await parse_arrivals(services, [arrival]))
    return (await arrived_messages(services, [arrival], mails))[0]


async def accepted_by_relay(ctx: Services, message_id: str, *addresses: str) -> None:
    """Record that a relay has accepted a mail."""

    def write(tx: Transaction) -> None:
        place = tx.one("SELECT inbox, number FROM messages WHERE id = :id", id=message_id)
        inbox, number = place or (0, 0)
        sent = {address: Recipient(address, "sent") for address in addresses}
        set_recipients(tx, inbox, number, sent, ctx.clock())

    assert isinstance(ctx.store, Store)
    await ctx.store.engine.write(write)
