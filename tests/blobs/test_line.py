"""The line before a bucket: it moves, or nobody stands in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from postroom.blobs import line
from postroom.blobs.line import Line
from postroom.blobs.object_errors import SILENT, Silent
from postroom.errors import Unavailable


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass for the line."""
    passed_s = 0.0
    clock = line.monotonic
    monkeypatch.setattr(line, "monotonic", lambda: clock() + passed_s)

    def later(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    return later


def find_silence(asked: Line) -> None:
    with pytest.raises(Silent), asked.asking():
        raise Silent(SILENT, retry_after=2)


def test_nobody_asks_for_a_while_after_a_silence() -> None:
    asked = Line(1)
    find_silence(asked)

    with pytest.raises(Silent) as refused, asked.asking():
        pytest.fail("it was asked")

    assert 5 == refused.value.retry_after


def test_then_one_tries_for_all(later: Callable[[float], None]) -> None:
    asked = Line(1)
    find_silence(asked)
    later(6)

    with asked.asking(), pytest.raises(Silent), asked.asking():
        pytest.fail("two asked")
    with asked.asking(), asked.asking():
        pass


async def test_who_waits_goes_when_silence_is_found() -> None:
    asked = Line(1)
    async with asked.turn():
        waiting = asyncio.create_task(took_turn(asked))
        await asyncio.sleep(0)
        find_silence(asked)

        with pytest.raises(Silent):
            await waiting


async def test_nobody_waits_in_a_line_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_STILL_S", 0.05)
    asked = Line(1)
    async with asked.turn():
        with pytest.raises(Unavailable, match="too slow"):
            await took_turn(asked)

    assert await took_turn(asked)


async def test_a_line_that_moves_is_waited_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_STILL_S", 60)
    asked = Line(2)
    async with asked.turn():
        async with asked.turn():
            waiting = [asyncio.create_task(took_turn(asked)) for _ in range(100)]
        assert all(await asyncio.gather(*waiting))


async def test_who_comes_to_a_long_line_that_stands_still_waits_no_more(
    monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    monkeypatch.setattr(line, "_MANY", 3)
    asked = Line(1)
    async with asked.turn():
        waiting = [asyncio.create_task(took_turn(asked)) for _ in range(3)]
        await asyncio.sleep(0)
        later(line._MANY_STILL_S)

        with pytest.raises(Unavailable, match="too slow"):
            await took_turn(asked)

    assert all(await asyncio.gather(*waiting))


async def took_turn(asked: Line) -> bool:
    async with asked.turn():
        return True
