"""Memories and mail are found by their vectors."""

from __future__ import annotations

import random

import pytest

from postroom.model.inbox import Inbox
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.memory import (
    MAIL_COLLECTION,
    EmbeddedQuery,
    MemoryHit,
    MemoryQuery,
    collection_of,
)
from postroom.model.page import Found
from postroom.model.view import EVERYTHING, NOTHING
from postroom.pipeline.services import Services
from postroom.store.ranking import vectors
from postroom.store.store import Store
from tests.mails import deliver, mail
from tests.stores.memories import NOW, put
from tests.stores.ranking_helpers import WORDS, ask, cosine, keys, store_vectors, vector


async def test_vectors_find_memories_without_a_common_word(store: Store) -> None:
    for name in ("apple", "pear", "tram"):
        await put(store, name, name)
    await store_vectors(
        store, apple=vector(1, 0, 0), pear=vector(0.8, 0.6, 0), tram=vector(0, 0, 1)
    )

    found = await ask(store, "fruit", meaning=vector(0.9, 0.1, 0))

    assert ["apple", "pear"] == keys(found)
    assert found.rows[0].relevance > found.rows[1].relevance > 0.3


async def test_terms_and_vectors_together_rank_better_than_either(store: Store) -> None:
    for name in ("apple", "pear", "tram"):
        await put(store, name, name)
    await store_vectors(store, apple=vector(1, 0), pear=vector(0.9, 0.4), tram=vector(0, 1))

    found = await ask(store, "pear", meaning=vector(1, 0.1))

    assert ["pear", "apple"] == keys(found)
    assert found.rows[0].relevance > 0.9


@pytest.mark.parametrize("words", [400, 10_000])
async def test_a_long_memory_with_all_terms_ranks_above_a_short_one_with_none(
    store: Store, words: int
) -> None:
    """Only the beginning of a long text is embedded, so its terms must be enough."""
    noise = " ".join(f"filler{number % 500}" for number in range(words))
    texts = {"long": f"{noise} The needlepoint supplier is Zorbatex.", "sewing": "sewing"}
    texts |= {name: f"{name} is served at four" for name in WORDS}
    for key, text in texts.items():
        await put(store, key, text)
    meant = {text: vector(0.1, 1) for text in texts.values()} | {"sewing": vector(0.3, 1)}
    found = await store.unembedded(None, limit=100)
    await store.store_vectors(
        "test", [(document, meant.get(document.text, vector(0.1, 1))) for document in found]
    )

    page = await ask(store, "who is the needlepoint supplier", meaning=vector(1, 0.1))

    assert "long" == keys(page)[0]
    assert page.rows[0].relevance > 1.5 * page.rows[1].relevance


async def test_among_many_vectors_the_nearest_sketches_and_the_best_by_terms_are_compared(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sketches select the vectors to compare, and leave out only distant ones."""
    monkeypatch.setattr(vectors, "_EXHAUSTIVE", 10)
    monkeypatch.setattr(vectors, "_COMPARED", 6)
    monkeypatch.setattr(vectors, "_SAMPLED", 1)
    chance = random.Random(4)
    asked = [chance.gauss(0, 1) for _ in range(128)]
    meant = {
        f"n{number}": [part + chance.gauss(0, 0.2 + number / 20) for part in asked]
        for number in range(60)
    }
    for name in meant:
        await put(store, name, name)
    await store_vectors(store, **{name: vector(*parts) for name, parts in meant.items()})

    near = await ask(store, "nothing", meaning=vector(*asked))
    both = await ask(store, "n15", meaning=vector(*asked))

    nearest = sorted(meant, key=lambda name: -cosine(asked, meant[name]))
    assert nearest[:3] == keys(near)[:3]
    assert 6 <= near.total < 30
    assert "n15" == keys(both)[0]
    assert both.rows[0].relevance > 0.6


async def test_a_changed_text_loses_its_vector(store: Store) -> None:
    await put(store, "k", "apple")
    await store_vectors(store, apple=vector(1, 0))

    await put(store, "k", "tram")

    assert 0 == (await ask(store, "fruit", meaning=vector(1, 0))).total
    assert 1 == await store.count_unembedded(collection_of("default"), model="test", max_count=9)


async def test_vectors_of_another_model_are_deleted(store: Store) -> None:
    await put(store, "k", "apple")
    await store_vectors(store, apple=vector(1, 0))

    await store.remove_vectors_of_other_models("test")
    assert 0 == await store.count_unembedded(collection_of("default"), model="test", max_count=9)
    await store.remove_vectors_of_other_models("another")

    assert 1 == await store.count_unembedded(collection_of("default"), model="test", max_count=9)
    assert 0 == (await ask(store, "fruit", meaning=vector(1, 0))).total


async def test_a_search_reports_a_few_memories_without_vectors(store: Store) -> None:
    async def found(few: int) -> Found[MemoryHit] | None:
        query, meant = MemoryQuery("default", NOW), vector(1, 0)
        return await store.search_embedded_memories(
            query, EmbeddedQuery(["appl"], meant, "test"), max_unembedded=few
        )

    await put(store, "a", "apple")
    await put(store, "b", "tram")

    assert await found(2) is None
    assert ["a"] == keys(await found(1) or Found((), 0, 0, None))
    await store_vectors(store, apple=vector(1, 0), tram=vector(1, 0.1))
    assert ["a", "b"] == keys(await found(2) or Found((), 0, 0, None))


async def test_mail_is_ranked_by_terms_and_vectors_once_indexed(
    services: Services, inbox: Inbox
) -> None:
    store = services.store
    one = await deliver(services, inbox, mail("Fruit", "apple"))
    two = await deliver(services, inbox, mail("Traffic", "tram"))
    assert 0 == await store.index_mail(limit=9, starts=False)
    assert 2 == await store.index_mail(limit=9, starts=True)
    three = await deliver(services, inbox, mail("More", "pear"))
    assert 1 == await store.index_mail(limit=9, starts=False)
    meanings = {"Fruit": vector(1, 0), "Traffic": vector(0, 1), "More": vector(0.8, 0.6)}
    waiting = await store.unembedded(MAIL_COLLECTION, limit=9)
    await store.store_vectors(
        "test", [(document, meanings[document.text.split("\n")[0]]) for document in waiting]
    )

    async def find(**criteria: object) -> list[str]:
        query = MessageQuery(**{"visible": EVERYTHING, **criteria})  # type: ignore[arg-type]
        embedded = EmbeddedQuery(["fruit"], vector(1, 0.1), "test")
        found = await store.rank_mail(query, embedded)
        assert len(found.rows) == found.total
        return [row.id for row in found.rows]

    assert [one.message_id, three.message_id] == await find()
    assert [three.message_id] == await find(thread_id=three.thread_id)
    assert [] == await find(visible=NOTHING)
    await store.change_messages([one.message_id], Change(move_to="Trash"), EVERYTHING)
    assert [three.message_id] == await find()
    await store.remove_message(three.message_id, EVERYTHING)
    assert [] == await find()
    assert [one.message_id] == await find(mailbox="*")
    assert two.message_id not in await find(mailbox="*")
    assert () == await store.problems()
