"""Pages are right at any offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import SearchQuery
from postroom.store.search.query import paging
from postroom.store.search.segments.segment import live_segments
from tests.unit.store.search.world import World

pytestmark = pytest.mark.one_python

SEVERAL = MergePolicy(buffer_docs=100, fan_out=99, idle_s=1 << 40)


async def lists(folder: Path) -> World:
    """Much mail, half of it within a minute, in overlapping segments and in the buffer."""
    world = await World.open(folder, seed=6)
    for _ in range(4):
        await world.arrive(150)
        await world.merge(SEVERAL)
    await world.arrive(40)
    await world.change(60)
    return world


@pytest.mark.parametrize(("lot", "leap"), [(1, 1), (2, 3), (64, 64)])
async def test_a_page_is_where_its_offset_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lot: int, leap: int
) -> None:
    monkeypatch.setattr(paging, "_DOCS_PER_DATE", lot)
    monkeypatch.setattr(paging, "_TICKS_PER_SKIP", leap)
    monkeypatch.setattr(paging, "_SHALLOW", 0)
    monkeypatch.setattr(paging, "_SORT_ALL", 0)
    world = await lists(tmp_path)
    segments = await world.engine.read(live_segments)
    look = await world.look()
    asked = [
        SearchQuery(inboxes=EVERYTHING, q=q, offset=offset, limit=limit, oldest_first=oldest_first)
        for oldest_first in (False, True)
        for q in (None, "e", "of")
        for limit in (1, 7, 50, 200)
        for offset in world.random.sample(
            range(look.answer(SearchQuery(inboxes=EVERYTHING, q=q)).total), 20
        )
    ]

    found = [await world.find(query) for query in asked]
    await world.engine.close()

    assert len(segments) > 2
    assert [look.answer(query) for query in asked] == found
