"""Meaning is learnt by itself, by one process at a time, and before a search if it is little."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.app import App
from postroom.errors import ProviderError
from postroom.model.memory import Vector, shelf_of
from postroom.operations.context import Context
from postroom.operations.memories import memory_add
from postroom.operations.messages import search_messages
from postroom.operations.operation import call
from postroom.operations.recalling import memory_search
from postroom.pipeline import learning
from postroom.pipeline.learning import FEW, forget_other_models, learn_more
from postroom.pipeline.upkeep import chores
from tests.mails import deliver, mail, new_inbox

SHELF = shelf_of("default")


class Letters:
    """An embedder whose vectors count letters; it notes what it is asked."""

    def __init__(self, model: str = "letters") -> None:
        self.model = model
        self.asked: list[str] = []
        self.fails = False

    async def embed(self, texts: list[str]) -> list[Vector]:
        if self.fails:
            raise ProviderError("nobody there")
        self.asked += texts
        counts = [[float(1 + text.count(c)) for c in "abcdefgh"] for text in texts]
        return [struct.pack("<8f", *row) for row in counts]

    async def close(self) -> None:
        pass


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def house(ctx: Context, letters: Letters) -> Context:
    return replace(ctx, embedder=letters)


async def remember(ctx: Context, *keys: str, **fields: object) -> None:
    for key in keys:
        await call(ctx, memory_add, {"key": key, "text": f"Text {key}.", **fields})


async def test_the_chore_learns_what_is_new_and_then_rests(house: Context, letters: Letters):
    await remember(house, *"abcdefghijklmnopqrst")

    rounds = [await learn_more(house) for _ in range(3)]

    assert [True, True, False] == rounds
    assert sorted(f"Text {key}." for key in "abcdefghijklmnopqrst") == sorted(letters.asked)
    assert 0 == await house.store.count_unlearnt(SHELF, model="letters", most=9)


async def test_only_who_holds_the_lease_learns(house: Context, letters: Letters):
    await remember(house, "a")
    minute = timedelta(minutes=1)
    assert await house.store.claim("learn", "another", now=house.clock(), lasting=minute)

    assert not await learn_more(house)
    assert [] == letters.asked


async def test_nothing_is_loaded_or_claimed_where_there_is_nothing_to_do(house: Context):
    assert not await learn_more(house)

    minute = timedelta(minutes=1)
    assert await house.store.claim("learn", "another", now=house.clock(), lasting=minute)


async def test_without_a_model_there_is_nothing_to_learn(ctx: Context):
    words = replace(ctx, embedder=None)
    await remember(words, "a")

    assert not await learn_more(words)
    page = await call(words, memory_search, {"query": "text"})
    assert ["a"] == [hit.key for hit in page.results]


async def test_what_is_over_is_removed(house: Context):
    await remember(house, "kept")
    await remember(house, "over", expires_at="2100-01-01")
    later = replace(house, clock=lambda: house.clock() + timedelta(days=365 * 100))
    await learn_more(house)

    assert await learn_more(later)

    everything = [m async for m in later.store.every_memory(None, now=house.clock())]
    assert ["kept"] == [memory.key for memory in everything]


async def test_a_search_learns_little_itself_and_leaves_much_to_the_chore(
    house: Context, letters: Letters, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(learning, "FEW", 3)
    await remember(house, "a", "b", "c")
    await call(house, memory_search, {"query": "text"})
    assert 0 == await house.store.count_unlearnt(SHELF, model="letters", most=9)

    await remember(house, "d", "e", "f", "g")
    await call(house, memory_search, {"query": "text"})

    assert 4 == await house.store.count_unlearnt(SHELF, model="letters", most=9)
    assert FEW >= 150


async def test_searches_at_the_same_time_learn_everything_once(house: Context, letters: Letters):
    await remember(house, *"abcdefghijkl")

    await asyncio.gather(*(call(house, memory_search, {"query": "text"}) for _ in range(5)))

    learnt = [text for text in letters.asked if text != "text"]
    assert sorted(set(learnt)) == sorted(learnt)
    assert 12 == len(learnt)


async def test_a_search_says_so_when_the_model_fails(house: Context, letters: Letters):
    await remember(house, "a")
    letters.fails = True

    with pytest.raises(ProviderError, match="nobody there"):
        await call(house, memory_search, {"query": "text"})


async def test_another_model_makes_everything_be_learnt_anew(house: Context):
    await remember(house, "a")
    await learn_more(house)
    other = replace(house, embedder=Letters("other letters"))

    await forget_other_models(other)
    assert 1 == len(await other.store.unlearnt(SHELF, limit=9))
    await learn_more(other)
    await forget_other_models(other)

    assert 0 == len(await other.store.unlearnt(SHELF, limit=9))


async def test_a_search_learns_anew_what_another_model_knew(house: Context):
    """Who asks once at the command line has no chores."""
    await remember(house, *"abcdefghijklmnopqrst")
    while await learn_more(house):
        pass
    letters = Letters("other letters")
    other = replace(house, embedder=letters)

    page = await call(other, memory_search, {"query": "gaggle"})

    assert 20 == page.total
    assert 21 == len(letters.asked)
    assert 0 == await other.store.count_unlearnt(SHELF, model=letters.model, most=9)


async def test_a_search_of_mail_learns_anew_what_another_model_knew(
    house: Context,
):
    inbox = await new_inbox(house)
    await deliver(house, inbox, mail("Fruit", "apple"))
    await call(house, search_messages, {"q": "fruit", "mode": "hybrid"})
    other = replace(house, embedder=Letters("other letters"))

    page = await call(other, search_messages, {"q": "gaggle", "mode": "hybrid"})

    assert ["Fruit"] == [row.subject for row in page.results]


async def test_learning_is_among_the_chores(app: App):
    assert {"learn", "forget"} <= {chore.name for chore in chores(app.house)}
