"""Events, the notifier that announces them, and webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Protocol

from postroom.model.event import (
    EVERY_WEBHOOK,
    Event,
    EventQuery,
    Posted,
    Webhook,
    WebhookCapacity,
    WebhookDelivery,
    WebhookJob,
)
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice

Topic = Literal["accounts", "events", "outbox", "webhooks", "rule_jobs", "keys", "heartbeats"]
"""What a commit can announce."""


class Notifier(Protocol):
    """Counts the commits that announced a topic, in every process on the same data.

    To miss nothing, read `position` first, then the data, and then wait for a higher position.
    """

    def position(self, topic: Topic) -> int:
        """The number of announcements since this process subscribed, which this call does."""

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return the new position once it is higher than *seen*."""


class EventStore(Protocol):
    """Events, and the notifier that wakes those who wait for them."""

    @property
    def notifier(self) -> Notifier: ...
    async def events(self, query: EventQuery) -> Found[Event]: ...
    async def events_after(self, after: int, *, limit: int, visible: Visible) -> list[Event]:
        """The next events of the visible inboxes after a number."""

    async def newest_event(self, visible: Visible) -> int:
        """The number of the last event of the visible inboxes; 0 if there is none."""

    async def last_event(self, inbox_id: str, until: int) -> str | None:
        """The id of the last event of an inbox up to a number."""

    async def event_number(self, since: str, visible: Visible) -> int:
        """The number of an event, or of the first event of a message, even if it was removed.

        Raises NotFound, also if it is of an inbox that is not visible.
        """


class WebhookStore(Protocol):
    """Webhooks and their deliveries, each claimed by one worker at a time."""

    async def add_webhook(self, webhook: Webhook) -> None: ...
    async def has_webhook(self, webhook_id: str, visible: Visible) -> bool:
        """Whether there is such a webhook in this view."""

    async def webhooks(self, visible: Visible, page: Slice) -> Found[Webhook]: ...
    async def remove_webhook(self, webhook_id: str, visible: Visible) -> None:
        """Raises NotFound."""

    async def renew_webhook(
        self, webhook_id: str, secret: str, visible: Visible, now: datetime
    ) -> Webhook:
        """Replace its secret; the old one stays valid for a day. Raises NotFound."""

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        capacity: WebhookCapacity = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        """Claim deliveries that are due and fit *capacity*; per webhook and inbox the oldest."""

    async def next_webhook_at(
        self, capacity: WebhookCapacity = EVERY_WEBHOOK
    ) -> datetime | None: ...
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


class WebhookClient(Protocol):
    """Posts to untrusted servers."""

    def check(self, url: str) -> None:
        """Raise InvalidInput if the URL is not permitted."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Post once; redirects are not followed. Does not raise."""


class NoWebhookClient:
    """For an installation without webhooks."""

    def check(self, url: str) -> None:
        """Permit every URL: none is called."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        return Posted(None, "webhooks are not available here")
