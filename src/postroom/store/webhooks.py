"""The part of the store that keeps webhooks; their secrets are encrypted in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from postroom.blocking import in_thread
from postroom.model.event import EVERY_WEBHOOK, Webhook, WebhookCapacity, WebhookJob
from postroom.model.inbox import Visible
from postroom.store.methods import AuditedStore, reads, writes
from postroom.store.sql.events import webhooks as sql_webhooks
from postroom.store.webhook_secrets import CannotDecrypt, decrypt_secret, encrypt_secret


class WebhookStore(AuditedStore):
    """Webhooks and their deliveries."""

    has_webhook = reads(sql_webhooks.has_webhook)
    webhooks = reads(sql_webhooks.list_webhooks)
    webhook = reads(sql_webhooks.get_webhook)
    remove_webhook = writes(sql_webhooks.remove_webhook)
    update_webhook = writes(sql_webhooks.update_webhook)
    next_webhook_at = reads(sql_webhooks.next_webhook_at)
    settle_webhook = writes(sql_webhooks.settle_webhook)
    webhook_deliveries = reads(sql_webhooks.list_deliveries)
    webhook_delivery = reads(sql_webhooks.get_delivery)
    redeliver = writes(sql_webhooks.redeliver)

    async def add_webhook(self, webhook: Webhook) -> None:
        encrypted = await in_thread(
            encrypt_secret, self._audit_hmac, webhook.id, webhook.secret or ""
        )
        stored = replace(webhook, secret=encrypted)
        await self.write(lambda tx: sql_webhooks.add_webhook(tx, stored), target=webhook.id)

    async def renew_webhook(
        self,
        webhook_id: str,
        secret: str,
        visible: Visible,
        now: datetime,
        *,
        made_by: str | None = None,
    ) -> Webhook:
        """Replace its secret, and its key if one is given. Raises NotFound."""
        encrypted = await in_thread(encrypt_secret, self._audit_hmac, webhook_id, secret)
        return await self.write(
            lambda tx: sql_webhooks.renew_webhook(
                tx, webhook_id, encrypted, visible, now, made_by=made_by
            )
        )

    async def webhook_target(
        self, webhook_id: str, visible: Visible, now: datetime
    ) -> tuple[str, tuple[str, ...]]:
        """Its URL and the secrets that sign; none if they cannot be decrypted. Raises NotFound."""
        url, encrypted = await self.engine.read(
            lambda tx: sql_webhooks.webhook_target(tx, webhook_id, visible, now)
        )
        return url, await in_thread(self._decrypted, webhook_id, encrypted)

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
        jobs = await self.write(
            lambda tx: sql_webhooks.claim_webhooks(
                tx, holder, now=now, until=until, limit=limit, capacity=capacity
            )
        )
        return await in_thread(self._opened, jobs) if jobs else []

    def _opened(self, jobs: Sequence[WebhookJob]) -> list[WebhookJob]:
        return [replace(job, secrets=self._decrypted(job.webhook_id, job.secrets)) for job in jobs]

    def _decrypted(self, webhook_id: str, secrets: Sequence[str]) -> tuple[str, ...]:
        try:
            return tuple(decrypt_secret(self._audit_hmac, webhook_id, each) for each in secrets)
        except CannotDecrypt:
            return ()
