"""Webhook deliveries: signed, in order, at least once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta

from postroom.errors import MailError
from postroom.mail.text.display import sanitised
from postroom.model.event import SIGNING_PREFIX, Event, WebhookCapacity, WebhookJob, WebhookResponse
from postroom.model.mail.message import MessageRow
from postroom.model.view import only
from postroom.pipeline.apply_rules import webhook_refusal
from postroom.pipeline.services import Services, wait_for_work

log = logging.getLogger(__name__)

GIVE_UP_AFTER = timedelta(hours=24)
LEASE = timedelta(seconds=60)
MAX_WAIT_S = 60.0
_NOT_SIGNED = (
    "the secret of this webhook cannot be decrypted; restore audit.key, or run `postroom webhook "
    "renew {}`"
)
_FIRST_WAIT = timedelta(seconds=5)
_LONGEST_WAIT = timedelta(hours=4)


def sign(secret: str, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The signature of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix(SIGNING_PREFIX))
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


_SHOWN = ("id", "type", "at", "inbox_id", "thread_id", "message_id", "data")


def payload(event: Event, message: MessageRow | None = None) -> bytes:
    """The body of a delivery: the event as every surface shows it, with its message as a row."""
    at = _moment(event.at)
    shape: dict[str, object] = {name: getattr(event, name) for name in _SHOWN} | {"at": at}
    if message is not None:
        shape["message"] = _row(message)
    return _body(event.type, at, {"untrusted": True, **shape})


async def body_of(services: Services, event: Event) -> bytes:
    """The body of a delivery of an event, with its message as it is now."""
    message = None
    if event.message_id is not None:
        message = await services.store.message_row(event.message_id)
    return payload(event, message)


def _body(kind: str, at: str, data: dict[str, object]) -> bytes:
    body = {"type": kind, "timestamp": at, "data": data}
    return json.dumps(sanitised(body), ensure_ascii=False, separators=(",", ":")).encode()


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"


def _row(message: MessageRow) -> dict[str, object]:
    """A row of a list in JSON, without what is empty."""
    values = {f.name: getattr(message, f.name) for f in fields(message)}
    return {
        name: _moment(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value not in (None, "", ())
    }


def signed_headers(
    delivery_id: str, timestamp: int, body: bytes, secrets: Sequence[str]
) -> dict[str, str]:
    """The headers of Standard Webhooks; each secret signs."""
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(s, delivery_id, timestamp, body) for s in secrets),
    }


PING = "webhook.ping"


async def ping(
    services: Services, webhook_id: str, url: str, secrets: Sequence[str]
) -> WebhookResponse:
    """Post a signed request that is about no mail."""
    if not secrets:
        return WebhookResponse(None, _NOT_SIGNED.format(webhook_id))
    now = services.clock()
    body = _body(PING, _moment(now), {"webhook_id": webhook_id})
    headers = signed_headers(services.new_id("evt"), int(now.timestamp()), body, secrets)
    return await services.webhook_client.post(url, headers, body)


def wait_after(attempts: int) -> timedelta:
    """Five seconds, then four times as long each time, up to four hours."""
    return min(_FIRST_WAIT * (1 << min(2 * attempts, 20)), _LONGEST_WAIT)


@dataclass(eq=False)
class Webhooks:
    """The webhook worker; several processes may run one, and each delivery is made by one."""

    services: Services
    at_once: int = 64
    at_once_each: int = 4
    _active: set[asyncio.Task[None]] = field(default_factory=set)
    _in_progress: Counter[int] = field(default_factory=Counter)

    async def run(self) -> None:
        """Deliver until cancelled; an interrupted delivery is made again by the next worker."""
        holder = self.services.new_id("proc")
        try:
            while True:
                position = self.services.store.notifier.position("webhooks")
                try:
                    await self._start_due(holder)
                    wait_s = await self._until_next()
                except MailError as error:
                    log.warning("webhooks.failed", extra={"error": str(error)})
                    wait_s = MAX_WAIT_S
                await wait_for_work(self.services, "webhooks", position, self._active, wait_s)
        finally:
            for task in self._active:
                task.cancel()
            await asyncio.gather(*self._active, return_exceptions=True)

    async def _start_due(self, holder: str) -> None:
        free = self.at_once - len(self._active)
        if not free:
            return
        now = self.services.clock()
        jobs = await self.services.store.claim_webhooks(
            holder, now=now, until=now + LEASE, limit=free, capacity=self._capacity()
        )
        for job in jobs:
            task = asyncio.create_task(self._deliver(job))
            self._active.add(task)
            self._in_progress[job.webhook] += 1
            task.add_done_callback(self._active.discard)

    def _capacity(self) -> WebhookCapacity:
        """The limit for each webhook, so that a slow one delays only itself."""
        return WebhookCapacity(self.at_once_each, dict(self._in_progress))

    async def _until_next(self) -> float:
        next_at = await self.services.store.next_webhook_at(self._capacity())
        if next_at is None or len(self._active) >= self.at_once:
            return MAX_WAIT_S
        ahead = (next_at - self.services.clock()).total_seconds()
        return min(max(ahead, 0.2), MAX_WAIT_S)

    async def _deliver(self, job: WebhookJob) -> None:
        try:
            stopped = job.event and await webhook_refusal(
                self.services, job.made_by, only(job.event.inbox_id)
            )
            posted = await self._attempt(job) if not stopped else WebhookResponse(None, stopped)
            now = self.services.clock()
            is_last = job.event is None or now - job.first_at >= GIVE_UP_AFTER or bool(stopped)
            next_at = None if is_last else now + wait_after(job.attempts)
            self._count(job, posted, is_last=is_last)
            await self.services.store.settle_webhook(job, posted, now=now, next_at=next_at)
        except MailError as error:
            log.warning("webhooks.failed", extra={"error": str(error)})
        except Exception:
            log.exception("webhooks.failed")
        finally:
            self._in_progress[job.webhook] -= 1

    async def _attempt(self, job: WebhookJob) -> WebhookResponse:
        """The result of an attempt; any failure is a result, and tried again later."""
        if job.event is None:
            return WebhookResponse(None, "the event was removed with its message")
        if not job.secrets:
            return WebhookResponse(None, _NOT_SIGNED.format(job.webhook_id))
        try:
            return await self._post(job, job.event)
        except Exception:
            log.exception("webhooks.failed")
            return WebhookResponse(None, "internal error; see the log")

    def _count(self, job: WebhookJob, posted: WebhookResponse, *, is_last: bool) -> None:
        if posted.is_success:
            self.services.counts.add("webhooks_delivered")
            return
        delivery = {"delivery_id": job.delivery_id, "event_id": job.event and job.event.id}
        answer = {"code": posted.code, "error": posted.detail}
        self.services.counts.failed("webhooks_failed", {**delivery, **answer})
        if is_last:
            self.services.counts.failed("webhooks_dead", delivery)

    async def _post(self, job: WebhookJob, event: Event) -> WebhookResponse:
        body = await body_of(self.services, event)
        timestamp = int(self.services.clock().timestamp())
        headers = signed_headers(event.id, timestamp, body, job.secrets)
        return await self.services.webhook_client.post(job.url, headers, body)
