"""Memories and mail are found by what they mean, once that is learnt."""

from __future__ import annotations

import random

import pytest

from postroom.model.inbox import Inbox
from postroom.model.memory import MAIL_SHELF, MemoryHit, MemoryQuery, shelf_of
from postroom.model.page import Found
from postroom.model.stored import Change, MessageQuery
from postroom.pipeline.house import House
from postroom.ports.store import Store
from postroom.store.recall import vectors
from tests.mails import deliver, mail
from tests.stores.memories import NOW, put
from tests.stores.recalling import WORDS, ask, cosine, keys, learn, vector


async def test_meaning_finds_what_shares_no_word(store: Store) -> None:
    for name in ("apple", "pear", "tram"):
        await put(store, name, name)
    await learn(store, apple=vector(1, 0, 0), pear=vector(0.8, 0.6, 0), tram=vector(0, 0, 1))

    found = await ask(store, "fruit", meaning=vector(0.9, 0.1, 0))

    assert ["apple", "pear"] == keys(found)
    assert found.rows[0].relevance > found.rows[1].relevance > 0.3


async def test_words_and_meaning_together_beat_either(store: Store) -> None:
    for name in ("apple", "pear", "tram"):
        await put(store, name, name)
    await learn(store, apple=vector(1, 0), pear=vector(0.9, 0.4), tram=vector(0, 1))

    found = await ask(store, "pear", meaning=vector(1, 0.1))

    assert ["pear", "apple"] == keys(found)
    assert found.rows[0].relevance > 0.9


@pytest.mark.parametrize("words", [400, 10_000])
async def test_a_long_memory_with_all_the_words_beats_a_short_one_with_none(
    store: Store, words: int
) -> None:
    """The model sees only the beginning of a long text: its words must be enough."""
    noise = " ".join(f"filler{number % 500}" for number in range(words))
    texts = {"long": f"{noise} The needlepoint supplier is Zorbatex.", "sewing": "sewing"}
    texts |= {name: f"{name} is served at four" for name in WORDS}
    for key, text in texts.items():
        await put(store, key, text)
    meant = {text: vector(0.1, 1) for text in texts.values()} | {"sewing": vector(0.3, 1)}
    found = await store.unlearnt(None, limit=100)
    await store.learn("test", [(leaf, meant.get(leaf.text, vector(0.1, 1))) for leaf in found])

    page = await ask(store, "who is the needlepoint supplier", meaning=vector(1, 0.1))

    assert "long" == keys(page)[0]
    assert page.rows[0].relevance > 1.5 * page.rows[1].relevance


async def test_among_very_many_the_nearest_and_the_best_by_words_are_compared(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sketch chooses few; what it leaves out is only what is far."""
    monkeypatch.setattr(vectors, "_FEW", 10)
    monkeypatch.setattr(vectors, "_LOOKED_AT", 6)
    monkeypatch.setattr(vectors, "_SAMPLED", 1)
    chance = random.Random(4)
    asked = [chance.gauss(0, 1) for _ in range(128)]
    meant = {
        f"n{number}": [part + chance.gauss(0, 0.2 + number / 20) for part in asked]
        for number in range(60)
    }
    for name in meant:
        await put(store, name, name)
    await learn(store, **{name: vector(*parts) for name, parts in meant.items()})

    near = await ask(store, "nothing", meaning=vector(*asked))
    both = await ask(store, "n15", meaning=vector(*asked))

    nearest = sorted(meant, key=lambda name: -cosine(asked, meant[name]))
    assert nearest[:3] == keys(near)[:3]
    assert 6 <= near.total < 30
    assert "n15" == keys(both)[0]
    assert both.rows[0].relevance > 0.6


async def test_a_changed_text_loses_its_old_meaning(store: Store) -> None:
    await put(store, "k", "apple")
    await learn(store, apple=vector(1, 0))

    await put(store, "k", "tram")

    assert 0 == (await ask(store, "fruit", meaning=vector(1, 0))).total
    assert 1 == await store.count_unlearnt(shelf_of("default"), model="test", most=9)


async def test_vectors_of_another_model_are_forgotten(store: Store) -> None:
    await put(store, "k", "apple")
    await learn(store, apple=vector(1, 0))

    await store.forget_other_models("test")
    assert 0 == await store.count_unlearnt(shelf_of("default"), model="test", most=9)
    await store.forget_other_models("another")

    assert 1 == await store.count_unlearnt(shelf_of("default"), model="test", most=9)
    assert 0 == (await ask(store, "fruit", meaning=vector(1, 0))).total


async def test_whoever_asks_hears_of_a_few_that_are_not_learnt_yet(store: Store) -> None:
    async def found(few: int) -> Found[MemoryHit] | None:
        query, meant = MemoryQuery("default", NOW), vector(1, 0)
        return await store.recall_learnt(query, ["appl"], vector=meant, model="test", few=few)

    await put(store, "a", "apple")
    await put(store, "b", "tram")

    assert await found(2) is None
    assert ["a"] == keys(await found(1) or Found((), 0, 0, None))
    await learn(store, apple=vector(1, 0), tram=vector(1, 0.1))
    assert ["a", "b"] == keys(await found(2) or Found((), 0, 0, None))


async def test_mail_is_ranked_by_words_and_meaning_once_it_is_wanted(
    house: House, inbox: Inbox
) -> None:
    store = house.store
    one = await deliver(house, inbox, mail("Fruit", "apple"))
    two = await deliver(house, inbox, mail("Traffic", "tram"))
    assert 0 == await store.shelve_mail(limit=9, starts=False)
    assert 2 == await store.shelve_mail(limit=9, starts=True)
    three = await deliver(house, inbox, mail("More", "pear"))
    assert 1 == await store.shelve_mail(limit=9, starts=False)
    meanings = {"Fruit": vector(1, 0), "Traffic": vector(0, 1), "More": vector(0.8, 0.6)}
    waiting = await store.unlearnt(MAIL_SHELF, limit=9)
    await store.learn("test", [(leaf, meanings[leaf.text.split("\n")[0]]) for leaf in waiting])

    async def find(**criteria: object) -> list[str]:
        query = MessageQuery(**criteria)  # type: ignore[arg-type]
        found = await store.recall_mail(query, ["fruit"], vector=vector(1, 0.1), model="test")
        assert len(found.rows) == found.total
        return [row.id for row in found.rows]

    assert [one.message_id, three.message_id] == await find()
    assert [three.message_id] == await find(thread_id=three.thread_id)
    assert [] == await find(visible=frozenset())
    await store.change_messages([one.message_id], Change(move_to="Trash"), None)
    assert [three.message_id] == await find()
    await store.remove_message(three.message_id, None)
    assert [] == await find()
    assert [one.message_id] == await find(mailbox="*")
    assert two.message_id not in await find(mailbox="*")
    assert () == await store.problems()
