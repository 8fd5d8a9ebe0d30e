"""Mail that tests have recorded as sent."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from postroom.mail.parse import parse_message
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.stored import NewSend
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, as_sent, put_away
from tests.mails import mail

NOW = datetime(2026, 6, 1, tzinfo=UTC)


async def a_send(house: House, inbox: Inbox, **changes: object) -> NewSend:
    raw = mail("Sent", sender=inbox.address, to="x@example.com")
    arrival = Arrival(raw, inbox.id)
    async with put_away(house, [(arrival, parse_message(raw))]) as messages:
        message = dataclasses.replace(
            as_sent(messages[0], ["hidden@example.com"]),
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
        most_per_hour=None,
    )
    return dataclasses.replace(send, **changes)  # type: ignore[arg-type]
