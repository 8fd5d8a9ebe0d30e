"""A worker that outlives its store exits, and does not poll a closed notifier in a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from postroom.app import App
from postroom.pipeline.outbox import Outbox
from postroom.pipeline.services import Services
from postroom.pipeline.sync import SyncScheduler
from postroom.pipeline.webhooks import Webhooks

WORKERS = (lambda services: Outbox(services, None), Webhooks, SyncScheduler)
PATIENCE_S = 20


@pytest.mark.parametrize("make_worker", WORKERS, ids=["outbox", "webhooks", "sync"])
async def test_a_worker_ends_when_the_notifier_closes(
    app: App, monkeypatch: pytest.MonkeyPatch, make_worker: Callable[[Services], Any]
) -> None:
    notifier, waits = app.services.store.notifier, asyncio.Event()
    wait = notifier.wait

    async def noted(topic: Any, seen: int) -> int:
        waits.set()
        return await wait(topic, seen)

    monkeypatch.setattr(notifier, "wait", noted)
    worker = asyncio.create_task(make_worker(app.services).run())
    await asyncio.wait_for(waits.wait(), PATIENCE_S)
    notifier.close()

    ended, _ = await asyncio.wait([worker], timeout=PATIENCE_S)

    assert {worker} == ended
    assert worker.cancelled()
