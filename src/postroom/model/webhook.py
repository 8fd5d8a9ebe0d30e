"""Programs that want to be told, and what became of telling them."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from postroom.model.event import Event
from postroom.model.message import INTERNAL

SIGNING_PREFIX = "whsec_"


def new_webhook_secret() -> str:
    """What a receiver checks signatures with."""
    return SIGNING_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that is told of events. `secret` is shown when it is made or renewed, and only then."""

    id: str
    url: str
    types: tuple[str, ...]
    inboxes: tuple[str, ...] | None
    created_at: datetime
    secret: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event on its way to one webhook."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    status: str
    attempts: int
    code: int | None
    detail: str
    created_at: datetime
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class WebhookJob:
    """A delivery that one worker makes now, by the numbers of its webhook, inbox and its own."""

    webhook: int
    inbox: int
    number: int
    delivery_id: str
    url: str
    secrets: tuple[str, ...] = field(metadata=INTERNAL)
    event: Event | None
    attempts: int
    first_at: datetime
    holder: str


@dataclass(frozen=True, slots=True)
class WebhookRoom:
    """How many deliveries one webhook may have under way at once, and how many each has."""

    each: int
    under_way: Mapping[int, int] = field(default_factory=dict)

    @property
    def full(self) -> list[int]:
        """The numbers of the webhooks that can take no more."""
        return sorted(number for number, count in self.under_way.items() if count >= self.each)


EVERY_WEBHOOK = WebhookRoom(each=2**31 - 1)
"""Room for all there is."""


@dataclass(frozen=True, slots=True)
class Posted:
    """What the other side answered; no code means that there was no answer."""

    code: int | None
    detail: str

    @property
    def is_taken(self) -> bool:
        return self.code is not None and 200 <= self.code < 300
