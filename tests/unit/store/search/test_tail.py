"""The tail is searched with filters, and only the time it takes tells so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.store.search import scanning, tail
from postroom.store.search.scanning import scan_tail
from postroom.store.search.wanted import Wanted
from tests.unit.store.search.test_answers import wrong_answers
from tests.unit.store.search.world import World

WAITING = 100
NEVER_THERE = Wanted(q="xylophone", mailbox="*")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Some mail in segments, and some in the tail."""
    world = await World.open(tmp_path, seed=7)
    await world.arrive(100)
    await world.merge()
    await world.arrive(WAITING)
    yield world
    await world.engine.close()


async def ask_often(world: World) -> None:
    """Ask until every filter is made."""
    for _ in range(WAITING):
        await world.find(NEVER_THERE)


async def test_texts_that_cannot_match_are_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask_often(world)
    monkeypatch.setattr(scanning, "HAS_TEXTS", "no text may be looked at")

    assert 0 == (await world.find(NEVER_THERE)).total


async def test_of_many_only_those_that_are_named_are_looked_at(world: World) -> None:
    await world.arrive_with("a xylophone")
    await world.arrive_with("two xylophones")

    both = await world.engine.read(lambda tx: scan_tail(tx, NEVER_THERE))
    numbers = [number for _, number in both]
    one = await world.engine.read(lambda tx: scan_tail(tx, NEVER_THERE, numbers[:1]))

    assert 2 == len(both)
    assert both[:1] == one


async def test_what_came_since_is_found_at_once_and_ever_after(world: World) -> None:
    await ask_often(world)
    await world.arrive_with("a xylophone")

    assert [1] * 4 == [(await world.find(NEVER_THERE)).total for _ in range(4)]


async def test_a_text_that_was_read_anew_is_found_by_its_new_words_alone(world: World) -> None:
    old = await world.arrive_with("a saxophone")
    await ask_often(world)
    await world.reread(old, "a xylophone")

    found = [(await world.find(NEVER_THERE)).total for _ in range(4)]
    lost = [(await world.find(Wanted(q="saxophone", mailbox="*"))).total for _ in range(4)]

    assert [1] * 4 == found
    assert [0] * 4 == lost


@pytest.mark.parametrize("before", [0, 1, 1 << 14, 1 << 16])
async def test_texts_of_any_length_are_found(world: World, before: int) -> None:
    await world.arrive_with("x" * before + "жу")
    await ask_often(world)

    for q in ("жу", ("x" * before)[:100] + "жу"):
        assert 1 == (await world.find(Wanted(q=q, mailbox="*"))).total


async def test_messages_of_an_older_version_are_found(world: World) -> None:
    await world.arrive_with("a xylophone")
    await world.engine.write(lambda tx: tx.run("UPDATE search_tail SET stamp = 0"))
    await ask_often(world)

    assert 1 == (await world.find(NEVER_THERE)).total


@pytest.mark.parametrize("most", [0, WAITING // 2, WAITING - 1])
async def test_a_tail_with_more_than_filters_are_kept_for_is_all_looked_at(
    world: World, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_MOST_WAITING", most)

    assert [] == await wrong_answers(world, 60)


async def test_filters_beyond_those_that_are_kept_are_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_MOST_KEPT", WAITING // 2)

    assert [] == await wrong_answers(world, 60)
