"""Mail goes out once, whatever the relay does and whoever dies."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import Conflict, MailError, NotFound, StorageFull
from postroom.model.event import EventQuery
from postroom.model.key import OWNER
from postroom.model.message import Recipient
from postroom.model.outbox import Claimed
from postroom.model.sending import PAUSED, Sent
from postroom.model.stored import MessageQuery
from postroom.operations.context import Context
from postroom.operations.drafts import create_draft, send_draft
from postroom.operations.operation import call
from postroom.operations.outbox import (
    cancel_message,
    list_outbox,
    pause_outbox,
    resume_outbox,
    retry_message,
)
from postroom.operations.sending import reply_to_message, send_message
from postroom.pipeline.attendance import REMEMBERED, attending
from postroom.pipeline.outbox import Outbox, claim_again_s, wait_after
from postroom.providers.smtp.relay import SmtpRelay
from postroom.providers.smtp.signing import load_signer
from postroom.providers.smtp.url import parse_relay_url
from tests.mails import SOME, deliver, mail, new_inbox
from tests.servers import dkimpy
from tests.servers.certificates import certificate
from tests.servers.relay import CUT, HANG, Relay, relaying

LETTER = {"to": ["ana@example.com"], "subject": "Hello", "body_text": "Good morning."}


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def post(tmp_path: Path, clock: Clock) -> AsyncIterator[Context]:
    """A house with an inbox, a relay to be named, and a clock."""
    settings = read_settings(
        {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}
    ).settings
    async with open_app(settings) as app:
        ctx = replace(app, house=replace(app.house, clock=clock)).context(OWNER)
        await new_inbox(ctx, "me")
        yield ctx


@asynccontextmanager
async def working(ctx: Context, relay: Relay, **options: Any) -> AsyncIterator[Outbox]:
    sender = SmtpRelay(parse_relay_url(relay.url), "postroom.localhost", answer_s=2, **options)
    outbox = Outbox(ctx, sender)
    task = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def send(ctx: Context, **changes: Any) -> Sent:
    return await call(ctx, send_message, {**LETTER, **changes})


async def statuses(ctx: Context, sent: Sent) -> dict[str, str]:
    message = await ctx.store.message(sent.message_id, None)
    assert message is not None
    return {r.address: r.status for r in message.recipients or ()}


async def types(ctx: Context, sent: Sent) -> list[str]:
    found = await ctx.store.events(EventQuery(message_id=sent.message_id))
    return [event.type for event in found.rows]


async def until(ctx: Context, is_so: Callable[[], Any]) -> None:
    """Wait until something is so, with a limit."""
    bell = ctx.store.bell
    async with asyncio.timeout(10):
        rung = bell.rung("events")
        while not await is_so():
            rung = await bell.wait("events", rung)


async def test_a_mail_is_queued_and_then_handed_over(post: Context) -> None:
    async with relaying() as relay, working(post, relay):
        sent = await send(post, bcc=["hidden@example.com"], wait_s=10)

    assert ("sent", ["queued", "sent"]) == (
        sent.status,
        [t.removeprefix("message.") for t in await types(post, sent)],
    )
    [got] = relay.mails
    assert ("me@postroom.localhost", ["ana@example.com", "hidden@example.com"]) == (
        got.sender,
        got.recipients,
    )
    assert b"hidden" not in got.data


async def test_local_inboxes_get_theirs_at_once_and_the_relay_never_sees_them(
    post: Context,
) -> None:
    await new_inbox(post, "bo")
    async with relaying() as relay, working(post, relay):
        to = ["bo@postroom.localhost", "ana@example.com"]
        sent = await send(post, to=to, wait_s=10, **{"from": "me@postroom.localhost"})

    assert {"bo@postroom.localhost": "delivered", "ana@example.com": "sent"} == await statuses(
        post, sent
    )
    assert [["ana@example.com"]] == [mail.recipients for mail in relay.mails]


async def test_who_was_deferred_is_tried_again_and_the_others_are_not(
    post: Context, clock: Clock
) -> None:
    is_grey = True

    def rcpt(line: str) -> bytes:
        return b"450 4.7.1 later" if "<b@" in line and is_grey else b"250 ok"

    async with relaying({"RCPT": rcpt}) as relay, working(post, relay) as outbox:
        sent = await send(post, to=["a@x.org", "b@x.org"], wait_s=1)
        first = await statuses(post, sent)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await post.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(post, sent))["b@x.org"] == "sent"

        await until(post, is_out)

    assert {"a@x.org": "sent", "b@x.org": "queued"} == first
    assert [["a@x.org"], ["b@x.org"]] == [mail.recipients for mail in relay.mails]
    assert outbox is not None


def test_the_waits_grow_from_a_minute_to_four_hours() -> None:
    waits = [wait_after(attempts) for attempts in range(20)]

    assert (timedelta(minutes=1), timedelta(minutes=2)) == (waits[0], waits[1])
    assert timedelta(hours=4) == max(waits)
    assert sorted(waits) == waits


async def test_after_two_days_we_give_up_and_say_so(post: Context, clock: Clock) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, working(post, relay):
        sent = await send(post, wait_s=1)
        clock.now += timedelta(hours=48)
        await post.store.pause_outbox(paused=False)

        async def is_over() -> bool:
            return "bounced" in (await statuses(post, sent)).values()

        await until(post, is_over)

    assert "message.bounced" in await types(post, sent)
    assert [] == relay.mails


async def test_mail_that_was_held_back_for_days_is_tried_as_often_as_any(
    post: Context, clock: Clock
) -> None:
    is_grey = True

    def rcpt(_: str) -> bytes:
        return b"450 4.7.1 later" if is_grey else b"250 ok"

    await post.store.pause_outbox(paused=True)
    sent = await send(post)
    clock.now += timedelta(hours=49)
    async with relaying({"RCPT": rcpt}) as relay, working(post, relay):
        await post.store.pause_outbox(paused=False)

        async def is_deferred() -> bool:
            return "message.deferred" in await types(post, sent)

        await until(post, is_deferred)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await post.store.pause_outbox(paused=False)
        await until(post, lambda: are_out(post, [sent]))

    assert 1 == len(relay.mails)


async def test_a_relay_that_hangs_holds_up_no_mail_of_the_house(
    post: Context, clock: Clock
) -> None:
    await new_inbox(post, "bo")
    letter = {**LETTER, "to": ["bo@postroom.localhost"], "from": "me@postroom.localhost"}
    begun = asyncio.Semaphore(0)

    def hang(_: str) -> object:
        begun.release()
        return HANG

    async with relaying({"DOT": hang}) as relay, working(post, relay) as outbox:
        for number in range(outbox.at_once + 1):
            await send(post, subject=f"Mail {number}", **{"from": "me@postroom.localhost"})
        for _ in range(outbox.at_once):
            await asyncio.wait_for(begun.acquire(), 10)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(post, create_draft, {**letter, "send_at": at})
        sent = await call(post, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await post.store.pause_outbox(paused=False)

        async def is_there() -> bool:
            return {"bo@postroom.localhost": "delivered"} == await statuses(post, sent)

        await until(post, is_there)

    assert outbox.at_once == len(relay.mails)


async def test_a_refusal_is_final(post: Context) -> None:
    async with relaying({"RCPT": b"550 5.1.1 no such user"}) as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    assert "failed" == sent.status
    assert "550 5.1.1 no such user" == sent.recipients[0].detail


@pytest.mark.parametrize("end", [CUT, HANG, b"354 what?"])
async def test_an_ambiguous_end_is_said_and_never_sent_again_by_itself(
    post: Context, clock: Clock, end: Any
) -> None:
    async with relaying({"DOT": end}) as relay, working(post, relay, final_answer_s=0.5):
        sent = await send(post, wait_s=10)
        relay.script = {}
        clock.now += timedelta(days=1)
        await post.store.pause_outbox(paused=False)
        other = await send(post, subject="Other", wait_s=10)

    assert ("unknown", "sent") == (sent.status, other.status)
    assert "not sent again" in (sent.recipients[0].detail or "")
    assert 2 == len(relay.mails)


async def test_whoever_wants_an_unknown_mail_sent_again_says_so(post: Context) -> None:
    async with relaying({"DOT": CUT}) as relay, working(post, relay):
        sent = await send(post, wait_s=10)
        relay.script = {}
        await call(post, retry_message, {"message_id": sent.message_id})

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    with pytest.raises(Conflict, match="everyone has got"):
        await call(post, retry_message, {"message_id": sent.message_id})
    with pytest.raises(NotFound):
        await call(post, retry_message, {"message_id": "msg_none"})


async def test_a_mail_that_failed_at_once_is_seen_and_can_be_helped(post: Context) -> None:
    """Its address is ours: a retry brings it to the inbox, never to the relay."""
    sent = await send(post, to=["bo@postroom.localhost"])
    listed = await call(post, list_outbox, {"status": "failed"})
    bo = await new_inbox(post, "bo")
    async with relaying() as relay, working(post, relay):
        again = await call(post, retry_message, {"message_id": sent.message_id})

        async def has_arrived() -> bool:
            return await statuses(post, sent) == {"bo@postroom.localhost": "delivered"}

        await until(post, has_arrived)

    assert ("failed", "queued", []) == (sent.status, again.status, relay.mails)
    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert 1 == (await post.store.messages(MessageQuery(inbox_id=bo.id))).total
    assert ["failed", "queued", "delivered"] == [
        kind.removeprefix("message.") for kind in await types(post, sent)
    ]


async def test_what_was_captured_leaves_when_there_is_a_relay(post: Context) -> None:
    sent = await send(replace(post, has_relay=False))
    async with relaying() as relay, working(post, relay):
        await call(post, retry_message, {"message_id": sent.message_id})
        await until(post, lambda: are_out(post, [sent]))

    assert ("captured", 1) == (sent.status, len(relay.mails))


async def test_who_waits_waits_for_those_who_are_queued(post: Context) -> None:
    async with relaying() as relay, working(post, relay):
        sent = await send(post, to=["gone@postroom.localhost", "ana@example.com"], wait_s=10)

    assert ["failed", "sent"] == [recipient.status for recipient in sent.recipients]


async def test_a_worker_that_died_before_the_mail_went_out_is_replaced(
    post: Context, clock: Clock
) -> None:
    sent = await send(post)
    await post.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(30), free=SOME, most_per_domain=9
    )
    clock.now += timedelta(days=31)
    async with relaying() as relay, working(post, relay):

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert 1 == len(relay.mails)


async def test_a_worker_that_died_while_the_mail_went_out_leaves_it_unknown(
    post: Context, clock: Clock
) -> None:
    sent = await send(post, to=["a@x.org", "b@x.org"])
    claimed = await post.store.claim_mail(
        "dead", now=clock(), until=clock() + timedelta(seconds=30), free=SOME, most_per_domain=9
    )
    [job] = claimed.jobs
    assert await post.store.begin_handing_over(job, ["a@x.org"])
    clock.now += timedelta(seconds=31)
    async with relaying() as relay, working(post, relay):

        async def is_over() -> bool:
            return "queued" not in (await statuses(post, sent)).values()

        await until(post, is_over)

    assert {"a@x.org": "unknown", "b@x.org": "sent"} == await statuses(post, sent)
    assert [["b@x.org"]] == [mail.recipients for mail in relay.mails]


async def test_a_claim_that_was_lost_stops_the_mail_before_it_goes_out(
    post: Context, clock: Clock
) -> None:
    await send(post)
    slow = await post.store.claim_mail(
        "slow", now=clock(), until=clock(), free=SOME, most_per_domain=9
    )
    quick = await post.store.claim_mail(
        "quick", now=clock(), until=clock() + timedelta(1), free=SOME, most_per_domain=9
    )

    assert not await post.store.begin_handing_over(slow.jobs[0], ["ana@example.com"])
    assert await post.store.begin_handing_over(quick.jobs[0], ["ana@example.com"])


async def test_an_outcome_is_written_down_when_the_database_is_back(
    post: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = post.store.settle_mail, iter([MailError("away"), StorageFull("full")])

    async def settle_late(*given: Any, **named: Any) -> None:
        for error in failures:
            raise error
        await settle(*given, **named)

    monkeypatch.setattr(post.store, "settle_mail", settle_late)
    monkeypatch.setattr("postroom.pipeline.outbox.SETTLE_AGAIN_S", 0.01)
    async with relaying() as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    assert ("sent", 1) == (sent.status, len(relay.mails))


async def test_a_full_disk_is_told_once_and_mail_goes_on_after_it(
    post: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim, failures = post.store.claim_mail, iter([StorageFull("full")] * 5)

    async def claim_late(*given: Any, **named: Any) -> Claimed:
        for error in failures:
            raise error
        return await claim(*given, **named)

    monkeypatch.setattr(post.store, "claim_mail", claim_late)
    monkeypatch.setattr("postroom.pipeline.outbox.CLAIM_AGAIN_S", 0.01)
    async with relaying() as relay, working(post, relay):
        sent = await send(post, wait_s=10)

    told = [record for record in caplog.records if record.message == "outbox.failed"]
    assert ("sent", 1) == (sent.status, len(told))


def test_a_claim_that_fails_is_made_again_later_and_later() -> None:
    assert [1, 2, 4, 8, 10, 10] == [claim_again_s(failures) for failures in range(1, 7)]


async def test_a_worker_takes_up_again_what_it_could_not_give_back(
    post: Context, clock: Clock
) -> None:
    """A claim of its own that it no longer works on is as stale as that of a dead one."""
    await send(post)
    lease = {"until": clock() + timedelta(seconds=30), "free": SOME, "most_per_domain": 9}
    first = await post.store.claim_mail("one", now=clock(), **lease)
    clock.now += timedelta(seconds=30)
    lease["until"] = clock() + timedelta(seconds=30)
    busy = await post.store.claim_mail("one", now=clock(), active=first.jobs, **lease)
    clock.now += timedelta(seconds=30)
    idle = await post.store.claim_mail("one", now=clock(), **lease)

    assert (1, 0, 1) == (len(first.jobs), len(busy.jobs), len(idle.jobs))


async def test_a_worker_that_lost_a_scheduled_mail_does_not_deliver_it_again(
    post: Context, clock: Clock
) -> None:
    at = (clock() + timedelta(minutes=1)).isoformat()
    draft = await call(post, create_draft, {**LETTER, "send_at": at})
    sent = await call(post, send_draft, {"draft_id": draft.id})
    clock.now += timedelta(minutes=1)
    lease = {"now": clock(), "free": SOME, "most_per_domain": 9}
    slow = await post.store.claim_mail("slow", until=clock(), **lease)
    queued = {"ana@example.com": Recipient("ana@example.com", "queued")}
    async with relaying() as relay, working(post, relay):
        await until(post, lambda: are_out(post, [sent]))
        was_delivered = await post.store.deliver_scheduled(slow.jobs[0], [], queued, clock())

    assert (1, False) == (len(relay.mails), was_delivered)
    assert {"ana@example.com": "sent"} == await statuses(post, sent)


async def test_a_process_without_a_relay_leaves_mail_to_one_that_has_it(
    post: Context, clock: Clock
) -> None:
    poor = replace(post, has_relay=False)
    async with attending(post, ["relaying"]), unable(poor):
        sent = await send(poor)
        at = (clock() + timedelta(seconds=10)).isoformat()
        draft = await call(poor, create_draft, {**LETTER, "subject": "Later", "send_at": at})
        later = await call(poor, send_draft, {"draft_id": draft.id})
        clock.now += timedelta(seconds=10)
        await post.store.pause_outbox(paused=False)

        async def is_queued() -> bool:
            return {"ana@example.com": "queued"} == await statuses(post, later)

        await until(post, is_queued)
        attempts = [entry.attempts for entry in (await call(post, list_outbox, {})).results]
        async with relaying() as relay, working(post, relay):
            await until(post, lambda: are_out(post, [sent, later]))
    restarting = await send(poor, subject="Whoever relays restarts")
    clock.now += REMEMBERED
    after = await send(poor, subject="Nobody relays")

    assert ([0, 0], 2) == (attempts, len(relay.mails))
    assert ("queued", "captured") == (restarting.status, after.status)
    listed = [await call(poor, list_outbox, given) for given in ({}, {"status": "captured"})]
    assert [[restarting.message_id], [after.message_id]] == [
        [entry.message_id for entry in page.results] for page in listed
    ]


@asynccontextmanager
async def unable(ctx: Context) -> AsyncIterator[None]:
    """A worker without a relay."""
    task = asyncio.create_task(Outbox(ctx, None).run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_is_stopped_while_it_claims_gives_back_what_it_gets(
    post: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await call(post, send_message, LETTER)
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


async def test_many_workers_hand_each_mail_over_once(post: Context) -> None:
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


async def test_a_domain_gets_its_share_of_the_hour_and_the_rest_waits(
    post: Context, clock: Clock
) -> None:
    few = replace(post, limits=replace(post.limits, domain_sends_per_hour=2))
    sent = [await send(few, subject=f"Mail {number}") for number in range(4)]
    other = await send(few, to=["bo@example.org"])
    async with relaying() as relay:
        async with working(few, relay), working(few, relay):
            await until(few, lambda: are_out(few, [*sent[:2], other]))
        waiting = await call(few, list_outbox, {"status": "queued"})
        first = len(relay.mails)
        clock.now += timedelta(hours=1)
        async with working(few, relay):
            await until(few, lambda: are_out(few, sent))

    assert (3, 5) == (first, len(relay.mails))
    assert [clock.now] * 2 == [entry.next_attempt_at for entry in waiting.results]


async def test_a_mail_that_is_given_back_does_not_count_for_its_domain(
    post: Context, clock: Clock
) -> None:
    sent = await send(post)
    few = {"free": SOME, "most_per_domain": 1}
    until = clock() + timedelta(seconds=30)
    first = await post.store.claim_mail("one", now=clock(), until=until, **few)
    await post.store.release_mail(first.jobs[0], clock() + timedelta(seconds=10))
    too_early = await post.store.claim_mail("two", now=clock(), until=until, **few)
    clock.now += timedelta(seconds=10)
    again = await post.store.claim_mail("two", now=clock(), until=until, **few)

    assert ((), [sent.message_id]) == (too_early.jobs, [job.message_id for job in again.jobs])


async def are_out(ctx: Context, sent: list[Sent]) -> bool:
    found = [await statuses(ctx, one) for one in sent]
    return all(status == "sent" for of_one in found for status in of_one.values())


async def test_fifty_callers_with_one_key_are_one_mail(post: Context) -> None:
    async with relaying() as relay, working(post, relay):
        answers = await asyncio.gather(
            *(send(post, idempotency_key="k", wait_s=10) for _ in range(50))
        )

    assert 1 == len(relay.mails) == len({answer.message_id for answer in answers})


async def test_a_paused_outbox_holds_mail_back_until_it_is_resumed(post: Context) -> None:
    async with relaying() as relay, working(post, relay):
        state = await call(post, pause_outbox, {})
        sent = await send(post, wait_s=1)
        before = len(relay.mails)
        await call(post, resume_outbox, {})

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert (True, "queued", 0) == (state.is_paused, sent.status, before)


async def test_a_pause_is_said_wherever_mail_waits_for_its_end(post: Context) -> None:
    await call(post, pause_outbox, {})
    sent = await send(post)
    failed = await send(post, to=["gone@postroom.localhost"])
    again = await call(post, retry_message, {"message_id": sent.message_id})
    held = {e.message_id: e.is_paused for e in (await call(post, list_outbox, {})).results}
    await call(post, resume_outbox, {})
    free = [entry.is_paused for entry in (await call(post, list_outbox, {})).results]

    assert ((PAUSED,), (PAUSED,), None) == (sent.warnings, again.warnings, failed.warnings)
    assert {sent.message_id: True, failed.message_id: False} == held
    assert [False, False] == free


async def test_mail_that_is_dated_for_later_is_not_hurried(post: Context, clock: Clock) -> None:
    at = (clock() + timedelta(days=1)).isoformat()
    draft = await call(post, create_draft, {**LETTER, "send_at": at})
    sent = await call(post, send_draft, {"draft_id": draft.id})
    with pytest.raises(Conflict, match=r"2026-06-02.*cancel_message"):
        await call(post, retry_message, {"message_id": sent.message_id})
    clock.now += timedelta(days=1)

    assert "queued" == (await call(post, retry_message, {"message_id": sent.message_id})).status


async def test_who_waits_is_told_at_once_that_it_takes_longer(post: Context) -> None:
    """The relay has spoken: there is nothing more to wait for."""
    async with relaying({"RCPT": b"450 4.7.1 later"}) as relay, working(post, relay):
        async with asyncio.timeout(20):
            sent = await send(post, wait_s=30)

    assert ("queued", "450 4.7.1 later") == (sent.status, sent.recipients[0].detail)


async def test_what_waits_can_be_cancelled(post: Context) -> None:
    sent = await send(post)
    listed = await call(post, list_outbox, {"status": "queued"})
    cancelled = await call(post, cancel_message, {"message_id": sent.message_id})

    assert [sent.message_id] == [entry.message_id for entry in listed.results]
    assert ("failed", "cancelled before it was sent") == (
        cancelled.status,
        cancelled.recipients[0].detail,
    )
    with pytest.raises(Conflict, match="nothing to cancel"):
        await call(post, cancel_message, {"message_id": sent.message_id})


@pytest.mark.parametrize("jump", [timedelta(days=-365), timedelta(days=365)])
async def test_a_clock_that_is_set_neither_loses_nor_doubles_mail(
    post: Context, clock: Clock, jump: timedelta
) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, working(post, relay):
        sent = await send(post, wait_s=1)
        relay.script = {}
        clock.now += jump
        await post.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert 1 == len(relay.mails)


def signing(folder: Path) -> tuple[Callable[[bytes], bytes], bytes]:
    """A signer, and what DNS says of its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = folder / "dkim.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signer = load_signer(path, "s1", ("postroom.localhost",))
    return signer, b"v=DKIM1; k=rsa; p=" + b64encode(public)


async def test_mail_is_signed_so_that_others_can_check_it(post: Context, tmp_path: Path) -> None:
    signer, record = signing(tmp_path)
    async with relaying() as relay, working(post, relay, sign=signer):
        await send(post, body_text="Grüße.\n\n.dot\n\n\n", body_html="<p>x  y</p>", wait_s=10)

    [got] = relay.mails
    data = got.data.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
    assert dkimpy.verify(data, dnsfunc=lambda name, timeout=5: record)
    assert not dkimpy.verify(
        data.replace(b"Hello", b"Hallo"), dnsfunc=lambda name, timeout=5: record
    )


async def test_who_wrote_from_an_international_address_gets_a_signed_reply(
    post: Context, tmp_path: Path
) -> None:
    signer, record = signing(tmp_path)
    raw = mail(to="me@postroom.localhost", sender="x@example.com")
    raw = raw.replace(b"x@example.com", "jürgen@example.com".encode())
    inbox = (await post.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    asked = await deliver(post, inbox, raw)
    async with relaying() as relay, working(post, relay, sign=signer):
        given = {"message_id": asked.message_id, "body_text": "Thanks.", "wait_s": 10}
        sent = await call(post, reply_to_message, given)

    assert "sent" == sent.status
    assert ["jürgen@example.com"] == relay.mails[0].recipients
    data = relay.mails[0].data.removesuffix(b".\r\n")
    assert dkimpy.verify(data, dnsfunc=lambda name, timeout=5: record)


async def test_tls_is_used_and_the_certificate_must_fit(post: Context, tmp_path: Path) -> None:
    good = certificate(tmp_path / "good")
    other = certificate(tmp_path / "other")
    script = {"EHLO": b"250-x\r\n250-STARTTLS\r\n250 AUTH PLAIN", "STARTTLS": b"220 go"}
    verdicts = []
    for trusted in (good, other):
        async with relaying(script, tls=good.server()) as relay:
            url = f"smtp://u:p@localhost:{relay.port}?ca_file={trusted.cert}"
            sender = SmtpRelay(parse_relay_url(url), "x", answer_s=5)
            from tests.providers.test_relay import ONE, RAW, nothing

            outcomes = await sender.hand_over(ONE, RAW, nothing)
            await sender.close()
            verdicts.append(outcomes["a@example.com"].verdict)

    assert ["sent", "deferred"] == verdicts


async def test_a_command_that_sends_waits_for_the_relay(app: App, tmp_path: Path) -> None:
    await new_inbox(app.house, "me")
    async with relaying() as relay:
        settings = replace(app.settings, relay_url=relay.url)
        house = replace(app.house, has_relay=True)
        with_relay = replace(app, settings=settings, house=house)
        async with with_relay.sending():
            await send(with_relay.context(OWNER))

    assert 1 == len(relay.mails)
