"""Every page of a list is the right one, however far down it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.store.search import paging, ticks
from postroom.store.search.choice import Sizes
from postroom.store.search.segments import live_segments
from postroom.store.search.wanted import Wanted
from tests.unit.store.search.world import World

SEVERAL = Sizes(tail=100, fan_out=99, quiet_s=1 << 40)


async def lists(folder: Path) -> World:
    """Much mail, half of it within a minute, in segments that overlap and in the tail."""
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
    monkeypatch.setattr(ticks, "_LOT", lot)
    monkeypatch.setattr(ticks, "_LEAP", leap)
    monkeypatch.setattr(paging, "_NEAR", 0)
    monkeypatch.setattr(paging, "_FEW", 0)
    world = await lists(tmp_path)
    segments = await world.engine.read(live_segments)
    look = await world.look()
    asked = [
        Wanted(q=q, offset=offset, limit=limit)
        for q in (None, "e", "of")
        for limit in (1, 7, 50, 200)
        for offset in world.random.sample(range(look.answer(Wanted(q=q)).total), 20)
    ]

    found = [await world.find(wanted) for wanted in asked]
    await world.engine.close()

    assert len(segments) > 2
    assert [look.answer(wanted) for wanted in asked] == found
