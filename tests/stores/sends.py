"""Mail that is recorded as sent."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.storage import NewSend
from postroom.pipeline.ingest import parse_mails, write_blobs
from postroom.pipeline.services import Services
from postroom.sending.submission import build_sent_message
from tests.mails import mail

NOW = datetime(2026, 6, 1, tzinfo=UTC)


async def a_send(services: Services, inbox: Inbox, **changes: object) -> NewSend:
    raw = mail("Sent", sender=inbox.address, to="x@example.com")
    (parsed,) = await write_blobs(services, await parse_mails(services, [raw]))
    message = dataclasses.replace(
        await build_sent_message(services, parsed, inbox.id, ["hidden@example.com"]),
        recipients=(Recipient("x@example.com", "captured"),),
        received_at=NOW,
    )
    send = NewSend(
        message=message,
        deliveries=(),
        caller="key_1",
        payload=b"payload",
        idempotency_key=None,
        allow_duplicate=False,
        max_per_hour=None,
        authors=("owner",),
    )
    return dataclasses.replace(send, **changes)  # type: ignore[arg-type]
