"""The line before a bucket: it moves, or nobody stands in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from postroom.blobs import object_requests
from postroom.blobs.object_requests import NO_RESPONSE, NoResponse, RequestQueue
from postroom.errors import Unavailable


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass for the line."""
    passed_s = 0.0
    clock = object_requests.monotonic
    monkeypatch.setattr(object_requests, "monotonic", lambda: clock() + passed_s)

    def later(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    return later


def find_silence(asked: RequestQueue) -> None:
    with pytest.raises(NoResponse), asked.circuit():
        raise NoResponse(NO_RESPONSE, retry_after=2)


def test_nobody_asks_for_a_while_after_a_silence() -> None:
    asked = RequestQueue(1)
    find_silence(asked)

    with pytest.raises(NoResponse) as refused, asked.circuit():
        pytest.fail("it was asked")

    assert 5 == refused.value.retry_after


def test_then_one_tries_for_all(later: Callable[[float], None]) -> None:
    asked = RequestQueue(1)
    find_silence(asked)
    later(6)

    with asked.circuit(), pytest.raises(NoResponse), asked.circuit():
        pytest.fail("two asked")
    with asked.circuit(), asked.circuit():
        pass


async def test_who_waits_goes_when_silence_is_found() -> None:
    asked = RequestQueue(1)
    async with asked.slot():
        waiting = asyncio.create_task(took_turn(asked))
        await asyncio.sleep(0)
        find_silence(asked)

        with pytest.raises(NoResponse):
            await waiting


async def test_nobody_waits_in_a_line_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_requests, "_STALLED_S", 0.05)
    asked = RequestQueue(1)
    async with asked.slot():
        with pytest.raises(Unavailable, match="too slow"):
            await took_turn(asked)

    assert await took_turn(asked)


async def test_a_line_that_moves_is_waited_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_requests, "_STALLED_S", 60)
    asked = RequestQueue(2)
    async with asked.slot():
        async with asked.slot():
            waiting = [asyncio.create_task(took_turn(asked)) for _ in range(100)]
        assert all(await asyncio.gather(*waiting))


async def test_who_comes_to_a_long_line_that_stands_still_waits_no_more(
    monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    monkeypatch.setattr(object_requests, "_LONG_QUEUE", 3)
    asked = RequestQueue(1)
    async with asked.slot():
        waiting = [asyncio.create_task(took_turn(asked)) for _ in range(3)]
        await asyncio.sleep(0)
        later(object_requests._LONG_QUEUE_STALLED_S)

        with pytest.raises(Unavailable, match="too slow"):
            await took_turn(asked)

    assert all(await asyncio.gather(*waiting))


async def took_turn(asked: RequestQueue) -> bool:
    async with asked.slot():
        return True
