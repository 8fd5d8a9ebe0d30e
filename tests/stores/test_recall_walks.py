"""Who reads a ranked list page by page sees all of it once, whatever happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from postroom.errors import InvalidInput
from postroom.mail.terms import question_terms
from postroom.model.inbox import Inbox
from postroom.model.memory import MAIL_SHELF, Keyword, MemoryQuery
from postroom.model.page import Place, Slice
from postroom.model.stored import MessageQuery
from postroom.pipeline.house import House
from postroom.ports.store import Store
from postroom.store.recall import mail as mail_shelf
from postroom.store.recall import ranking, shelves, vectors
from tests.mails import deliver, mail
from tests.stores.conftest import OpenAgain
from tests.stores.test_recall import NOW, WORDS, ask, put, vector

Shown = list[tuple[str, float]]
"""What a page shows: names and their relevance."""

Read = Callable[[Store, Slice], Awaitable[tuple[Shown, Place | None, int]]]
QUESTION = "tea in oslo"


@pytest.fixture
def chance() -> random.Random:
    return random.Random(4)


def meaning(chance: random.Random) -> bytes:
    return vector(*(chance.gauss(0.2, 1) for _ in range(16)))


@pytest.fixture
def asked(chance: random.Random) -> bytes:
    return meaning(chance)


async def by_meaning(
    store: Store, page: Slice, asked: bytes | None
) -> tuple[Shown, Place | None, int]:
    found = await ask(store, QUESTION, meaning=asked, page=page)
    return [(hit.key, hit.relevance) for hit in found.rows], found.next, found.total


async def by_keywords(store: Store, page: Slice) -> tuple[Shown, Place | None, int]:
    query, keywords = (
        MemoryQuery("default", NOW, page=page),
        [Keyword(("tea",)), Keyword(("oslo",))],
    )
    found = await store.recall_keywords(query, keywords, needs_all=False)
    return [(hit.key, hit.relevance) for hit in found.rows], found.next, found.total


async def remember(store: Store, chance: random.Random, *keys: str) -> None:
    for key in keys:
        await put(store, key, " ".join(chance.choices(WORDS, k=chance.randint(2, 12))))


async def learn_all(store: Store, chance: random.Random, limit: int = 1000) -> None:
    found = await store.unlearnt(None, limit=limit)
    await store.learn("test", [(leaf, meaning(chance)) for leaf in found])


async def walk(stores: list[Store], read: Read, happens: Callable[[int], Awaitable[None]]) -> Shown:
    """Read page by page, each in the next process, while things happen."""
    seen: Shown = []
    after, turn = None, 0
    while turn == 0 or after is not None:
        shown, after, _ = await read(stores[turn % len(stores)], Slice(limit=5, after=after))
        seen += shown
        turn += 1
        await happens(turn)
    return seen


@pytest.mark.parametrize("kind", ["words", "meaning", "meaning among many", "keywords"])
async def test_a_walk_shows_once_what_was_there_throughout(
    store: Store,
    open_again: OpenAgain,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    asked: bytes,
    kind: str,
) -> None:
    monkeypatch.setattr(shelves, "TAIL_LEAVES", 32)
    monkeypatch.setattr(ranking, "_BY_WORDS", 10)
    if kind == "meaning among many":
        monkeypatch.setattr(vectors, "_FEW", 20)
        monkeypatch.setattr(vectors, "_LOOKED_AT", 40)
    names = [f"k{number}" for number in range(120)]
    await remember(store, chance, *names)
    if kind != "words":
        await learn_all(store, chance, limit=90)

    async def read(store: Store, page: Slice) -> tuple[Shown, Place | None, int]:
        if kind == "keywords":
            return await by_keywords(store, page)
        return await by_meaning(store, page, None if kind == "words" else asked)

    gone = chance.sample(names, 40)

    async def happens(turn: int) -> None:
        await remember(store, chance, *(f"n{turn}_{number}" for number in range(7)))
        await learn_all(store, chance, limit=10)
        removed = gone[2 * turn]
        await store.remove_memory("default", removed, now=NOW)
        await remember(store, chance, gone[2 * turn + 1])

    whole, _, total = await read(store, Slice(limit=200))
    other = await open_again()
    seen = await walk([store, other], read, happens)
    await other.close()

    assert total == len(whole) > 40
    assert [one for one in seen if one[0] not in gone] == [
        one for one in whole if one[0] not in gone
    ]
    assert len(seen) == len({name for name, _ in seen})
    assert {name for name, _ in seen} <= set(names)


async def test_mail_that_comes_and_is_learnt_meanwhile_moves_nothing(
    house: House, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, chance: random.Random, asked: bytes
) -> None:
    """The shelf is full, so that whatever comes drives the oldest away."""
    monkeypatch.setattr(mail_shelf, "MOST_MAIL", 60)
    store = house.store

    async def come(count: int) -> None:
        for _ in range(count):
            text = " ".join(chance.choices(WORDS, k=chance.randint(2, 12)))
            await deliver(house, inbox, mail(text, text))
        await store.shelve_mail(limit=200, starts=True)

    async def read(store: Store, page: Slice) -> tuple[Shown, Place | None, int]:
        terms = question_terms(QUESTION)
        query = MessageQuery(page=page)
        found = await store.recall_mail(query, terms, vector=asked, model="test")
        return [(row.id, row.relevance or 0.0) for row in found.rows], found.next, found.total

    async def happens(turn: int) -> None:
        await come(2)
        some = await store.unlearnt(MAIL_SHELF, limit=6)
        await store.learn("test", [(leaf, meaning(chance)) for leaf in some])

    await come(60)
    some = await store.unlearnt(MAIL_SHELF, limit=30)
    await store.learn("test", [(leaf, meaning(chance)) for leaf in some])
    whole, _, _ = await read(store, Slice(limit=100))
    seen = await walk([store], read, happens)
    left, _, _ = await read(store, Slice(limit=100))

    stayed = {name for name, _ in left} & {name for name, _ in whole}
    assert len(stayed) > 10
    assert [one for one in seen if one[0] in stayed] == [one for one in whole if one[0] in stayed]
    assert len(seen) == len({name for name, _ in seen})


async def test_a_list_whose_leaves_have_new_numbers_is_to_be_begun_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, chance: random.Random
) -> None:
    monkeypatch.setattr(shelves, "FEW_DEAD", 3)
    await remember(store, chance, *(f"k{number}" for number in range(30)))
    _, after, _ = await by_meaning(store, Slice(limit=2), None)
    for number in range(20):
        await store.remove_memory("default", f"k{number}", now=NOW)

    with pytest.raises(InvalidInput, match="start again without it"):
        await by_meaning(store, Slice(limit=2, after=after), None)


async def test_a_list_that_was_begun_with_meaning_does_not_go_on_without(
    store: Store, chance: random.Random, asked: bytes
) -> None:
    await remember(store, chance, *(f"k{number}" for number in range(30)))
    await learn_all(store, chance)
    _, with_meaning, _ = await by_meaning(store, Slice(limit=2), asked)
    words, without, _ = await by_meaning(store, Slice(limit=2), None)

    with pytest.raises(InvalidInput, match="start again without it"):
        await by_meaning(store, Slice(limit=2, after=with_meaning), None)
    rest, _, _ = await by_meaning(store, Slice(limit=99, after=without), asked)
    assert (await by_meaning(store, Slice(limit=99), None))[0] == words + rest


async def test_what_two_have_learnt_at_once_is_shown_once(store: Store, asked: bytes) -> None:
    await put(store, "a", "tea")
    found = await store.unlearnt(None, limit=9)
    await store.learn("test", [(leaf, asked) for leaf in found])
    assert 1 == (await ask(store, QUESTION, meaning=asked)).total

    await store.learn("test", [(leaf, asked) for leaf in found])

    assert ["a"] == [hit.key for hit in (await ask(store, QUESTION, meaning=asked)).rows]
