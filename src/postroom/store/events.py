"""The part of the store that knows what happened and whom to tell; see `ports.events`."""

from __future__ import annotations

from datetime import datetime

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
from postroom.store.audited import Audited
from postroom.store.sql import events, webhook_log, webhooks


class SqlEvents(Audited):
    """Each method is one function of `store.sql`, run in one transaction."""

    async def events(self, query: EventQuery) -> Found[Event]:
        return await self._engine.read(lambda tx: events.find_events(tx, query))

    async def events_after(self, after: int, *, limit: int, visible: Visible = None) -> list[Event]:
        return await self._engine.read(
            lambda tx: events.events_after(tx, after, limit=limit, visible=visible)
        )

    async def newest_event(self, visible: Visible = None) -> int:
        return await self._engine.read(lambda tx: events.newest_event(tx, visible))

    async def last_event(self, inbox_id: str, until: int) -> str | None:
        return await self._engine.read(lambda tx: events.last_event(tx, inbox_id, until))

    async def event_number(self, since: str) -> int:
        return await self._engine.read(lambda tx: events.event_number(tx, since))

    async def add_webhook(self, webhook: Webhook) -> None:
        await self._write(lambda tx: webhooks.add_webhook(tx, webhook), about=webhook.id)

    async def webhooks(self, visible: Visible, page: Slice) -> Found[Webhook]:
        return await self._engine.read(lambda tx: webhooks.list_webhooks(tx, visible, page))

    async def remove_webhook(self, webhook_id: str, visible: Visible) -> None:
        await self._write(lambda tx: webhooks.remove_webhook(tx, webhook_id, visible))

    async def renew_webhook(
        self, webhook_id: str, secret: str, visible: Visible, now: datetime
    ) -> Webhook:
        return await self._write(
            lambda tx: webhooks.renew_webhook(tx, webhook_id, secret, visible, now)
        )

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        room: WebhookRoom = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        return await self._write(
            lambda tx: webhooks.claim_webhooks(
                tx, holder, now=now, until=until, limit=limit, room=room
            )
        )

    async def next_webhook_at(self, room: WebhookRoom = EVERY_WEBHOOK) -> datetime | None:
        return await self._engine.read(lambda tx: webhooks.next_webhook_at(tx, room))

    async def settle_webhook(
        self, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
    ) -> None:
        await self._write(
            lambda tx: webhooks.settle_webhook(tx, job, posted, now=now, next_at=next_at)
        )

    async def webhook_deliveries(
        self, webhook_id: str, visible: Visible, page: Slice
    ) -> Found[WebhookDelivery]:
        return await self._engine.read(
            lambda tx: webhook_log.list_deliveries(tx, webhook_id, visible, page)
        )

    async def redeliver(
        self, webhook_id: str, delivery_id: str, visible: Visible, now: datetime
    ) -> WebhookDelivery:
        return await self._write(
            lambda tx: webhook_log.redeliver(tx, webhook_id, delivery_id, visible, now)
        )
