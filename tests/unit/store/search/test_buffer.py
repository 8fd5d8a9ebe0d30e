"""Searching the buffer with Bloom filters gives the same results as scanning it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.index import SearchQuery
from postroom.store.search.query import buffer, scan
from postroom.store.search.query.scan import scan_buffer
from tests.unit.store.search.scenario import SearchScenario
from tests.unit.store.search.test_results import wrong_results

WAITING = 100
NEVER_THERE = SearchQuery(inboxes=EVERYTHING, q="xylophone", mailbox="*")


@pytest.fixture
async def scenario(tmp_path: Path) -> AsyncIterator[SearchScenario]:
    """Some mail in segments, and some in the buffer."""
    scenario = await SearchScenario.open(tmp_path, seed=7)
    await scenario.arrive(100)
    await scenario.merge()
    await scenario.arrive(WAITING)
    yield scenario
    await scenario.engine.close()


async def build_filters(scenario: SearchScenario) -> None:
    """Search until every filter has been built."""
    for _ in range(WAITING):
        await scenario.find(NEVER_THERE)


async def test_texts_excluded_by_filters_are_not_read(
    scenario: SearchScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build_filters(scenario)
    monkeypatch.setattr(scan, "HAS_TEXTS", "no text may be looked at")

    assert 0 == (await scenario.find(NEVER_THERE)).total


async def test_only_candidates_of_the_filters_are_read(scenario: SearchScenario) -> None:
    await scenario.arrive_with("a xylophone")
    await scenario.arrive_with("two xylophones")

    both = await scenario.engine.read(lambda tx: scan_buffer(tx, NEVER_THERE))
    numbers = [number for _, number in both]
    one = await scenario.engine.read(lambda tx: scan_buffer(tx, NEVER_THERE, numbers[:1]))

    assert 2 == len(both)
    assert both[:1] == one


async def test_a_new_message_is_found_at_once(scenario: SearchScenario) -> None:
    await build_filters(scenario)
    await scenario.arrive_with("a xylophone")

    assert [1] * 4 == [(await scenario.find(NEVER_THERE)).total for _ in range(4)]


async def test_a_changed_text_is_found_by_its_new_words_only(scenario: SearchScenario) -> None:
    old = await scenario.arrive_with("a saxophone")
    await build_filters(scenario)
    await scenario.reparse_messages(old, "a xylophone")

    found = [(await scenario.find(NEVER_THERE)).total for _ in range(4)]
    lost = [
        (await scenario.find(SearchQuery(inboxes=EVERYTHING, q="saxophone", mailbox="*"))).total
        for _ in range(4)
    ]

    assert [1] * 4 == found
    assert [0] * 4 == lost


@pytest.mark.parametrize("before", [0, 1, 1 << 14, 1 << 16])
async def test_texts_of_any_length_are_found(scenario: SearchScenario, before: int) -> None:
    await scenario.arrive_with("x" * before + "жу")
    await build_filters(scenario)

    for q in ("жу", ("x" * before)[:100] + "жу"):
        assert 1 == (await scenario.find(SearchQuery(inboxes=EVERYTHING, q=q, mailbox="*"))).total


async def test_messages_of_an_older_version_are_found(scenario: SearchScenario) -> None:
    await scenario.arrive_with("a xylophone")
    await scenario.engine.write(lambda tx: tx.run("UPDATE search_buffer SET stamp = 0"))
    await build_filters(scenario)

    assert 1 == (await scenario.find(NEVER_THERE)).total


@pytest.mark.parametrize("limit", [0, WAITING // 2, WAITING - 1])
async def test_a_buffer_too_large_for_filters_is_scanned(
    scenario: SearchScenario, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "_MAX_BUFFERED", limit)

    assert [] == await wrong_results(scenario, 60)


async def test_filters_are_made_again_when_there_is_no_room(
    scenario: SearchScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "_MAX_FILTERS", WAITING // 2)

    assert [] == await wrong_results(scenario, 60)
