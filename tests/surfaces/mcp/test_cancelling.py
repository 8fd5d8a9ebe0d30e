"""A cancelled call has happened once or not at all, and can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.mails import new_inbox

Step = Callable[..., Awaitable[Any]]


class BlockedStep:
    """Replaces a step of a send, and blocks the first caller."""

    def __init__(self, step: Step, phase: str) -> None:
        self._step, self._phase = step, phase
        self.is_reached = anyio.Event()

    async def __call__(self, *args: Any, **given: Any) -> Any:
        if self.is_reached.is_set():
            return await self._step(*args, **given)
        if self._phase == "before":
            return await self._wait()
        doing = asyncio.ensure_future(self._step(*args, **given))
        if self._phase == "during":
            await asyncio.sleep(0)
            self.is_reached.set()
            return await doing
        await doing
        return await self._wait()

    async def _wait(self) -> None:
        self.is_reached.set()
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("step", "phase", "has_happened"),
    [
        ("inboxes_at", "before", [0]),
        ("earlier_send", "after", [0]),
        ("record_send", "before", [0]),
        ("record_send", "during", [0, 1]),
        ("record_send", "after", [1]),
    ],
)
async def test_a_cancelled_send(agent, app, ctx, inbox, monkeypatch, step, phase, has_happened):
    other = await new_inbox(ctx, "cy")
    outgoing_mail = {
        "inbox_id": inbox.id,
        "recipient": other.address,
        "subject": "Hi",
        "body": "Once.",
    }
    gate = BlockedStep(getattr(app.services.store, step), phase)
    monkeypatch.setattr(app.services.store, step, gate)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.client.call_tool, "send_email", outgoing_mail)
        await gate.is_reached.wait()
        tasks.cancel_scope.cancel()

    assert await delivered(agent, other) in has_happened
    sent = await agent.call("send_email", **outgoing_mail)
    assert "delivered" == sent["status"]
    assert 1 == await delivered(agent, other)


async def delivered(agent: Any, inbox: Any) -> int:
    return (await agent.call("list_messages", inbox_id=inbox.id))["total"]
