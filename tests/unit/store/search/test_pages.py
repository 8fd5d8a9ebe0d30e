"""Pages are correct at any offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import SearchQuery
from postroom.store.search.query import paging
from postroom.store.search.segments.segment import live_segments
from tests.unit.store.search.scenario import SearchScenario

pytestmark = pytest.mark.one_python

SEVERAL = MergePolicy(buffer_docs=100, fan_out=99, idle_s=1 << 40)


async def lists(folder: Path) -> SearchScenario:
    """Much mail, half of it within one minute, in overlapping segments and in the buffer."""
    scenario = await SearchScenario.open(folder, seed=6)
    for _ in range(4):
        await scenario.arrive(150)
        await scenario.merge(SEVERAL)
    await scenario.arrive(40)
    await scenario.change(60)
    return scenario


@pytest.mark.parametrize(("lot", "leap"), [(1, 1), (2, 3), (64, 64)])
async def test_a_page_begins_at_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lot: int, leap: int
) -> None:
    monkeypatch.setattr(paging, "_DOCS_PER_DATE", lot)
    monkeypatch.setattr(paging, "_DATES_PER_SKIP", leap)
    monkeypatch.setattr(paging, "_SHALLOW", 0)
    monkeypatch.setattr(paging, "_SORT_ALL", 0)
    scenario = await lists(tmp_path)
    segments = await scenario.engine.read(live_segments)
    scan = await scenario.scan()
    asked = [
        SearchQuery(inboxes=EVERYTHING, q=q, offset=offset, limit=limit, oldest_first=oldest_first)
        for oldest_first in (False, True)
        for q in (None, "e", "of")
        for limit in (1, 7, 50, 200)
        for offset in scenario.random.sample(
            range(scan.answer(SearchQuery(inboxes=EVERYTHING, q=q)).total), 20
        )
    ]

    found = [await scenario.find(query) for query in asked]
    await scenario.engine.close()

    assert len(segments) > 2
    assert [scan.answer(query) for query in asked] == found
