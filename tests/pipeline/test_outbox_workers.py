"""Workers that die, lose their claims or are stopped neither lose nor repeat mail."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import MailError, StorageFull
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import Claimed
from postroom.operations.outgoing.drafts import create_draft, send_draft
from postroom.operations.outgoing.outbox import cancel_message, list_outbox
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline.outbox import Outbox, claim_retry_s
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from postroom.store.store import Store
from tests.mails import SOME
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import OUTGOING, all_sent, relay_worker, send, statuses, until
from tests.servers.relay import relaying


async def test_mail_of_a_worker_that_died_before_sending_is_sent_by_another(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    sent = await send(outbox_ctx)
    await outbox_ctx.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(30), free=SOME, max_per_domain=9
    )
    clock.now += timedelta(days=31)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):

        async def is_out() -> bool:
            return (await statuses(outbox_ctx, sent)) == {"ana@example.com": "sent"}

        await until(outbox_ctx, is_out)

    assert 1 == len(relay.mails)


async def test_mail_of_a_worker_that_died_while_sending_is_unknown(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    sent = await send(outbox_ctx, to=["a@x.org", "b@x.org"])
    claimed = await outbox_ctx.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(seconds=30), free=SOME, max_per_domain=9
    )
    [job] = claimed.jobs
    assert await outbox_ctx.store.begin_transmission(job, ["a@x.org"])
    clock.now += timedelta(seconds=31)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):

        async def is_over() -> bool:
            return "queued" not in (await statuses(outbox_ctx, sent)).values()

        await until(outbox_ctx, is_over)

    assert {"a@x.org": "unknown", "b@x.org": "sent"} == await statuses(outbox_ctx, sent)
    assert [["b@x.org"]] == [mail.recipients for mail in relay.mails]


async def test_a_lost_claim_stops_the_mail_before_it_is_sent(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    await send(outbox_ctx)
    slow = await outbox_ctx.store.claim_mail(
        "slow", now=clock(), until=clock(), free=SOME, max_per_domain=9
    )
    quick = await outbox_ctx.store.claim_mail(
        "quick", now=clock(), until=clock() + timedelta(1), free=SOME, max_per_domain=9
    )

    assert not await outbox_ctx.store.begin_transmission(slow.jobs[0], ["ana@example.com"])
    assert await outbox_ctx.store.begin_transmission(quick.jobs[0], ["ana@example.com"])


async def test_an_outcome_is_stored_when_the_database_is_available_again(
    outbox_ctx: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = outbox_ctx.store.settle_mail, iter([MailError("away"), StorageFull("full")])

    async def settle_late(*given: Any, **named: Any) -> None:
        for error in failures:
            raise error
        await settle(*given, **named)

    monkeypatch.setattr(outbox_ctx.store, "settle_mail", settle_late)
    monkeypatch.setattr("postroom.pipeline.outbox.SETTLE_RETRY_S", 0.01)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, wait_s=10)

    assert ("sent", 1) == (sent.status, len(relay.mails))


async def test_a_full_disk_is_logged_once_and_sending_resumes_after_it(
    outbox_ctx: RequestContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim, failures = outbox_ctx.store.claim_mail, iter([StorageFull("full")] * 5)

    async def claim_late(*given: Any, **named: Any) -> Claimed:
        for error in failures:
            raise error
        return await claim(*given, **named)

    monkeypatch.setattr(outbox_ctx.store, "claim_mail", claim_late)
    monkeypatch.setattr("postroom.pipeline.outbox.CLAIM_RETRY_S", 0.01)
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, wait_s=10)

    told = [record for record in caplog.records if record.message == "outbox.failed"]
    assert ("sent", 1) == (sent.status, len(told))


def test_a_failing_claim_is_retried_with_backoff() -> None:
    assert [1, 2, 4, 8, 10, 10] == [claim_retry_s(failures) for failures in range(1, 7)]


async def test_a_worker_reclaims_mail_that_it_failed_to_release(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    """Its own claim, on which it no longer works, expires like that of a dead worker."""
    await send(outbox_ctx)
    lease = {"until": clock() + timedelta(seconds=30), "free": SOME, "max_per_domain": 9}
    first = await outbox_ctx.store.claim_mail("one", now=clock(), **lease)
    clock.now += timedelta(seconds=30)
    lease["until"] = clock() + timedelta(seconds=30)
    busy = await outbox_ctx.store.claim_mail("one", now=clock(), active=first.jobs, **lease)
    clock.now += timedelta(seconds=30)
    idle = await outbox_ctx.store.claim_mail("one", now=clock(), **lease)

    assert (1, 0, 1) == (len(first.jobs), len(busy.jobs), len(idle.jobs))


async def test_a_worker_that_lost_a_scheduled_mail_does_not_deliver_it_again(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    at = (clock() + timedelta(minutes=1)).isoformat()
    draft = await call(outbox_ctx, create_draft, {**OUTGOING, "send_at": at})
    sent = await call(outbox_ctx, send_draft, {"draft_id": draft.id})
    clock.now += timedelta(minutes=1)
    lease = {"now": clock(), "free": SOME, "max_per_domain": 9}
    slow = await outbox_ctx.store.claim_mail("slow", until=clock(), **lease)
    queued = {"ana@example.com": Recipient("ana@example.com", "queued")}
    async with relaying() as relay, relay_worker(outbox_ctx, relay):
        await until(outbox_ctx, lambda: all_sent(outbox_ctx, [sent]))
        was_delivered = await outbox_ctx.store.deliver_scheduled(slow.jobs[0], [], queued, clock())

    assert (1, False) == (len(relay.mails), was_delivered)
    assert {"ana@example.com": "sent"} == await statuses(outbox_ctx, sent)


async def test_a_worker_stopped_during_a_claim_releases_it(
    outbox_ctx: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await call(outbox_ctx, send_message, OUTGOING)
    claim, begun, may_end = type(outbox_ctx.store).claim_mail, asyncio.Event(), asyncio.Event()

    async def slow(self: Any, *args: Any, **options: Any) -> Claimed:
        claimed = await claim(self, *args, **options)
        begun.set()
        await may_end.wait()
        return claimed

    monkeypatch.setattr(type(outbox_ctx.store), "claim_mail", slow)
    outbox = Outbox(
        outbox_ctx, SmtpRelay(parse_relay_url("smtp://127.0.0.1:9"), "postroom.localhost")
    )
    work = asyncio.create_task(outbox.run())
    await begun.wait()
    finishing = asyncio.create_task(outbox.finish(60))
    await asyncio.sleep(0)
    work.cancel()
    await asyncio.sleep(0)
    is_finished = finishing.done()
    may_end.set()
    await asyncio.gather(work, return_exceptions=True)
    finishing.cancel()
    await asyncio.gather(finishing, return_exceptions=True)

    assert not is_finished
    assert (
        "failed" == (await call(outbox_ctx, cancel_message, {"message_id": sent.message_id})).status
    )


async def test_many_workers_send_each_mail_once(outbox_ctx: RequestContext) -> None:
    async with (
        relaying() as relay,
        relay_worker(outbox_ctx, relay),
        relay_worker(outbox_ctx, relay),
        relay_worker(outbox_ctx, relay),
    ):
        sends = [await send(outbox_ctx, subject=f"{number}") for number in range(40)]

        async def all_out() -> bool:
            return not (await call(outbox_ctx, list_outbox, {})).total

        await until(outbox_ctx, all_out)

    assert 40 == len(relay.mails) == len({sent.message_id for sent in sends})


async def test_a_mail_that_completes_during_a_claim_ends_the_wait(
    outbox_ctx: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_mail_at, transmit = Store.next_mail_at, SmtpRelay.transmit
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def looks_until_all_are_done(store: Store, transports: Any) -> Any:
        if asyncio.current_task() is waiting:
            may_end.set()
            await asyncio.gather(*outbox._active)
        return await next_mail_at(store, transports)

    async def ends_late(sender: SmtpRelay, *mail: Any) -> Any:
        has_begun.set()
        await may_end.wait()
        return await transmit(sender, *mail)

    monkeypatch.setattr(SmtpRelay, "transmit", ends_late)
    async with relaying() as relay, relay_worker(outbox_ctx, relay) as outbox:
        sent = await send(outbox_ctx)
        await asyncio.wait_for(has_begun.wait(), 60)
        monkeypatch.setattr(Store, "next_mail_at", looks_until_all_are_done)
        waiting = asyncio.create_task(outbox.finish(3_600))
        await asyncio.wait_for(waiting, 60)

    assert {"ana@example.com": "sent"} == await statuses(outbox_ctx, sent)
