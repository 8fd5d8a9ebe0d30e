"""The door to what happened, and to those who want to be told."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from postroom.model.event import Event, EventQuery
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.webhook import (
    EVERY_WEBHOOK,
    Posted,
    Webhook,
    WebhookDelivery,
    WebhookJob,
    WebhookRoom,
)
from postroom.ports.bell import Bell


class TellsOfEvents(Protocol):
    """What happened, and a bell that rings when more did."""

    @property
    def bell(self) -> Bell: ...
    async def events(self, query: EventQuery) -> Found[Event]: ...
    async def events_after(self, after: int, *, limit: int, visible: Visible = None) -> list[Event]:
        """The next events of some inboxes after the one with this number."""

    async def newest_event(self, visible: Visible = None) -> int:
        """The number of the last event of some inboxes; 0 if there is none."""

    async def last_event(self, inbox_id: str, until: int) -> str | None:
        """The id of the last event of an inbox up to a number."""

    async def event_number(self, since: str) -> int:
        """The number of an event, or of the first event of a message; also of removed ones.

        Raises NotFound.
        """


class KeepsWebhooks(Protocol):
    """Programs that want to be told, each delivery made by one worker at a time."""

    async def add_webhook(self, webhook: Webhook) -> None: ...
    async def webhooks(self, visible: Visible, page: Slice) -> Found[Webhook]: ...
    async def remove_webhook(self, webhook_id: str, visible: Visible) -> None:
        """Raises NotFound."""

    async def renew_webhook(
        self, webhook_id: str, secret: str, visible: Visible, now: datetime
    ) -> Webhook:
        """Give it a new secret; the old one is kept for a day. Raises NotFound."""

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        room: WebhookRoom = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        """Take what is due and there is room for; of one webhook and inbox only the oldest."""

    async def next_webhook_at(self, room: WebhookRoom = EVERY_WEBHOOK) -> datetime | None: ...
    async def settle_webhook(
        self, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
    ) -> None: ...
    async def webhook_deliveries(
        self, webhook_id: str, visible: Visible, page: Slice
    ) -> Found[WebhookDelivery]:
        """Raises NotFound."""

    async def redeliver(
        self, webhook_id: str, delivery_id: str, visible: Visible, now: datetime
    ) -> WebhookDelivery:
        """Raises NotFound, Conflict."""
