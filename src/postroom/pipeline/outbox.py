"""The outbox worker: claims mail that is due, passes it to a sender, records the outcome."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from postroom.blocking import in_thread
from postroom.errors import MailError
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import (
    GIVE_UP_AFTER,
    TRANSPORTS,
    Claimed,
    OutboxJob,
    Outcome,
    Transport,
)
from postroom.model.view import only
from postroom.pipeline.apply_rules import send_refusal
from postroom.pipeline.counters import OUTCOME_COUNTERS
from postroom.pipeline.ingest import (
    Arrival,
    arrived_messages,
    parse_mails,
    restore_blobs,
    write_blobs,
)
from postroom.pipeline.routing import (
    SLOW_S,
    AccountSenders,
    CellSenders,
    NoLogin,
    inboxes_for,
    is_without_relay,
    route_all,
)
from postroom.pipeline.services import Services, wait_for_work
from postroom.ports.provider import Sender

log = logging.getLogger(__name__)

NO_LOGIN_WAIT = timedelta(seconds=10)
"""When a mail is tried again that was claimed by a process without the login for it."""

MAX_WAIT_S = 60.0
NO_RELAY = "no running process has a relay; start one with POSTROOM_RELAY_URL, or cancel the mail"
NO_LOGIN = "no running process has a password or token for {0}; run: postroom account login {0}"

LEASE = timedelta(seconds=30)
RENEW_S = 10.0
"""How often claims are renewed."""

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=4)
CELL_FIRST_WAIT = timedelta(seconds=5)
CELL_LONGEST_WAIT = timedelta(minutes=10)
CLAIM_RETRY_S = 1.0
LONGEST_CLAIM_RETRY_S = 10.0
SETTLE_RETRY_S = 1.0
GRACE_S = 1.5
"""How long a transmission may continue after the worker was stopped."""


def wait_after(
    attempts: int, first: timedelta = FIRST_WAIT, longest: timedelta = LONGEST_WAIT
) -> timedelta:
    """The wait after so many attempts: a minute, then twice as long each time."""
    return min(first * (1 << min(attempts, 16)), longest)


def claim_retry_s(failures: int) -> float:
    """The wait after so many claims failed in a row, for example because the disk is full."""
    return min(CLAIM_RETRY_S * (1 << min(failures - 1, 16)), LONGEST_CLAIM_RETRY_S)


CHANGED = Outcome("failed", "not sent: the stored mail is not the one that was allowed to be sent")


class ClaimLost(MailError):
    """Another worker has claimed the message because our lease expired."""


@dataclass(eq=False)
class Outbox:
    """The outbox worker: sends several mails concurrently and renews its claims meanwhile.

    Each route has its own limit, so that a slow relay delays only its own mail. Several processes
    may run a worker; each message is claimed by one. Without a sender and other cells it claims
    nothing that needs the relay; one that *only relays* claims nothing else.
    """

    services: Services
    sender: Sender | None
    cells: CellSenders = field(default_factory=CellSenders)
    only_relays: bool = False
    at_once: int = 8
    lease: timedelta = LEASE
    _active: dict[asyncio.Task[None], OutboxJob] = field(default_factory=dict)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _accounts: AccountSenders = field(init=False)
    _next_relay_check: float = 0.0
    _failures: int = 0
    _ended: int = 0

    def __post_init__(self) -> None:
        self._accounts = AccountSenders(self.services)

    async def run(self) -> None:
        """Send mail until cancelled; a transmission in progress may finish within a limit."""
        holder = self.services.new_id("proc")
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                position = self.services.store.notifier.position("outbox")
                if "relay" not in self._transports():
                    await self.check_unrelayed()
                if await self._start_due(holder):
                    await self._wait_for_work(position)
                else:
                    await asyncio.sleep(claim_retry_s(self._failures))
        finally:
            await self._stop()
            renewing.cancel()
            await self._accounts.close()
            await self.cells.close()
            if self.sender is not None:
                await self.sender.close()

    async def check_unrelayed(self) -> None:
        """Record, once in a while, why mail waits while no process has a relay for it.

        After 48 hours it is bounced.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next_relay_check:
            return
        self._next_relay_check = now + MAX_WAIT_S
        try:
            if await is_without_relay(self.services):
                clock = self.services.clock()
                self._count_bounced(await self.services.store.defer_unrelayed(NO_RELAY, clock))
        except MailError as error:
            log.warning("outbox.failed", extra={"error": str(error)})

    async def finish(self, within_s: float) -> None:
        """Wait until nothing is due and nothing is in progress, within a limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while await self._is_busy():
                    position = self.services.store.notifier.position("outbox")
                    await self._wait_for_work(position)

    async def _is_busy(self) -> bool:
        async with self._claiming:  # a mail that is being claimed is neither due nor active
            if self._active:
                return True
            next_at = await self.services.store.next_mail_at(self._transports())
            return next_at is not None and next_at <= self.services.clock()

    def _transports(self) -> tuple[Transport, ...]:
        if self.only_relays:
            return ("relay",)
        if self.sender is None and not self.cells:
            return ("local", "account")
        return TRANSPORTS

    def _free(self) -> dict[Transport, int]:
        """How many more mails can be started, for each route that is not full."""
        jobs = (job for job in self._active.values() if not self.cells.is_slow(job.message_id))
        active = Counter(job.transport for job in jobs)
        return {t: self.at_once - active[t] for t in self._transports() if active[t] < self.at_once}

    async def _start_due(self, holder: str) -> bool:
        """Start what is due; False if claiming failed, which is logged once."""
        free = self._free()
        if not free:
            return True
        async with self._claiming:
            claim = asyncio.create_task(self._claim(holder, free))
            try:
                claimed = await asyncio.shield(claim)
            except MailError as error:
                if not self._failures:
                    log.warning("outbox.failed", extra={"error": str(error)})
                self._failures += 1
                return False
            except asyncio.CancelledError:
                with suppress(MailError):  # we were told to stop: release what was claimed
                    for job in (await claim).jobs:
                        await self.services.store.release_mail(job)
                raise
            self._failures = 0
            for message_id, recipients in claimed.lost.items():
                self._count("outbox_unknown", recipients, message_id)
            for job in claimed.jobs:
                task = asyncio.create_task(self._process(job))
                self._active[task] = job
                task.add_done_callback(self._end)
            return True

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._active[task]
        self._ended += 1

    async def _claim(self, holder: str, free: Mapping[Transport, int]) -> Claimed:
        now = self.services.clock()
        return await self.services.store.claim_mail(
            holder,
            now=now,
            until=now + self.lease,
            free=free,
            max_per_domain=self.services.limits.domain_sends_per_hour,
            active=list(self._active.values()),
        )

    async def _wait_for_work(self, position: int) -> None:
        """Return on a notification, when a mail is done, or when the next is due."""
        ended = self._ended
        wait_s = await self._until_next()
        if ended == self._ended:  # else one is done already, and nothing would end the wait
            await wait_for_work(self.services, "outbox", position, self._active, wait_s)

    async def _until_next(self) -> float:
        free, longest_s = self._free(), SLOW_S if self.cells.is_busy else MAX_WAIT_S
        try:
            next_at = await self.services.store.next_mail_at(free) if free else None
        except MailError:
            return longest_s
        if next_at is None:
            return longest_s
        ahead = (next_at - self.services.clock()).total_seconds()
        return min(max(ahead, 0.05 if not self._active else 1.0), longest_s)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            if self._active:
                try:
                    jobs = list(self._active.values())
                    await self.services.store.renew_mail(jobs, self.services.clock() + self.lease)
                except MailError as error:
                    log.warning("outbox.failed", extra={"error": str(error)})

    async def _stop(self) -> None:
        if self._active:
            await asyncio.wait(self._active, timeout=GRACE_S)
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)

    async def _process(self, job: OutboxJob) -> None:
        try:
            if job.is_scheduled:
                await self._deliver_scheduled(job)
            else:
                await self._send(job)
        except asyncio.CancelledError:
            await self.services.store.release_mail(job)
            raise
        except ClaimLost:
            self.services.counts.failed("outbox_claims_lost", {"message_id": job.message_id})
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            context = {"message_id": job.message_id}
            self.services.counts.failed("outbox_errors", context, cause=error)
            await self._defer(job, str(error) if isinstance(error, MailError) else "see the log")

    async def _send(self, job: OutboxJob) -> None:
        """Send by the provider of the account, or by the relay and to other cells."""
        if job.account_id is None:
            inside, _ = self._split(job)
            if inside or self.sender is not None:
                await self._transmit(job, self.sender)
            else:
                await self._leave(job, NO_RELAY)
            return
        try:
            async with self._accounts.of(job.account_id) as sender:
                if sender is None:
                    await self._defer(job, "its account was removed")
                else:
                    await self._transmit(job, sender)
        except NoLogin:
            await self._leave(job, NO_LOGIN.format(job.account_id))

    async def _leave(self, job: OutboxJob, why: str) -> None:
        """Leave a mail to processes that have the login of its account, or a relay."""
        now = self.services.clock()
        self._count_bounced(
            await self.services.store.defer_mail(job, why, now=now, next_at=now + NO_LOGIN_WAIT)
        )

    async def _defer(self, job: OutboxJob, detail: str) -> None:
        """Defer recipients that were not handed over; others are settled by the next worker."""
        try:
            if await self.services.store.begin_transmission(job, ()):
                outcomes = dict.fromkeys(job.envelope.recipients, Outcome("deferred", detail))
                await self._settle(job, outcomes)
        except MailError as error:
            log.warning("outbox.failed", extra={"message_id": job.message_id, "error": str(error)})

    def _split(self, job: OutboxJob) -> tuple[list[str], list[str]]:
        """The recipients in other cells, and the others; a provider sends to all of them."""
        if job.account_id is not None:
            return [], list(job.envelope.recipients)
        return self.cells.split(job.envelope.recipients)

    async def _transmit(self, job: OutboxJob, sender: Sender | None) -> None:
        """Transmit a mail by the sender, and then to other cells, for which nothing waits."""

        async def accepted(addresses: Sequence[str]) -> None:
            if not await self.services.store.begin_transmission(job, addresses):
                raise ClaimLost(f"{job.message_id} was taken over by another worker")

        raw = await self.services.blobs.read(job.raw)
        digest = await in_thread(hashlib.sha256, raw)
        if not job.is_unchanged or digest.hexdigest() != job.raw:
            await self._refuse_changed(job)
            return
        inside, others = self._split(job)
        outcomes = dict.fromkeys(others, Outcome("deferred", NO_RELAY))
        if others and sender is not None:
            outside = replace(job.envelope, recipients=tuple(others))
            outcomes = dict(await sender.transmit(outside, raw, accepted))
        else:
            await accepted(())
        if inside:
            await self._settle_part(job, outcomes)
            cells = replace(job.envelope, recipients=tuple(inside))
            outcomes |= await self.cells.transmit(job.message_id, cells, raw)
        await self._settle(job, outcomes)
        results: Counter[str] = Counter(outcome.result for outcome in outcomes.values())
        for result, count in results.items():
            self._count(f"outbox_{result}", count, job.message_id)
        log.info("message.handed_over", extra={"message_id": job.message_id, **results})

    async def _refuse_changed(self, job: OutboxJob) -> None:
        """Do not send a mail that is not the one that passed the policies, or was approved."""
        if await self.services.store.begin_transmission(job, ()):
            await self._settle(job, dict.fromkeys(job.envelope.recipients, CHANGED))
        self._count("outbox_failed", len(job.envelope.recipients), job.message_id)

    def _count_bounced(self, recipients: Mapping[str, int]) -> None:
        for message_id, count in recipients.items():
            self._count("outbox_bounced", count, message_id)

    def _count(self, name: str, count: int, message_id: str) -> None:
        if name in OUTCOME_COUNTERS:
            self.services.counts.add(name, count)
        elif count:
            context = {"message_id": message_id, "recipients": count}
            self.services.counts.failed(name, context, count=count)

    async def _settle(self, job: OutboxJob, outcomes: Mapping[str, Outcome]) -> None:
        """Store the outcome of all recipients, and when those are tried again that are queued."""
        now = self.services.clock()
        recipients = self._recipients(job, outcomes, now)
        retry_after_s = max((outcome.retry_after for outcome in outcomes.values()), default=0)
        next_at = now + max(self._wait(job, outcomes), timedelta(seconds=retry_after_s))
        await self._until_stored(
            job,
            lambda: self.services.store.settle_mail(job, recipients, now=now, next_at=next_at),
        )
        bounced = sum(recipient.status == "bounced" for recipient in recipients.values())
        self._count("outbox_bounced", bounced, job.message_id)

    async def _settle_part(self, job: OutboxJob, outcomes: Mapping[str, Outcome]) -> None:
        """Store the outcomes that are final, before a cell may take long."""
        final = {a: outcome for a, outcome in outcomes.items() if outcome.result != "deferred"}
        now = self.services.clock()
        recipients = self._recipients(job, final, now)
        if outcomes:
            await self._until_stored(
                job, lambda: self.services.store.settle_part(job, recipients, now=now)
            )

    def _recipients(
        self, job: OutboxJob, outcomes: Mapping[str, Outcome], now: datetime
    ) -> dict[str, Recipient]:
        since = job.tried_since if job.attempts else None
        return {a: settled(a, outcome, since, now) for a, outcome in outcomes.items()}

    def _wait(self, job: OutboxJob, outcomes: Mapping[str, Outcome]) -> timedelta:
        """The wait until the next attempt; it is shorter if only other cells deferred the mail."""
        inside, _ = self._split(job)
        deferred = {a for a, outcome in outcomes.items() if outcome.result == "deferred"}
        if deferred and deferred <= set(inside):
            return wait_after(job.attempts, CELL_FIRST_WAIT, CELL_LONGEST_WAIT)
        return wait_after(job.attempts)

    async def _until_stored(self, job: OutboxJob, store: Callable[[], Awaitable[None]]) -> None:
        """Store an outcome, and retry while the database is unavailable.

        Our claim is renewed meanwhile, so no other worker sends the mail again.
        """
        is_logged = False
        while True:
            try:
                await store()
                return
            except MailError as error:
                if not is_logged:
                    context = {"message_id": job.message_id, "error": str(error)}
                    self.services.counts.failed("outbox_unsettled", context)
                is_logged = True
                await asyncio.sleep(SETTLE_RETRY_S)

    async def _deliver_scheduled(self, job: OutboxJob) -> None:
        services = self.services
        why = await send_refusal(services, job.sent_by, only(job.inbox_id))
        if why:
            await self._refuse_scheduled(job, why)
            return
        local = await inboxes_for(services, job.envelope.recipients)
        raw = await services.blobs.read(job.raw)
        inboxes = dict.fromkeys(inbox.id for inbox in local.values())
        arrivals = [Arrival(raw, inbox_id, submitted_by=job.authors) for inbox_id in inboxes]
        mails = await write_blobs(services, await parse_mails(services, [raw] * len(arrivals)))
        copies = await arrived_messages(services, arrivals, mails)
        recipients = await route_all(services, job.envelope.recipients, local, job.account_id)
        parts = (job, copies, recipients, services.clock(), services.gate)
        if not await services.store.deliver_scheduled(*parts):
            raise ClaimLost(f"{job.message_id} was taken over by another worker")
        await restore_blobs(services, mails)

    async def _refuse_scheduled(self, job: OutboxJob, why: str) -> None:
        """Record that a mail is not sent, because its key has not the right to it any more."""
        failed = {a: Recipient(a, "failed", why) for a in job.envelope.recipients}
        if not await self.services.store.deliver_scheduled(job, (), failed, self.services.clock()):
            raise ClaimLost(f"{job.message_id} was taken over by another worker")
        self._count("outbox_failed", len(failed), job.message_id)


def settled(
    address: str, outcome: Outcome, tried_since: datetime | None, now: datetime
) -> Recipient:
    """The status of a recipient after an attempt; after 48 hours it is bounced."""
    if outcome.result != "deferred":
        return Recipient(address, outcome.result, outcome.detail)
    if tried_since is not None and now - tried_since >= GIVE_UP_AFTER:
        return Recipient(address, "bounced", f"abandoned after 48 hours: {outcome.detail}")
    return Recipient(address, "queued", outcome.detail)
