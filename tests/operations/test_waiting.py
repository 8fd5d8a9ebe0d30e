"""A wait for mail ends with the mail that it waits for, and with no other."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import InvalidInput, NotFound, Unavailable
from postroom.model.event import FIRST, Event, Waited
from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING, only
from postroom.operations.mail.messages import wait_for_message
from postroom.pipeline.event_watch import WatchedEvent
from postroom.pipeline.ingest import Arrival, receive_many
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.servers.postroom import forked_command


async def waiting(ctx: RequestContext, **arguments: Any) -> asyncio.Task[Waited]:
    """A wait that has started: it will not miss the next mail."""
    watch = ctx.watch
    before = len(watch._subscriptions)
    task = asyncio.create_task(call(ctx, wait_for_message, {"timeout_s": 120, **arguments}))
    for _ in range(60_000):
        if task.done() or (len(watch._subscriptions) > before and watch._started.is_set()):
            break
        await asyncio.sleep(0.001)
    await ctx.store.newest_event(visible=EVERYTHING)
    await ctx.store.newest_event(visible=EVERYTHING)
    return task


async def test_a_mail_ends_the_wait(ctx: RequestContext, inbox: Inbox) -> None:
    wait = await waiting(ctx, inbox_id=inbox.id, extract="code")
    added = await deliver(ctx, inbox, mail("Sign in", "Your code is 482913."))

    waited = await wait

    assert waited.message is not None
    assert (added.message_id, "482913", False) == (
        waited.message.id,
        waited.extracted,
        waited.timed_out,
    )
    assert not ctx.watch._subscriptions


async def test_a_wait_survives_a_busy_store_at_its_start(
    ctx: RequestContext, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, failures = ctx.store.newest_event, iter([Unavailable("busy", retry_after=1)])

    async def newest_later(*given: Any) -> int:
        for error in failures:
            raise error
        return await newest(*given)

    monkeypatch.setattr(ctx.store, "newest_event", newest_later)
    monkeypatch.setattr("postroom.pipeline.event_watch._RETRY_S", 0.01)

    def is_wanted(event: Event) -> bool:
        return event.type == "message.received"

    with ctx.watch.subscribe(ctx.store, is_wanted, EVERYTHING) as waiter:
        added = await deliver(ctx, inbox, mail("Hello"))
        async with asyncio.timeout(50):
            told = await anext(ctx.watch.after(waiter, 0))

    assert added.message_id == told.event.message_id


async def test_only_a_matching_mail_ends_a_wait(ctx: RequestContext, inbox: Inbox) -> None:
    other = await new_inbox(ctx, "other")
    wait = await waiting(
        ctx, inbox_id=inbox.id, **{"from": "@shop.example"}, subject="INVOICE", q="Straße"
    )
    await deliver(ctx, other, mail("Invoice", "STRASSE", sender="a@shop.example"))
    await deliver(ctx, inbox, mail("Invoice", "STRASSE", sender="a@else.example"))
    await deliver(ctx, inbox, mail("Hello", "STRASSE", sender="a@shop.example"))
    await deliver(ctx, inbox, mail("Invoice", "nothing", sender="a@shop.example"))
    wanted = await deliver(ctx, inbox, mail("Your invoice 7", "STRASSE", sender="a@shop.example"))

    waited = await wait

    assert waited.message is not None
    assert wanted.message_id == waited.message.id


async def test_a_thread_can_be_waited_for(ctx: RequestContext, inbox: Inbox) -> None:
    root = await deliver(ctx, inbox, mail("Plan", message_id="<root@example.com>"))
    wait = await waiting(ctx, thread_id=root.thread_id)
    await deliver(ctx, inbox, mail("Other"))
    reply = await deliver(ctx, inbox, mail("Re: Plan", in_reply_to="<root@example.com>"))

    waited = await wait

    assert waited.message is not None
    assert reply.message_id == waited.message.id


async def test_no_mail_is_missed_between_two_waits(ctx: RequestContext, inbox: Inbox) -> None:
    first = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "timeout_s": 1})
    added = await deliver(ctx, inbox, mail("In between"))
    second = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "since": first.since})
    third = await call(
        ctx, wait_for_message, {"inbox_id": inbox.id, "timeout_s": 1, "since": added.message_id}
    )

    assert (None, True, FIRST) == (first.message, first.timed_out, first.since)
    assert second.message is not None
    assert added.message_id == second.message.id
    assert third.timed_out


async def test_a_mail_that_arrives_at_the_timeout_is_not_missed(
    ctx: RequestContext, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_for_ever(_told: WatchedEvent) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as slow:
        slow.setattr(WatchedEvent, "message", read_for_ever)
        first = await waiting(ctx, inbox_id=inbox.id, timeout_s=1)
        added = await deliver(ctx, inbox, mail("Late"))
        timed_out = await first

    second = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "since": timed_out.since})
    assert timed_out.timed_out
    assert second.message is not None
    assert added.message_id == second.message.id


async def test_each_message_is_checked_once(ctx: RequestContext, inbox: Inbox) -> None:
    await deliver(ctx, inbox, mail("Before"))
    wait = await waiting(ctx, inbox_id=inbox.id, subject="never", timeout_s=1)
    last = await deliver(ctx, inbox, mail("Other"))

    waited = await wait

    assert waited.since is not None
    assert await ctx.store.event_number(last.message_id, EVERYTHING) == (
        await ctx.store.event_number(waited.since, EVERYTHING)
    )


async def test_hundreds_of_waits_each_get_their_own_mail(ctx: RequestContext) -> None:
    inboxes = [await new_inbox(ctx, f"box{number}") for number in range(200)]
    waits = [await waiting(ctx, inbox_id=inbox.id) for inbox in inboxes]

    added = [await deliver(ctx, inbox, mail(f"for {inbox.id}")) for inbox in inboxes]

    found = [(await wait).message for wait in waits]
    assert [a.message_id for a in added] == [m.id for m in found if m is not None]


async def test_a_cancelled_wait_releases_its_resources(ctx: RequestContext, inbox: Inbox) -> None:
    wait = await waiting(ctx, inbox_id=inbox.id)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait

    assert not ctx.watch._subscriptions
    assert ctx.watch._reader is None


async def test_mail_received_by_another_process_ends_the_wait(
    app: App, ctx: RequestContext
) -> None:
    inbox = await new_inbox(ctx)
    wait = await waiting(ctx, inbox_id=inbox.id)
    command = forked_command("--data", str(app.settings.data_dir))
    process = await asyncio.create_subprocess_exec(
        *command, "message", "receive", inbox.address, "-",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    await process.communicate(mail("From elsewhere"))

    waited = await wait

    assert waited.message is not None
    assert "From elsewhere" == waited.message.subject


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, InvalidInput),
        ({"inbox_id": "inb_none"}, NotFound),
        ({"thread_id": "thr_none"}, NotFound),
        ({"inbox_id": "INBOX", "since": "msg_none"}, NotFound),
        ({"inbox_id": "INBOX", "since": "thr_none"}, InvalidInput),
        ({"inbox_id": "INBOX", "timeout_s": 301}, InvalidInput),
        ({"inbox_id": "INBOX", "q": "\u00ad"}, InvalidInput),
    ],
)
async def test_an_invalid_wait_is_refused_at_once(
    ctx: RequestContext, inbox: Inbox, arguments: dict[str, Any], error: type[Exception]
) -> None:
    given = {name: inbox.id if value == "INBOX" else value for name, value in arguments.items()}

    with pytest.raises(error):
        await call(ctx, wait_for_message, given)


async def test_a_foreign_inbox_cannot_be_waited_for(app: App, inbox: Inbox) -> None:
    other_caller = app.context(a_caller("key_1", inboxes=only("inb_else")))

    with pytest.raises(NotFound):
        await call(other_caller, wait_for_message, {"inbox_id": inbox.id})


CODE = mail("Sign in", "Your code is 482913.", message_id="<code@example.com>")


async def deliver_before(ctx: RequestContext, inbox: Inbox, raw: bytes, *, seconds: int) -> str:
    """Deliver a mail with an arrival time in the past."""
    then = ctx.clock() - timedelta(seconds=seconds)
    return (await deliver(replace(ctx, clock=lambda: then), inbox, raw)).message_id


async def test_a_code_that_came_before_the_call_is_found(ctx: RequestContext, inbox: Inbox) -> None:
    before = await deliver_before(ctx, inbox, CODE, seconds=100)

    waited = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "extract": "code"})

    assert waited.message is not None
    assert (before, "482913") == (waited.message.id, waited.extracted)


@pytest.mark.parametrize("arguments", [{}, {"extract": "code"}, {"since": "-120"}, {"since": -120}])
async def test_an_old_mail_does_not_end_a_wait(
    ctx: RequestContext, inbox: Inbox, arguments: dict[str, Any]
) -> None:
    await deliver_before(ctx, inbox, CODE, seconds=140)

    given = {"inbox_id": inbox.id, "timeout_s": 1, **arguments}
    waited = await call(ctx, wait_for_message, given)

    assert waited.timed_out


async def test_a_wait_may_begin_in_the_past(ctx: RequestContext, inbox: Inbox) -> None:
    first = await deliver_before(ctx, inbox, mail("First"), seconds=500)
    second = await deliver_before(ctx, inbox, mail("Second"), seconds=300)
    third = await deliver_before(ctx, inbox, mail("Third"), seconds=100)
    moment = (ctx.clock() - timedelta(seconds=400)).isoformat()
    tomorrow = (ctx.clock() + timedelta(days=1)).isoformat()

    found = {
        since: await call(
            ctx, wait_for_message, {"inbox_id": inbox.id, "timeout_s": 1, "since": since}
        )
        for since in ("-600", "-400", "-200", moment, "2020-01-31", first, tomorrow)
    }

    assert {
        "-600": first,
        "-400": second,
        "-200": third,
        moment: second,
        "2020-01-31": first,
        first: second,
        tomorrow: None,
    } == {since: waited.message and waited.message.id for since, waited in found.items()}


async def test_a_wait_for_a_code_skips_mail_without_one(ctx: RequestContext, inbox: Inbox) -> None:
    await deliver(ctx, inbox, mail("Newsletter", "Nothing here."))
    code = await deliver(ctx, inbox, CODE)

    waited = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "extract": "code"})

    assert waited.message is not None
    assert code.message_id == waited.message.id


async def test_a_wait_for_a_link_times_out_without_one(ctx: RequestContext, inbox: Inbox) -> None:
    await deliver(ctx, inbox, CODE)

    given = {"inbox_id": inbox.id, "extract": "link", "timeout_s": 1}
    waited = await call(ctx, wait_for_message, given)

    assert waited.timed_out
    assert waited.since is not None
    assert waited.since.startswith("evt_")


@pytest.mark.parametrize(
    "since", ["120", "yesterday", "thr_1", "--5", "-1.5", "-99999999", "x" * 65]
)
async def test_an_invalid_since_is_explained(ctx: RequestContext, inbox: Inbox, since: str) -> None:
    with pytest.raises(InvalidInput, match="since: "):
        await call(ctx, wait_for_message, {"inbox_id": inbox.id, "since": since})


async def test_imported_mail_ends_no_wait(ctx: RequestContext, inbox: Inbox) -> None:
    real = await deliver_before(ctx, inbox, mail("Real"), seconds=60)
    then = ctx.clock() - timedelta(days=900)
    old = replace(ctx, clock=lambda: then)
    await receive_many(old, [Arrival(CODE, inbox.id, is_imported=True)])

    new = await call(ctx, wait_for_message, {"inbox_id": inbox.id, "since": "-120"})
    code = await call(
        ctx, wait_for_message, {"inbox_id": inbox.id, "extract": "code", "timeout_s": 1}
    )

    assert new.message is not None
    assert real == new.message.id
    assert code.timed_out
