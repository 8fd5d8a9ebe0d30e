"""Events are told to webhooks: signed, in order, at least once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from postroom.errors import MailError
from postroom.model.event import Event
from postroom.model.webhook import SIGNING_PREFIX, Posted, WebhookJob, WebhookRoom
from postroom.pipeline.house import House

log = logging.getLogger(__name__)

GIVE_UP_AFTER = timedelta(hours=24)
LEASE = timedelta(seconds=60)
LOOK_AGAIN_S = 60.0
_FIRST_WAIT = timedelta(seconds=5)
_LONGEST_WAIT = timedelta(hours=4)


def sign(secret: str, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The signature of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix(SIGNING_PREFIX))
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def payload(event: Event) -> bytes:
    """What a webhook is told: the event as every surface shows it."""
    at = event.at.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"
    shape: dict[str, object] = {
        "id": event.id,
        "type": event.type,
        "at": at,
        "inbox_id": event.inbox_id,
        "thread_id": event.thread_id,
        "message_id": event.message_id,
        "data": event.data,
    }
    told = {"type": event.type, "timestamp": at, "data": {"untrusted": True, **shape}}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def wait_after(attempts: int) -> timedelta:
    """Five seconds, then four times as long each time, up to four hours."""
    return min(_FIRST_WAIT * (1 << min(2 * attempts, 20)), _LONGEST_WAIT)


@dataclass(eq=False)
class Webhooks:
    """One worker; several processes may run one, and a delivery is made by one of them."""

    house: House
    at_once: int = 64
    at_once_each: int = 4
    _active: set[asyncio.Task[None]] = field(default_factory=set)
    _under_way: Counter[int] = field(default_factory=Counter)

    async def run(self) -> None:
        """Work until cancelled; what was under way then is told again by whoever comes next."""
        holder = self.house.new_id("proc")
        try:
            while True:
                rung = self.house.store.bell.rung("webhooks")
                try:
                    await self._start_due(holder)
                    wait_s = await self._until_next()
                except MailError as error:
                    log.warning("webhooks.failed", extra={"error": str(error)})
                    wait_s = LOOK_AGAIN_S
                bell = asyncio.ensure_future(self.house.store.bell.wait("webhooks", rung))
                await asyncio.wait(
                    [bell, *self._active], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                bell.cancel()
        finally:
            for task in self._active:
                task.cancel()
            await asyncio.gather(*self._active, return_exceptions=True)

    async def _start_due(self, holder: str) -> None:
        free = self.at_once - len(self._active)
        if not free:
            return
        now = self.house.clock()
        jobs = await self.house.store.claim_webhooks(
            holder, now=now, until=now + LEASE, limit=free, room=self._room()
        )
        for job in jobs:
            task = asyncio.create_task(self._tell(job))
            self._active.add(task)
            self._under_way[job.webhook] += 1
            task.add_done_callback(partial(self._is_told, job.webhook))

    def _is_told(self, webhook: int, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        self._under_way[webhook] -= 1

    def _room(self) -> WebhookRoom:
        """One that does not answer holds up itself alone."""
        return WebhookRoom(self.at_once_each, dict(self._under_way))

    async def _until_next(self) -> float:
        next_at = await self.house.store.next_webhook_at(self._room())
        if next_at is None or len(self._active) >= self.at_once:
            return LOOK_AGAIN_S
        ahead = (next_at - self.house.clock()).total_seconds()
        return min(max(ahead, 0.2), LOOK_AGAIN_S)

    async def _tell(self, job: WebhookJob) -> None:
        try:
            posted = await self._posted(job)
            now = self.house.clock()
            next_at = None if job.event is None else _next(job, now)
            self._count(job, posted, is_over=next_at is None)
            await self.house.store.settle_webhook(job, posted, now=now, next_at=next_at)
        except MailError as error:
            log.warning("webhooks.failed", extra={"error": str(error)})
        except Exception:
            log.exception("webhooks.failed")

    async def _posted(self, job: WebhookJob) -> Posted:
        """What became of an attempt: whatever goes wrong, it is over and told again later."""
        try:
            return await self._post(job)
        except Exception:
            log.exception("webhooks.failed")
            return Posted(None, "it could not be told; our log says why")

    def _count(self, job: WebhookJob, posted: Posted, *, is_over: bool) -> None:
        if posted.is_taken:
            self.house.counts.add("webhooks_told")
            return
        delivery = {"delivery_id": job.delivery_id, "event_id": job.event and job.event.id}
        answer = {"code": posted.code, "error": posted.detail}
        self.house.counts.failed("webhooks_failed", {**delivery, **answer})
        if is_over:
            self.house.counts.failed("webhooks_dead", delivery)

    async def _post(self, job: WebhookJob) -> Posted:
        if job.event is None:
            return Posted(None, "the event is gone: its message was removed")
        timestamp = int(self.house.clock().timestamp())
        body = payload(job.event)
        signatures = [sign(s, job.event.id, timestamp, body) for s in job.secrets]
        headers = {
            "Content-Type": "application/json",
            "webhook-id": job.event.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(signatures),
        }
        return await self.house.poster.post(job.url, headers, body)


def _next(job: WebhookJob, now: datetime) -> datetime | None:
    if now - job.first_at >= GIVE_UP_AFTER:
        return None
    return now + wait_after(job.attempts)
