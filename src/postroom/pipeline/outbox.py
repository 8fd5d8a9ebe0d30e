"""Mail goes out: due messages are claimed, handed over to the relay, and settled."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.errors import MailError
from postroom.model.message import Recipient
from postroom.model.outbox import GIVE_UP_AFTER, WAYS, Claimed, OutboxJob, Outcome, Way
from postroom.pipeline.account_senders import AccountSenders, NoLogin
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.counts import HAPPENED
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away
from postroom.pipeline.routing import route_all
from postroom.pipeline.untaken import Untaken
from postroom.ports.sender import Sender

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
RENEW_S = 10.0
LOOK_AGAIN_S = 60.0
"""However long there is nothing to do: clocks are set, and machines sleep."""

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=4)
CLAIM_AGAIN_S = 1.0
LONGEST_CLAIM_AGAIN_S = 10.0
SETTLE_AGAIN_S = 1.0
GRACE_S = 1.5
"""How long a mail that is being handed over may take when we are asked to stop."""


def wait_after(attempts: int) -> timedelta:
    """How long to wait after so many attempts: a minute, then twice as long each time."""
    return min(FIRST_WAIT * (1 << min(attempts, 16)), LONGEST_WAIT)


def claim_again_s(failures: int) -> float:
    """How long to wait after so many claims failed in a row: a full disk stays full for a while."""
    return min(CLAIM_AGAIN_S * (1 << min(failures - 1, 16)), LONGEST_CLAIM_AGAIN_S)


class ClaimLost(MailError):
    """Somebody else has taken a message over because we seemed to be gone."""


@dataclass(eq=False)
class Outbox:
    """One worker: it hands over several mails at once and renews its claims while it does.

    Each way out has as many places of its own, so that a relay that hangs holds up only its own.
    Several processes may run one; a message is claimed by one of them. Without a sender it takes
    nothing that needs the relay: another process may have one. One that *only relays* leaves the
    rest to those.
    """

    house: House
    sender: Sender | None
    only_relays: bool = False
    at_once: int = 8
    lease: timedelta = LEASE
    _active: dict[asyncio.Task[None], OutboxJob] = field(default_factory=dict)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _accounts: AccountSenders = field(init=False)
    _untaken: Untaken = field(init=False)
    _failures: int = 0

    def __post_init__(self) -> None:
        self._accounts = AccountSenders(self.house)
        self._untaken = Untaken(self.house)

    async def run(self) -> None:
        """Work until cancelled; what is being handed over then gets a moment to end."""
        holder = self.house.new_id("proc")
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                rung = self.house.store.bell.rung("outbox")
                if self.sender is None:
                    self._gave_up(await self._untaken.look())
                if await self._start_due(holder):
                    await self._something_to_do(rung)
                else:
                    await asyncio.sleep(claim_again_s(self._failures))
        finally:
            await self._stop()
            renewing.cancel()
            await self._accounts.close()
            if self.sender is not None:
                await self.sender.close()

    async def finish(self, within_s: float) -> None:
        """Wait until nothing is due and nothing is being handed over, but no longer than told."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while await self._is_busy():
                    rung = self.house.store.bell.rung("outbox")
                    await self._something_to_do(rung)

    async def _is_busy(self) -> bool:
        async with self._claiming:  # what is being claimed is neither due nor begun
            return bool(self._active) or await self._is_due()

    async def _is_due(self) -> bool:
        next_at = await self.house.store.next_mail_at(self._ways())
        return next_at is not None and next_at <= self.house.clock()

    def _ways(self) -> tuple[Way, ...]:
        if self.only_relays:
            return ("relay",)
        if self.sender is None:
            return ("house", "account")
        return WAYS

    def _free(self) -> dict[Way, int]:
        """How many more mails can be begun, by each way that has room."""
        taken = Counter(job.way for job in self._active.values())
        return {w: self.at_once - taken[w] for w in self._ways() if taken[w] < self.at_once}

    async def _start_due(self, holder: str) -> bool:
        """Begin with what is due; False if it cannot be claimed now, which is told once."""
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
                await self._give_back(claim)
                raise
            self._failures = 0
            for message_id, recipients in claimed.lost.items():
                self._count("outbox_unknown", recipients, message_id)
            for job in claimed.jobs:
                task = asyncio.create_task(self._do(job))
                self._active[task] = job
                task.add_done_callback(self._active.pop)
            return True

    async def _claim(self, holder: str, free: Mapping[Way, int]) -> Claimed:
        now = self.house.clock()
        return await self.house.store.claim_mail(
            holder,
            now=now,
            until=now + self.lease,
            free=free,
            most_per_domain=self.house.limits.domain_sends_per_hour,
            active=list(self._active.values()),
        )

    async def _give_back(self, claim: asyncio.Task[Claimed]) -> None:
        """We are to stop, and what is claimed at this moment is not to wait for its lease."""
        with suppress(MailError):
            for job in (await claim).jobs:
                await self.house.store.release_mail(job)

    async def _something_to_do(self, rung: int) -> None:
        """Return when the bell rings, a mail is done, or the next is due."""
        bell = asyncio.ensure_future(self.house.store.bell.wait("outbox", rung))
        try:
            await asyncio.wait(
                [bell, *self._active],
                timeout=await self._until_next(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            bell.cancel()

    async def _until_next(self) -> float:
        free = self._free()
        try:
            next_at = await self.house.store.next_mail_at(free) if free else None
        except MailError:
            return LOOK_AGAIN_S
        if next_at is None:
            return LOOK_AGAIN_S
        ahead = (next_at - self.house.clock()).total_seconds()
        return min(max(ahead, 0.05 if not self._active else 1.0), LOOK_AGAIN_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            if self._active:
                try:
                    jobs = list(self._active.values())
                    await self.house.store.renew_mail(jobs, self.house.clock() + self.lease)
                except MailError as error:
                    log.warning("outbox.failed", extra={"error": str(error)})

    async def _stop(self) -> None:
        if self._active:
            await asyncio.wait(self._active, timeout=GRACE_S)
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)

    async def _do(self, job: OutboxJob) -> None:
        try:
            if job.is_scheduled:
                await self._deliver_scheduled(job)
            else:
                await self._take_out(job)
        except asyncio.CancelledError:
            await self.house.store.release_mail(job)
            raise
        except ClaimLost:
            self.house.counts.failed("outbox_claims_lost", {"message_id": job.message_id})
        except Exception as error:  # noqa: BLE001 - it is tried again, and the log says why
            about = {"message_id": job.message_id}
            self.house.counts.failed("outbox_errors", about, cause=error)
            await self._defer(job, str(error) if isinstance(error, MailError) else "see the log")

    async def _take_out(self, job: OutboxJob) -> None:
        """By the provider of the account it is from, or by the relay."""
        way = self._accounts.of(job.account_id) if job.account_id else nullcontext(self.sender)
        try:
            async with way as sender:
                if sender is None:
                    await self._defer(job, "its account is gone")
                else:
                    await self._hand_over(job, sender)
        except NoLogin:
            self._gave_up(await self._untaken.leave(job))

    async def _defer(self, job: OutboxJob, detail: str) -> None:
        """Try again later what was not handed over; the rest is left for whoever comes after us."""
        try:
            if await self.house.store.begin_handing_over(job, ()):
                outcomes = dict.fromkeys(job.envelope.recipients, Outcome("deferred", detail))
                await self._settle(job, outcomes)
        except MailError as error:
            log.warning("outbox.failed", extra={"message_id": job.message_id, "error": str(error)})

    async def _hand_over(self, job: OutboxJob, sender: Sender) -> None:
        async def accepted(addresses: Sequence[str]) -> None:
            if not await self.house.store.begin_handing_over(job, addresses):
                raise ClaimLost(f"{job.message_id} was taken over by another worker")

        raw = await self.house.blobs.read(job.raw)
        outcomes = await sender.hand_over(job.envelope, raw, accepted)
        await self._settle(job, outcomes)
        told: Counter[str] = Counter(outcome.verdict for outcome in outcomes.values())
        for verdict, count in told.items():
            self._count(f"outbox_{verdict}", count, job.message_id)
        log.info("message.handed_over", extra={"message_id": job.message_id, **told})

    def _gave_up(self, recipients: Mapping[str, int]) -> None:
        for message_id, count in recipients.items():
            self._count("outbox_bounced", count, message_id)

    def _count(self, name: str, count: int, message_id: str) -> None:
        if name in HAPPENED:
            self.house.counts.add(name, count)
        elif count:
            about = {"message_id": message_id, "recipients": count}
            self.house.counts.failed(name, about, count=count)

    async def _settle(self, job: OutboxJob, outcomes: Mapping[str, Outcome]) -> None:
        """Write down what we know, however long there is no room or no database.

        The mail is still ours meanwhile: nobody hands it over again.
        """
        now = self.house.clock()
        tried_since = job.tried_since if job.attempts else None
        recipients = {
            address: settled(address, outcome, tried_since, now)
            for address, outcome in outcomes.items()
        }
        told_s = max((outcome.retry_after for outcome in outcomes.values()), default=0)
        next_at = now + max(wait_after(job.attempts), timedelta(seconds=told_s))
        given_up = sum(recipient.status == "bounced" for recipient in recipients.values())
        is_said = False
        while True:
            try:
                await self.house.store.settle_mail(job, recipients, now=now, next_at=next_at)
            except MailError as error:
                if not is_said:
                    about = {"message_id": job.message_id, "error": str(error)}
                    self.house.counts.failed("outbox_unsettled", about)
                is_said = True
                await asyncio.sleep(SETTLE_AGAIN_S)
            else:
                break
        self._count("outbox_bounced", given_up, job.message_id)

    async def _deliver_scheduled(self, job: OutboxJob) -> None:
        house = self.house
        local = await inboxes_for(house, job.envelope.recipients)
        raw = await house.blobs.read(job.raw)
        (parsed,) = await house.parser.parse([raw])
        inboxes = dict.fromkeys(inbox.id for inbox in local.values())
        arrivals = [(Arrival(raw, inbox_id), parsed) for inbox_id in inboxes]
        recipients = await route_all(house, job.envelope.recipients, local, job.account_id)
        async with put_away(house, arrivals) as copies:
            if not await house.store.deliver_scheduled(job, copies, recipients, house.clock()):
                raise ClaimLost(f"{job.message_id} was taken over by another worker")


def settled(
    address: str, outcome: Outcome, tried_since: datetime | None, now: datetime
) -> Recipient:
    """What we say of a recipient after an attempt; so long after the first we give up."""
    if outcome.verdict != "deferred":
        return Recipient(address, outcome.verdict, outcome.detail)
    if tried_since is not None and now - tried_since >= GIVE_UP_AFTER:
        return Recipient(address, "bounced", f"given up after 48 hours: {outcome.detail}")
    return Recipient(address, "queued", outcome.detail)
