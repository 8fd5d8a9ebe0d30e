"""Searching the buffer with Bloom filters gives the same results as scanning it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.index import SearchQuery
from postroom.store.search.query import buffer, scan
from postroom.store.search.query.scan import scan_buffer
from tests.unit.store.search.test_results import wrong_results
from tests.unit.store.search.world import World

WAITING = 100
NEVER_THERE = SearchQuery(inboxes=EVERYTHING, q="xylophone", mailbox="*")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Some mail in segments, and some in the buffer."""
    world = await World.open(tmp_path, seed=7)
    await world.arrive(100)
    await world.merge()
    await world.arrive(WAITING)
    yield world
    await world.engine.close()


async def ask_often(world: World) -> None:
    """Search until every filter exists."""
    for _ in range(WAITING):
        await world.find(NEVER_THERE)


async def test_texts_excluded_by_filters_are_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask_often(world)
    monkeypatch.setattr(scan, "HAS_TEXTS", "no text may be looked at")

    assert 0 == (await world.find(NEVER_THERE)).total


async def test_only_candidates_of_the_filters_are_read(world: World) -> None:
    await world.arrive_with("a xylophone")
    await world.arrive_with("two xylophones")

    both = await world.engine.read(lambda tx: scan_buffer(tx, NEVER_THERE))
    numbers = [number for _, number in both]
    one = await world.engine.read(lambda tx: scan_buffer(tx, NEVER_THERE, numbers[:1]))

    assert 2 == len(both)
    assert both[:1] == one


async def test_a_new_message_is_found_at_once(world: World) -> None:
    await ask_often(world)
    await world.arrive_with("a xylophone")

    assert [1] * 4 == [(await world.find(NEVER_THERE)).total for _ in range(4)]


async def test_a_changed_text_is_found_by_its_new_words_only(world: World) -> None:
    old = await world.arrive_with("a saxophone")
    await ask_often(world)
    await world.reparse_messages(old, "a xylophone")

    found = [(await world.find(NEVER_THERE)).total for _ in range(4)]
    lost = [
        (await world.find(SearchQuery(inboxes=EVERYTHING, q="saxophone", mailbox="*"))).total
        for _ in range(4)
    ]

    assert [1] * 4 == found
    assert [0] * 4 == lost


@pytest.mark.parametrize("before", [0, 1, 1 << 14, 1 << 16])
async def test_texts_of_any_length_are_found(world: World, before: int) -> None:
    await world.arrive_with("x" * before + "жу")
    await ask_often(world)

    for q in ("жу", ("x" * before)[:100] + "жу"):
        assert 1 == (await world.find(SearchQuery(inboxes=EVERYTHING, q=q, mailbox="*"))).total


async def test_messages_of_an_older_version_are_found(world: World) -> None:
    await world.arrive_with("a xylophone")
    await world.engine.write(lambda tx: tx.run("UPDATE search_buffer SET stamp = 0"))
    await ask_often(world)

    assert 1 == (await world.find(NEVER_THERE)).total


@pytest.mark.parametrize("limit", [0, WAITING // 2, WAITING - 1])
async def test_a_buffer_too_large_for_filters_is_scanned(
    world: World, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "_MAX_BUFFERED", limit)

    assert [] == await wrong_results(world, 60)


async def test_filters_are_made_again_when_there_is_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "_MAX_FILTERS", WAITING // 2)

    assert [] == await wrong_results(world, 60)
