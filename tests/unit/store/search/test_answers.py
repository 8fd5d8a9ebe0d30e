"""Every answer of the index is what a plain look at all messages says.

`SEARCH_SEEDS=200` tries more worlds than the few of the normal run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.store.search import lookup
from postroom.store.search.build import SegmentBuilder
from postroom.store.search.choice import Sizes
from postroom.store.search.find import Finder
from postroom.store.search.formats import FORMATS
from postroom.store.search.scanning import Small
from postroom.store.search.segments import live_segments
from postroom.store.search.wanted import Wanted
from tests.unit.store.search.world import NOTHING_IS_SMALL, World

SEEDS = int(os.environ.get("SEARCH_SEEDS", "2"))
QUESTIONS = 50
SOME_ARE_SMALL = Small(words=3, phrases=6, lists=12)


async def wrong_answers(world: World, questions: int) -> list[object]:
    """The questions that the index answers otherwise than a plain look does."""
    look = await world.look()
    asked = [world.wanted(look) for _ in range(questions)]
    answers = [(wanted, await world.find(wanted), look.answer(wanted)) for wanted in asked]
    return [answer for answer in answers if answer[1] != answer[2]]


@pytest.mark.parametrize("small", [NOTHING_IS_SMALL, SOME_ARE_SMALL])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_ids_order_and_total_are_right_while_mail_comes_changes_and_goes(
    tmp_path: Path, seed: int, small: Small
) -> None:
    world = await World.open(tmp_path, seed)
    world.finder = Finder(small)
    wrong = []
    for _ in range(8):
        await world.arrive(world.random.randrange(5, 90))
        await world.change(15)
        if world.random.random() < 0.8:
            await world.merge()
        await world.change(5)
        wrong += await wrong_answers(world, QUESTIONS)
    await world.engine.close()

    assert [] == wrong


async def test_one_large_segment_answers_like_many_small_ones(tmp_path: Path) -> None:
    world = await World.open(tmp_path, seed=1)
    await world.arrive(1_500)
    await world.merge(Sizes(tail=1_000))
    wrong = await wrong_answers(world, 300)
    await world.arrive(300)
    await world.change(100)
    wrong += await wrong_answers(world, 100)
    await world.engine.close()

    assert [] == wrong


async def test_segments_of_every_format_answer_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await World.open(tmp_path, seed=3)
    for number in FORMATS:
        monkeypatch.setattr(SegmentBuilder.__init__, "__defaults__", (number,))
        await world.arrive(300)
        await world.merge(Sizes(tail=150, fan_out=99, quiet_s=1 << 40))
    made = await world.engine.read(lambda tx: {s.format for s in live_segments(tx)})
    wrong = await wrong_answers(world, 400)
    problems = await world.store.problems()
    await world.engine.close()

    assert set(FORMATS) == made
    assert [] == wrong
    assert () == tuple(problems)


async def test_a_part_of_a_long_word_is_found_without_reading_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await World.open(tmp_path, seed=4)
    await world.arrive(200)
    await world.merge()
    look = await world.look()
    monkeypatch.setattr(lookup, "TEXTS", "no text may be read")

    found = [(await world.find(w), look.answer(w)) for w in map(_within_a_word, range(150))]
    await world.engine.close()

    assert [answer for _, answer in found] == [answer for answer, _ in found]


def _within_a_word(start: int) -> Wanted:
    word = "".join(chr(97 + n * n % 26) + chr(97 + n % 25) for n in range(200))
    return Wanted(q=word[start * 2 : start * 2 + 40])


async def test_half_a_character_is_found_nowhere(tmp_path: Path) -> None:
    world = await World.open(tmp_path, seed=2)
    await world.arrive(30)
    await world.merge()

    found = [await world.find(Wanted(q=q)) for q in ("\ud83d", "a\udc00b", "a \ud800", "ab\udfff")]
    await world.engine.close()

    assert [0] * 4 == [answer.total for answer in found]
