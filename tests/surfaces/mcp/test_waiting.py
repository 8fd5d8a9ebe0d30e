"""An agent waits for mail, gets progress notifications, and may cancel."""

from __future__ import annotations

import asyncio

import anyio

from postroom.operations.mail import messages
from tests.mails import deliver, mail

PATIENCE_S = 50


async def until_waiting(app, count=1):
    async with asyncio.timeout(PATIENCE_S):
        while len(app.services.watch._subscriptions) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_mail_with_a_code_ends_the_wait(agent, app, ctx, inbox):
    wait = asyncio.create_task(
        agent.call("wait_for_message", inbox_id=inbox.id, timeout_s=60, extract="code")
    )
    await until_waiting(app)
    await deliver(ctx, inbox, mail("Sign in", "Your code is 493817."))

    answer = await wait

    assert ("493817", False) == (answer["extracted"], answer["timed_out"])
    assert "Sign in" == answer["message"]["subject"]


async def test_a_wait_sends_progress_notifications(agent, app, ctx, inbox, monkeypatch):
    monkeypatch.setattr(messages, "REPORT_EVERY_S", 0.01)
    told = anyio.Event()
    heard = []

    async def listen(progress, _total, message):
        heard.append((progress, message))
        told.set()

    call = agent.client.call_tool(
        "wait_for_message", {"inbox_id": inbox.id, "timeout_s": 60}, progress_callback=listen
    )
    wait = asyncio.create_task(call)
    await asyncio.wait_for(told.wait(), PATIENCE_S)
    await deliver(ctx, inbox, mail("At last"))
    await wait

    assert heard[0][0] > 0
    assert "waiting for mail" in heard[0][1]


async def test_a_cancelled_wait_ends(agent, app, inbox):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            agent.client.call_tool, "wait_for_message", {"inbox_id": inbox.id, "timeout_s": 300}
        )
        await until_waiting(app)
        tasks.cancel_scope.cancel()

    await until_waiting(app, 0)

    assert not app.services.watch._subscriptions


async def test_a_wait_that_times_out_returns_where_to_continue(agent, ctx, inbox):
    answer = await agent.call("wait_for_message", inbox_id=inbox.id, timeout_s=1)
    added = await deliver(ctx, inbox, mail("A moment too late"))
    again = await agent.call(
        "wait_for_message", inbox_id=inbox.id, timeout_s=60, since=answer["since"]
    )

    assert (None, True) == (answer["message"], answer["timed_out"])
    assert added.message_id == again["message"]["id"]
