"""A process started by an MCP client leaves background work to a server, if one is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.calls.context import RequestContext
from postroom.config import read_settings
from postroom.errors import InvalidInput
from postroom.pipeline.services import heartbeat, run_when_unattended
from tests.servers.postroom import environment, running
from tests.servers.relay import relaying
from tests.surfaces.mcp.stdio_client import started


async def test_a_stdio_process_runs_jobs_only_while_no_server_runs(ctx: RequestContext) -> None:
    works, rests = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def at_work() -> AsyncIterator[None]:
        rests.clear()
        works.set()
        yield
        works.clear()
        rests.set()

    task = asyncio.create_task(run_when_unattended(ctx, at_work))
    async with asyncio.timeout(10):
        await works.wait()
        async with heartbeat(ctx, ["serving"]):
            await rests.wait()
            async with heartbeat(ctx, ["serving"]):
                pass
            assert not works.is_set()
        await works.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_mail_sent_over_stdio_is_transmitted_by_the_server(tmp_path: Path) -> None:
    """The client started Postroom with a data folder and no relay."""
    folder = tmp_path / "data"

    def send(number: int) -> str:
        sent = stdio.call(
            "send_message",
            to=["ana@example.com"],
            subject=f"Hello {number}",
            body_text="Hi",
            wait_s=20,
        )
        return str(sent["structuredContent"]["status"])

    async with relaying() as relay:
        env = environment(folder, {"POSTROOM_AGENT_APPROVAL": "never"})
        with running(folder, POSTROOM_RELAY_URL=relay.url), started(folder, env=env) as stdio:
            stdio.hello()
            await asyncio.to_thread(stdio.call, "create_inbox", username="me")
            statuses = [await asyncio.to_thread(send, number) for number in range(5)]

    assert (["sent"] * 5, 5) == (statuses, len(relay.mails))


async def test_a_relay_that_only_the_client_configured_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    def send(number: int) -> str:
        outgoing_mail = {"to": ["ana@example.com"], "subject": f"{number}", "body_text": "Hi"}
        sent = stdio.call("send_message", **outgoing_mail, wait_s=20)
        return str(sent["structuredContent"]["status"])

    async with relaying() as relay:
        values = {"POSTROOM_RELAY_URL": relay.url, "POSTROOM_AGENT_APPROVAL": "never"}
        env = environment(folder, values)
        with running(folder), started(folder, env=env) as stdio:
            stdio.hello()
            await asyncio.to_thread(stdio.call, "create_inbox", username="me")
            statuses = [await asyncio.to_thread(send, number) for number in range(2)]

    assert (["sent"] * 2, 2) == (statuses, len(relay.mails))


async def test_a_stdio_process_offers_its_relay_while_no_server_has_one(
    ctx: RequestContext,
) -> None:
    rich = replace(ctx, has_relay=True)
    now: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def doing(what: str) -> AsyncIterator[None]:
        now.put_nowait(what)
        yield
        now.put_nowait(f"no more {what}")

    task = asyncio.create_task(
        run_when_unattended(rich, lambda: doing("all"), lambda: doing("relay"))
    )
    async with asyncio.timeout(10):
        told = [await now.get()]
        async with heartbeat(ctx, ["serving"]):
            told += [await now.get(), await now.get()]
            async with heartbeat(ctx, ["relaying"]):
                told += [await now.get()]
            told += [await now.get()]
        told += [await now.get(), await now.get()]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    once = ["all", "no more all", "relay", "no more relay"]
    assert [*once, "relay", "no more relay", "all"] == told


async def test_an_invalid_setting_is_reported_at_the_start(tmp_path: Path) -> None:
    given = {"DATA_DIR": tmp_path, "RELAY_URL": "smtp://127.0.0.1:9", "DKIM_KEY": tmp_path / "none"}
    named = {f"POSTROOM_{name}": str(value) for name, value in given.items()}
    async with open_app(read_settings(named).settings) as app:
        with pytest.raises(InvalidInput, match="DKIM_KEY"):
            async with app.background_jobs_when_unattended():
                pass
