"""Every result of the index equals that of a plain scan of all messages.

`SEARCH_SEEDS=200` tries more scenarios than a normal run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING, only
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import IndexSearcher, SearchQuery, add_missing_flag_sets
from postroom.store.search.query import segment_search
from postroom.store.search.query.scan import ScanLimits
from postroom.store.search.segments.builder import SegmentBuilder
from postroom.store.search.segments.segment import CURRENT_FORMAT, FORMATS, live_segments
from tests.unit.store.search.scenario import NOTHING_IS_SMALL, SearchScenario

pytestmark = pytest.mark.one_python

SEEDS = int(os.environ.get("SEARCH_SEEDS", "2"))
QUESTIONS = 50
SOME_ARE_SMALL = ScanLimits(words=3, phrases=6, lists=12)
LABEL_NAMES = ["work", "work in progress", "ünïcode", "x", "none"]


async def wrong_results(scenario: SearchScenario, questions: int) -> list[object]:
    """The queries for which the index and a plain scan give different results."""
    scan = await scenario.scan()
    asked = [scenario.query(scan) for _ in range(questions)]
    answers = [(query, await scenario.find(query), scan.answer(query)) for query in asked]
    return [answer for answer in answers if answer[1] != answer[2]]


@pytest.mark.parametrize("small", [NOTHING_IS_SMALL, SOME_ARE_SMALL])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_results_order_and_total_are_correct_while_mail_changes(
    tmp_path: Path, seed: int, small: ScanLimits
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed)
    scenario.searcher = IndexSearcher(small)
    wrong = []
    for _ in range(8):
        await scenario.arrive(scenario.random.randrange(5, 90))
        await scenario.change(15)
        if scenario.random.random() < 0.8:
            await scenario.merge()
        await scenario.change(5)
        wrong += await wrong_results(scenario, QUESTIONS)
    await scenario.engine.close()

    assert [] == wrong


async def test_one_large_segment_gives_the_same_results_as_many_small_ones(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=1)
    await scenario.arrive(1_500)
    await scenario.merge(MergePolicy(buffer_docs=1_000))
    wrong = await wrong_results(scenario, 300)
    await scenario.arrive(300)
    await scenario.change(100)
    wrong += await wrong_results(scenario, 100)
    await scenario.engine.close()

    assert [] == wrong


async def test_segments_of_all_formats_are_searched_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=3)
    for number in FORMATS:
        monkeypatch.setattr(SegmentBuilder.__init__, "__defaults__", (number,))
        await scenario.arrive(300)
        await scenario.merge(MergePolicy(buffer_docs=150, fan_out=99, idle_s=1 << 40))
    made = await scenario.engine.read(lambda tx: {s.format for s in live_segments(tx)})
    wrong = await wrong_results(scenario, 400)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert set(FORMATS) == made
    assert [] == wrong
    assert () == tuple(problems)


async def test_a_part_of_a_long_word_is_found_without_reading_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=4)
    await scenario.arrive(200)
    await scenario.merge()
    scan = await scenario.scan()
    monkeypatch.setattr(segment_search, "TEXTS", "no text may be read")

    found = [(await scenario.find(w), scan.answer(w)) for w in map(_within_a_word, range(150))]
    await scenario.engine.close()

    assert [answer for _, answer in found] == [answer for answer, _ in found]


def _within_a_word(start: int) -> SearchQuery:
    word = "".join(chr(97 + n * n % 26) + chr(97 + n % 25) for n in range(200))
    return SearchQuery(inboxes=EVERYTHING, q=word[start * 2 : start * 2 + 40])


async def test_a_lone_surrogate_has_no_matches(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=2)
    await scenario.arrive(30)
    await scenario.merge()

    found = [
        await scenario.find(SearchQuery(inboxes=EVERYTHING, q=q))
        for q in ("\ud83d", "a\udc00b", "a \ud800", "ab\udfff")
    ]
    await scenario.engine.close()

    assert [0] * 4 == [answer.total for answer in found]


async def test_a_word_in_a_subject_is_found_without_reading_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=5)
    await scenario.arrive(300)
    await scenario.merge(MergePolicy(buffer_docs=1))
    scan = await scenario.scan()
    asked = [
        SearchQuery(inboxes=EVERYTHING, mailbox="*", subject=text)
        for text in ("the", "of", "invoice", "oice", "re", "42")
    ]
    monkeypatch.setattr(segment_search, "TEXTS", "no text may be read")

    found = [await scenario.find(query) for query in asked]
    await scenario.engine.close()

    assert [scan.answer(query) for query in asked] == found
    assert all(answer.total for answer in found)


async def test_segments_of_an_earlier_version_get_their_flags_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=7)
    monkeypatch.setattr(SegmentBuilder.__init__, "__defaults__", (2,))
    await scenario.arrive(300)
    await scenario.merge(MergePolicy(buffer_docs=150, fan_out=99, idle_s=1 << 40))
    await scenario.change(40)
    await scenario.engine.write(
        lambda tx: tx.run("DELETE FROM search_sets WHERE substr(name, 1, 5) = 'flag:'")
    )
    query = SearchQuery(inboxes=EVERYTHING, mailbox="*", flags=("seen",))
    expected = (await scenario.scan()).answer(query)
    without = await scenario.find(query)

    await add_missing_flag_sets(scenario.engine)
    await scenario.change(40)
    await add_missing_flag_sets(scenario.engine)
    wrong = await wrong_results(scenario, 100)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert without.total < expected.total
    assert [] == wrong
    assert () == tuple(problems)


async def test_segments_of_earlier_formats_are_rewritten_while_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=8)
    with monkeypatch.context() as earlier:
        earlier.setattr(SegmentBuilder.__init__, "__defaults__", (1,))
        await scenario.arrive(300)
        await scenario.merge(MergePolicy(buffer_docs=150, fan_out=99, idle_s=1 << 40))

    await scenario.merge()
    made = await scenario.engine.read(lambda tx: {s.format for s in live_segments(tx)})
    wrong = await wrong_results(scenario, 100)
    await scenario.engine.close()

    assert {CURRENT_FORMAT} == made
    assert [] == wrong


@pytest.mark.parametrize("small", [NOTHING_IS_SMALL, SOME_ARE_SMALL])
async def test_messages_are_counted_by_mailbox(tmp_path: Path, small: ScanLimits) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=9)
    scenario.searcher = IndexSearcher(small)
    wrong = []
    for _ in range(4):
        await scenario.arrive(70)
        await scenario.change(20)
        await scenario.merge()
        await scenario.change(20)
        scan = await scenario.scan()
        keys = [(inbox, name) for inbox in (1, 2, 3) for name in ("inbox", "trash", "none")]
        found = await scenario.engine.read(
            lambda tx, k=keys: scenario.searcher.count_mailboxes(tx, k)
        )
        wrong += [key for key in keys if found[key] != scan.counts(*key)]
    await scenario.engine.close()

    assert [] == wrong


@pytest.mark.parametrize("small", [NOTHING_IS_SMALL, SOME_ARE_SMALL])
async def test_messages_are_counted_by_label(tmp_path: Path, small: ScanLimits) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=10)
    scenario.searcher = IndexSearcher(small)
    wrong = []
    for _ in range(4):
        await scenario.arrive(70)
        await scenario.change(20)
        await scenario.merge()
        await scenario.change(20)
        await scenario.arrive(5)
        scan = await scenario.scan()
        for inboxes in (EVERYTHING, only(1), only(2, 3), only(9)):
            found = await scenario.engine.read(
                lambda tx, i=inboxes: scenario.searcher.count_labels(tx, i, LABEL_NAMES)
            )
            wrong += [
                (inboxes, name)
                for name in LABEL_NAMES
                for query in [SearchQuery(inboxes=inboxes, labels=(name,), limit=1)]
                if found[name]
                != (
                    scan.answer(query).total,
                    scan.answer(replace(query, without_flags=("seen",))).total,
                )
            ]
    await scenario.engine.close()

    assert [] == wrong
