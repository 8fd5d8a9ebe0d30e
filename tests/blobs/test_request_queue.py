"""The queue of requests to a bucket: waits end when it stalls, and the circuit breaker opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from postroom.blobs import object_requests
from postroom.blobs.object_requests import NO_RESPONSE, NoResponse, RequestQueue
from postroom.errors import Unavailable


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock of the queue."""
    passed_s = 0.0
    clock = object_requests.monotonic
    monkeypatch.setattr(object_requests, "monotonic", lambda: clock() + passed_s)

    def advance(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    return advance


def fail_without_response(queue: RequestQueue) -> None:
    with pytest.raises(NoResponse), queue.circuit():
        raise NoResponse(NO_RESPONSE, retry_after=2)


def test_the_circuit_opens_after_a_request_without_response() -> None:
    queue = RequestQueue(1)
    fail_without_response(queue)

    with pytest.raises(NoResponse) as refused, queue.circuit():
        pytest.fail("it was asked")

    assert 5 == refused.value.retry_after


def test_after_a_while_one_request_is_let_through(advance: Callable[[float], None]) -> None:
    queue = RequestQueue(1)
    fail_without_response(queue)
    advance(6)

    with queue.circuit(), pytest.raises(NoResponse), queue.circuit():
        pytest.fail("two asked")
    with queue.circuit(), queue.circuit():
        pass


async def test_waiting_requests_fail_when_the_circuit_opens() -> None:
    queue = RequestQueue(1)
    async with queue.slot():
        waiting = asyncio.create_task(got_slot(queue))
        await asyncio.sleep(0)
        fail_without_response(queue)

        with pytest.raises(NoResponse):
            await waiting


async def test_a_wait_ends_when_the_queue_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_requests, "_STALLED_S", 0.05)
    queue = RequestQueue(1)
    async with queue.slot():
        with pytest.raises(Unavailable, match="too slow"):
            await got_slot(queue)

    assert await got_slot(queue)


async def test_a_queue_that_progresses_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_requests, "_STALLED_S", 60)
    queue = RequestQueue(2)
    async with queue.slot():
        async with queue.slot():
            waiting = [asyncio.create_task(got_slot(queue)) for _ in range(100)]
        assert all(await asyncio.gather(*waiting))


async def test_a_long_stalled_queue_refuses_new_requests(
    monkeypatch: pytest.MonkeyPatch, advance: Callable[[float], None]
) -> None:
    monkeypatch.setattr(object_requests, "_LONG_QUEUE", 3)
    queue = RequestQueue(1)
    async with queue.slot():
        waiting = [asyncio.create_task(got_slot(queue)) for _ in range(3)]
        await asyncio.sleep(0)
        advance(object_requests._LONG_QUEUE_STALLED_S)

        with pytest.raises(Unavailable, match="too slow"):
            await got_slot(queue)

    assert all(await asyncio.gather(*waiting))


async def got_slot(queue: RequestQueue) -> bool:
    async with queue.slot():
        return True
