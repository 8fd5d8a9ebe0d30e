"""Workers that die, lose their claims or are stopped neither lose mail nor double it."""

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
from tests.pipeline.posting import OUTGOING, are_out, send, statuses, until, working
from tests.servers.relay import relaying


async def test_a_worker_that_died_before_the_mail_went_out_is_replaced(
    post: RequestContext, clock: Clock
) -> None:
    sent = await send(post)
    await post.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(30), free=SOME, max_per_domain=9
    )
    clock.now += timedelta(days=31)
    async with relaying() as relay, working(post, relay):

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert 1 == len(relay.mails)


async def test_a_worker_that_died_while_the_mail_went_out_leaves_it_unknown(
    post: RequestContext, clock: Clock
) -> None:
    sent = await send(post, to=["a@x.org", "b@x.org"])
    claimed = await post.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(seconds=30), free=SOME, max_per_domain=9
    )
    [job] = claimed.jobs
    assert await post.store.begin_transmission(job, ["a@x.org"])
    clock.now += timedelta(seconds=31)
    async with relaying() as relay, working(post, relay):

        async def is_over() -> bool:
            return "queued" not in (await statuses(post, sent)).values()

        await until(post, is_over)

    assert {"a@x.org": "unknown", "b@x.org": "sent"} == await statuses(post, sent)
    assert [["b@x.org"]] == [mail.recipients for mail in relay.mails]


async def test_a_claim_that_was_lost_stops_the_mail_before_it_goes_out(
    post: RequestContext, clock: Clock
) -> None:
    await send(post)
    slow = await post.store.claim_mail(
        "slow", now=clock(), until=clock(), free=SOME, max_per_domain=9
    )
    quick = await post.store.claim_mail(
        "quick", now=clock(), until=clock() + timedelta(1), free=SOME, max_per_domain=9
    )

    assert not await post.store.begin_transmission(slow.jobs[0], ["ana@example.com"])
    assert await post.store.begin_transmission(quick.jobs[0], ["ana@example.com"])


async def test_an_outcome_is_written_down_when_the_database_is_back(
    post: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = post.store.settle_mail, iter([MailError("away"), StorageFull("full")])

    async def settle_late(*given: Any, **named: Any) -> None:
        for error in failures:
            raise error
        await settle(*given, **named)

    monkeypatch.setattr(post.store, "settle_mail", settle_late)
    monkeypatch.setattr("postroom.pipeline.outbox.SETTLE_RETRY_S", 0.01)
    async with relaying() as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    assert ("sent", 1) == (sent.status, len(relay.mails))


async def test_a_full_disk_is_told_once_and_mail_goes_on_after_it(
    post: RequestContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim, failures = post.store.claim_mail, iter([StorageFull("full")] * 5)

    async def claim_late(*given: Any, **named: Any) -> Claimed:
        for error in failures:
            raise error
        return await claim(*given, **named)

    monkeypatch.setattr(post.store, "claim_mail", claim_late)
    monkeypatch.setattr("postroom.pipeline.outbox.CLAIM_RETRY_S", 0.01)
    async with relaying() as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    told = [record for record in caplog.records if record.message == "outbox.failed"]
    assert ("sent", 1) == (sent.status, len(told))


def test_a_claim_that_fails_is_made_again_later_and_later() -> None:
    assert [1, 2, 4, 8, 10, 10] == [claim_retry_s(failures) for failures in range(1, 7)]


async def test_a_worker_takes_up_again_what_it_could_not_give_back(
    post: RequestContext, clock: Clock
) -> None:
    """A claim of its own that it no longer works on is as stale as that of a dead one."""
    await send(post)
    lease = {"until": clock() + timedelta(seconds=30), "free": SOME, "max_per_domain": 9}
    first = await post.store.claim_mail("one", now=clock(), **lease)
    clock.now += timedelta(seconds=30)
    lease["until"] = clock() + timedelta(seconds=30)
    busy = await post.store.claim_mail("one", now=clock(), active=first.jobs, **lease)
    clock.now += timedelta(seconds=30)
    idle = await post.store.claim_mail("one", now=clock(), **lease)

    assert (1, 0, 1) == (len(first.jobs), len(busy.jobs), len(idle.jobs))


async def test_a_worker_that_lost_a_scheduled_mail_does_not_deliver_it_again(
    post: RequestContext, clock: Clock
) -> None:
    at = (clock() + timedelta(minutes=1)).isoformat()
    draft = await call(post, create_draft, {**OUTGOING, "send_at": at})
    sent = await call(post, send_draft, {"draft_id": draft.id})
    clock.now += timedelta(minutes=1)
    lease = {"now": clock(), "free": SOME, "max_per_domain": 9}
    slow = await post.store.claim_mail("slow", until=clock(), **lease)
    queued = {"ana@example.com": Recipient("ana@example.com", "queued")}
    async with relaying() as relay, working(post, relay):
        await until(post, lambda: are_out(post, [sent]))
        was_delivered = await post.store.deliver_scheduled(slow.jobs[0], [], queued, clock())

    assert (1, False) == (len(relay.mails), was_delivered)
    assert {"ana@example.com": "sent"} == await statuses(post, sent)


async def test_who_is_stopped_while_it_claims_gives_back_what_it_gets(
    post: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await call(post, send_message, OUTGOING)
    claim, begun, may_end = type(post.store).claim_mail, asyncio.Event(), asyncio.Event()

    async def slow(self: Any, *args: Any, **options: Any) -> Claimed:
        claimed = await claim(self, *args, **options)
        begun.set()
        await may_end.wait()
        return claimed

    monkeypatch.setattr(type(post.store), "claim_mail", slow)
    outbox = Outbox(post, SmtpRelay(parse_relay_url("smtp://127.0.0.1:9"), "postroom.localhost"))
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
    assert "failed" == (await call(post, cancel_message, {"message_id": sent.message_id})).status


async def test_many_workers_hand_each_mail_over_once(post: RequestContext) -> None:
    async with (
        relaying() as relay,
        working(post, relay),
        working(post, relay),
        working(post, relay),
    ):
        sends = [await send(post, subject=f"{number}") for number in range(40)]

        async def all_out() -> bool:
            return not (await call(post, list_outbox, {})).total

        await until(post, all_out)

    assert 40 == len(relay.mails) == len({sent.message_id for sent in sends})


async def test_a_mail_that_is_done_while_the_next_is_looked_for_ends_the_wait(
    post: RequestContext, monkeypatch: pytest.MonkeyPatch
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
    async with relaying() as relay, working(post, relay) as outbox:
        sent = await send(post)
        await asyncio.wait_for(has_begun.wait(), 60)
        monkeypatch.setattr(Store, "next_mail_at", looks_until_all_are_done)
        waiting = asyncio.create_task(outbox.finish(3_600))
        await asyncio.wait_for(waiting, 60)

    assert {"ana@example.com": "sent"} == await statuses(post, sent)
