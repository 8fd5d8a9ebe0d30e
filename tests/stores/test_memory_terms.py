"""Memories are found by their terms after any history of changes."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from postroom.mail.text.terms import count_terms, question_terms, terms_of
from postroom.model.memory import EmbeddedQuery, Keyword, MemoryHit, MemoryQuery
from postroom.model.page import Found, Slice
from postroom.store.ranking import index, scoring, vectors
from postroom.store.store import Store
from tests.stores.conftest import OpenAgain
from tests.stores.memories import NOW, put
from tests.stores.ranking_helpers import WORDS, ask, cosine, keys, store_vectors, vector


@dataclass
class Oracle:
    """BM25 in plain Python; above the average, length counts by its logarithm."""

    texts: dict[str, str] = field(default_factory=dict)

    def scores(self, terms: Sequence[str]) -> dict[str, float]:
        counts = {key: count_terms(f"{key}\n{text}") for key, text in self.texts.items()}
        average = sum(c.total() for c in counts.values()) / max(len(counts), 1)
        having = Counter(term for c in counts.values() for term in c)
        rarity = {t: math.log1p((len(counts) - having[t] + 0.5) / (having[t] + 0.5)) for t in terms}
        whole = sum(rarity.values())

        def norm(length: float) -> float:
            return 1.2 * (0.25 + 0.75 * (length if length < 1 else 1 + math.log(length) / 4))

        scores = {
            key: sum(rarity[t] * 2.2 * c[t] / (c[t] + norm(c.total() / average)) for t in terms)
            for key, c in counts.items()
        }
        return {key: min(s / whole, 1) ** 2 for key, s in scores.items() if s > 0}


@pytest.mark.long_cases("sqlite-3", "postgres-1", "postgres-2", "postgres-3")
@pytest.mark.parametrize("seed", range(4))
async def test_the_index_agrees_with_an_oracle_through_any_history(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Small segments and few tombstones, so that a few hundred writes cover all code paths."""
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 8)
    monkeypatch.setattr(index, "MAX_TOMBSTONES", 12)
    chance = random.Random(seed)
    oracle = Oracle()
    for step in range(400):
        key = f"k{chance.randrange(40)}"
        if chance.random() < 0.25:
            await store.remove_memory("default", key, now=NOW)
            oracle.texts.pop(key, None)
        else:
            text = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
            await put(store, key, text)
            oracle.texts[key] = text
        if step % 10 == 0:
            await check(store, oracle, chance)

    assert () == await store.problems()


async def check(store: Store, oracle: Oracle, chance: random.Random) -> None:
    terms = terms_of(" ".join(chance.sample(WORDS, 3)))
    expected = oracle.scores(terms)

    query = MemoryQuery("default", NOW, page=Slice(limit=100))
    found = await store.search_memories(query, EmbeddedQuery(terms))

    assert len(expected) == found.total
    got = {hit.key: hit.relevance for hit in found.rows}
    assert set(expected) == set(got)
    assert all(abs(got[key] - max(score, 1e-4)) < 2e-4 for key, score in expected.items())
    assert list(got.values()) == sorted(got.values(), reverse=True)


async def test_another_process_sees_what_this_one_writes(
    store: Store, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 4)
    other = await open_again()
    try:
        for number in range(30):
            await put(store, f"k{number}", f"tea number {number}")
            assert number + 1 == (await ask(other, "tea")).total
        await store.remove_memory("default", "k3", now=NOW)
        await put(store, "k4", "coffee")

        assert 28 == (await ask(other, "tea")).total
        assert ["k4"] == keys(await ask(other, "coffee"))
    finally:
        await other.close()


async def test_pages_follow_each_other_without_gap_or_repetition(store: Store) -> None:
    for number in range(25):
        await put(store, f"k{number:02}", "tea " * (number % 5 + 1) + "filler " * number)

    whole = await ask(store, "tea", page=Slice(limit=100))
    by_offset = [
        key
        for offset in range(0, 30, 7)
        for key in keys(await ask(store, "tea", page=Slice(limit=7, offset=offset)))
    ]
    by_place, after = [], None
    while True:
        page = await ask(store, "tea", page=Slice(limit=7, after=after))
        by_place += keys(page)
        after = page.next
        if after is None:
            break

    assert keys(whole) == by_offset == by_place
    assert 25 == whole.total


async def test_a_page_is_full_if_the_best_documents_are_in_the_sample(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_SAMPLED", 4)
    for number in range(1, 81):
        await put(store, f"k{number}", "tea tea" if number % 4 == 0 else "tea and much else")

    found = await ask(store, "tea", page=Slice(limit=25))

    assert {f"k{number}" for number in range(4, 81, 4)} == set(keys(found)[:20])
    assert 25 == len(found.rows)


async def test_scoring_some_documents_gives_the_same_page_as_scoring_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_BEST_BY_TERMS", 5)
    monkeypatch.setattr(scoring, "_SAMPLED", 2)
    chance = random.Random(8)
    asked = [chance.gauss(0, 1) for _ in range(16)]
    texts = {f"k{n}": " ".join(chance.choices(WORDS, k=6)) + f" x{n}" for n in range(120)}
    meant = {text: [chance.gauss(0, 1) for _ in asked] for text in texts.values()}
    for key, text in texts.items():
        await put(store, key, text)
    await store_vectors(store, **{text: vector(*parts) for text, parts in meant.items()})

    async def page(**place: Any) -> Found[MemoryHit]:
        return await ask(store, "tea in oslo", meaning=vector(*asked), page=Slice(**place))

    by_words = Oracle(texts).scores(question_terms("tea in oslo"))
    cosines = {key: cosine(asked, meant[text]) for key, text in texts.items()}
    expected = {
        key: by_words.get(key, 0) / 2
        + (cosines[key] / 2 if cosines[key] >= vectors.MIN_COSINE else 0)
        for key in texts
        if key in by_words or cosines[key] >= vectors.MIN_COSINE
    }
    whole = await page(limit=200)
    assert {hit.key: hit.relevance for hit in whole.rows} == pytest.approx(expected, abs=5e-3)
    assert len(expected) == whole.total > 50
    by_offset = [await page(limit=9, offset=offset) for offset in range(0, whole.total, 9)]
    assert keys(whole) == [key for part in by_offset for key in keys(part)]
    second = await page(limit=9, after=by_offset[0].next)
    assert (keys(by_offset[1]), 9, whole.total) == (keys(second), second.offset, second.total)


async def test_a_search_finds_nothing_of_other_namespaces(store: Store) -> None:
    await put(store, "a", "tea", namespace="one")
    await put(store, "a", "coffee", namespace="two")

    assert ["a"] == keys(await ask(store, "tea", namespace="one"))
    assert 0 == (await ask(store, "tea", namespace="two")).total
    assert 0 == (await ask(store, "tea", namespace="three")).total


KEYWORDS = {
    "tea": Keyword(("tea",)),
    "coffee": Keyword(("coffe",)),
    "both": Keyword(("tea", "coffe")),
    "phrase": Keyword(("green", "tea"), "green tea"),
    "unknown": Keyword(("xyzzy",)),
}


@pytest.mark.parametrize(
    ("names", "needs_all", "expected"),
    [
        (["tea"], False, {"a", "b", "c"}),
        (["tea", "coffee"], False, {"a", "b", "c", "d"}),
        (["tea", "coffee"], True, {"b"}),
        (["both"], False, {"b"}),
        (["phrase"], False, {"a"}),
        (["phrase", "coffee"], False, {"a", "b", "d"}),
        (["tea", "unknown"], True, set()),
        (["tea", "unknown"], False, {"a", "b", "c"}),
        (["unknown"], False, set()),
    ],
)
async def test_keywords_are_combined(
    store: Store, names: list[str], needs_all: bool, expected: set[str]
) -> None:
    await put(store, "a", "Green  TEA & cake")
    await put(store, "b", "Tea or <coffee>?")
    await put(store, "c", "Tea is never green")
    await put(store, "d", "Coffee")
    wanted = [KEYWORDS[name] for name in names]

    found = await store.search_keywords(MemoryQuery("default", NOW), wanted, needs_all=needs_all)

    assert expected == set(keys(found))
    assert len(expected) == found.total
    assert [1.0] * bool(expected) == [hit.relevance for hit in found.rows[:1]]


async def test_near_duplicates_under_other_keys_are_similar(store: Store) -> None:
    await put(store, "a", "The Lisbon office moves to a new building in March.")
    await put(store, "b", "Tea is served at four.")
    await put(store, "c", "The Lisbon office is moving to a new building in March!")
    memory = await store.memory("default", "c", now=NOW, history=0)
    assert memory is not None

    [similar] = await store.similar_memories(memory, now=NOW)

    assert ("a", 1.0) == (similar.key, similar.similarity)


async def test_searches_during_writes_find_all_existing_memories(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 4)
    await put(store, "first", "tea")

    async def write() -> None:
        for number in range(60):
            await put(store, f"k{number}", "coffee")

    async def look() -> set[str]:
        seen = set()
        for _ in range(60):
            seen.update(keys(await ask(store, "tea")))
            assert 1 == (await ask(store, "tea")).total
        return seen

    results = await asyncio.gather(write(), look(), look(), look())

    assert [{"first"}] * 3 == results[1:]
