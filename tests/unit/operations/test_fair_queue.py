from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from postroom.admission import rate_limits as module
from postroom.admission.rate_limits import LONG_QUEUE, MAX_RUNNING_PER_KEY, MAX_WAITING, FairQueue
from postroom.errors import RateLimited


class QueuedRequests:
    """Requests that hold their slot until they are released."""

    def __init__(self, fair_queue: FairQueue) -> None:
        self.fair_queue, self.inside, self.release = fair_queue, 0, asyncio.Event()

    def start(self, key: str, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._stay(key)) for _ in range(count)]

    async def _stay(self, key: str) -> None:
        async with self.fair_queue.of(key):
            self.inside += 1
            await self.release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def fair_queue(monkeypatch: pytest.MonkeyPatch) -> FairQueue:
    """No slot times out, and every key is remembered."""
    monkeypatch.setattr(module, "COUNTED_AS_RUNNING_S", 3600.0)
    monkeypatch.setattr(module, "RECENT_S", 3600.0)
    return FairQueue()


async def ask(fair_queue: FairQueue, key: str) -> None:
    async with fair_queue.of(key):
        pass


async def test_a_single_key_may_use_every_slot(fair_queue: FairQueue) -> None:
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("greedy", 100)
    await settle()

    assert 100 == callers.inside
    callers.release.set()
    await asyncio.gather(*tasks)


async def test_a_greedy_key_gets_few_slots_and_others_do_not_wait(
    fair_queue: FairQueue,
) -> None:
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("greedy", 50)
    await settle()

    assert MAX_RUNNING_PER_KEY == callers.inside
    await asyncio.wait_for(ask(fair_queue, "other"), 1)
    callers.release.set()
    await asyncio.gather(*tasks)
    assert 50 == callers.inside


@pytest.fixture
def expensive_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is so expensive that its key must yield for an hour."""
    monkeypatch.setattr(module, "TIME_SHARE", 1e-12)
    monkeypatch.setattr(module, "BURST_S", 3600.0)


@pytest.mark.usefixtures("expensive_requests")
async def test_a_key_with_many_waiting_requests_yields(fair_queue: FairQueue) -> None:
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("greedy", MAX_RUNNING_PER_KEY + LONG_QUEUE + 1)
    await settle()
    callers.release.set()
    await asyncio.gather(*tasks[:MAX_RUNNING_PER_KEY])
    await settle()

    assert MAX_RUNNING_PER_KEY == callers.inside
    await asyncio.wait_for(ask(fair_queue, "other"), 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert {} == fair_queue._queues


@pytest.mark.usefixtures("expensive_requests")
async def test_a_key_with_few_waiting_requests_does_not_yield(fair_queue: FairQueue) -> None:
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("busy", MAX_RUNNING_PER_KEY + LONG_QUEUE)
    await settle()
    callers.release.set()
    await asyncio.gather(*tasks)

    assert MAX_RUNNING_PER_KEY + LONG_QUEUE == callers.inside


async def test_a_key_with_too_many_waiting_requests_is_refused(fair_queue: FairQueue) -> None:
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("greedy", MAX_RUNNING_PER_KEY + MAX_WAITING)
    await settle()

    with pytest.raises(RateLimited):
        await ask(fair_queue, "greedy")
    callers.release.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("is_let_in", [False, True], ids=["waiting", "just let in"])
async def test_a_cancelled_waiting_request_holds_no_slot(
    fair_queue: FairQueue, is_let_in: bool
) -> None:
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    async with AsyncExitStack() as stack:
        for _ in range(MAX_RUNNING_PER_KEY):
            await stack.enter_async_context(fair_queue.of("greedy"))
        [leaving] = callers.start("greedy", 1)
        await settle()
        if is_let_in:
            await stack.aclose()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
    tasks = callers.start("greedy", MAX_RUNNING_PER_KEY)
    await settle()

    assert MAX_RUNNING_PER_KEY == callers.inside
    callers.release.set()
    await asyncio.gather(*tasks)


async def test_a_request_in_another_wait_holds_no_slot(
    fair_queue: FairQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTED_AS_RUNNING_S", 0.0)
    await ask(fair_queue, "other")
    callers = QueuedRequests(fair_queue)
    tasks = callers.start("greedy", 10)
    async with asyncio.timeout(50):
        while callers.inside < 10:  # noqa: ASYNC110 - a request that ends notifies nobody
            await asyncio.sleep(0)

    assert 10 == callers.inside
    callers.release.set()
    await asyncio.gather(*tasks)


async def test_no_state_is_kept_of_an_idle_key(fair_queue: FairQueue) -> None:
    for number in range(5):
        await ask(fair_queue, f"key_{number}")

    assert {} == fair_queue._queues
