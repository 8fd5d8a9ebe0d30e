"""Pages of a ranked list show each document once, whatever changes between them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from postroom.errors import InvalidInput
from postroom.mail.text.terms import question_terms
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import MAIL_COLLECTION, EmbeddedQuery, Keyword, MemoryQuery
from postroom.model.page import Slice, SortKey
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.ranking import index, scoring, vectors
from postroom.store.store import Store
from tests.mails import deliver, mail
from tests.stores.conftest import OpenAgain
from tests.stores.test_memory_terms import NOW, WORDS, ask, put, vector

Shown = list[tuple[str, float]]
"""A page: names and their relevance."""

Read = Callable[[Store, Slice], Awaitable[tuple[Shown, SortKey | None, int]]]
QUESTION = "tea in oslo"


@pytest.fixture
def chance() -> random.Random:
    return random.Random(4)


def meaning(chance: random.Random) -> bytes:
    return vector(*(chance.gauss(0.2, 1) for _ in range(16)))


@pytest.fixture
def query_vector(chance: random.Random) -> bytes:
    return meaning(chance)


async def by_meaning(
    store: Store, page: Slice, query_vector: bytes | None
) -> tuple[Shown, SortKey | None, int]:
    found = await ask(store, QUESTION, meaning=query_vector, page=page)
    return [(hit.key, hit.relevance) for hit in found.rows], found.next, found.total


async def by_keywords(store: Store, page: Slice) -> tuple[Shown, SortKey | None, int]:
    query, keywords = (
        MemoryQuery("default", NOW, page=page),
        [Keyword(("tea",)), Keyword(("oslo",))],
    )
    found = await store.search_keywords(query, keywords, needs_all=False)
    return [(hit.key, hit.relevance) for hit in found.rows], found.next, found.total


async def remember(store: Store, chance: random.Random, *keys: str) -> None:
    for key in keys:
        await put(store, key, " ".join(chance.choices(WORDS, k=chance.randint(2, 12))))


async def embed_all(store: Store, chance: random.Random, limit: int = 1000) -> None:
    found = await store.unembedded(None, limit=limit)
    await store.store_vectors("test", [(document, meaning(chance)) for document in found])


async def walk(stores: list[Store], read: Read, happens: Callable[[int], Awaitable[None]]) -> Shown:
    """Read page by page, each in another process, with changes in between."""
    seen: Shown = []
    after, turn = None, 0
    while turn == 0 or after is not None:
        shown, after, _ = await read(stores[turn % len(stores)], Slice(limit=5, after=after))
        seen += shown
        turn += 1
        await happens(turn)
    return seen


@pytest.mark.long_cases("postgres-words", "postgres-meaning")
@pytest.mark.parametrize("kind", ["words", "meaning", "meaning among many", "keywords"])
async def test_pages_show_each_lasting_document_once(
    store: Store,
    open_again: OpenAgain,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    query_vector: bytes,
    kind: str,
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 32)
    monkeypatch.setattr(scoring, "_BEST_BY_TERMS", 10)
    if kind == "meaning among many":
        monkeypatch.setattr(vectors, "_EXHAUSTIVE", 20)
        monkeypatch.setattr(vectors, "_COMPARED", 40)
    names = [f"k{number}" for number in range(120)]
    await remember(store, chance, *names)
    if kind != "words":
        await embed_all(store, chance, limit=90)

    async def read(store: Store, page: Slice) -> tuple[Shown, SortKey | None, int]:
        if kind == "keywords":
            return await by_keywords(store, page)
        return await by_meaning(store, page, None if kind == "words" else query_vector)

    gone = chance.sample(names, 40)

    async def happens(turn: int) -> None:
        await remember(store, chance, *(f"n{turn}_{number}" for number in range(7)))
        await embed_all(store, chance, limit=10)
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


async def test_mail_that_arrives_between_pages_does_not_shift_them(
    services: Services,
    inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    query_vector: bytes,
) -> None:
    """The collection is full, so new mail displaces the oldest."""
    monkeypatch.setattr(index, "MAX_MAIL", 60)
    store = services.store

    async def come(count: int) -> None:
        for _ in range(count):
            text = " ".join(chance.choices(WORDS, k=chance.randint(2, 12)))
            await deliver(services, inbox, mail(text, text))
        await store.index_mail(limit=200, starts=True)

    async def read(store: Store, page: Slice) -> tuple[Shown, SortKey | None, int]:
        terms = question_terms(QUESTION)
        query = MessageQuery(visible=EVERYTHING, page=page)
        found = await store.rank_mail(query, EmbeddedQuery(terms, query_vector, "test"))
        return [(row.id, row.relevance or 0.0) for row in found.rows], found.next, found.total

    async def happens(turn: int) -> None:
        await come(2)
        some = await store.unembedded(MAIL_COLLECTION, limit=6)
        await store.store_vectors("test", [(document, meaning(chance)) for document in some])

    await come(60)
    some = await store.unembedded(MAIL_COLLECTION, limit=30)
    await store.store_vectors("test", [(document, meaning(chance)) for document in some])
    whole, _, _ = await read(store, Slice(limit=100))
    seen = await walk([store], read, happens)
    left, _, _ = await read(store, Slice(limit=100))

    stayed = {name for name, _ in left} & {name for name, _ in whole}
    assert len(stayed) > 10
    assert [one for one in seen if one[0] in stayed] == [one for one in whole if one[0] in stayed]
    assert len(seen) == len({name for name, _ in seen})


@pytest.mark.long_cases("postgres-words", "postgres-meaning")
@pytest.mark.parametrize("kind", ["words", "meaning", "meaning among many", "keywords"])
async def test_a_cursor_continues_after_most_of_its_collection_is_removed(
    store: Store,
    open_again: OpenAgain,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    query_vector: bytes,
    kind: str,
) -> None:
    """Segments are dissolved, written and merged again; a new process reads the last page."""
    monkeypatch.setattr(index, "MAX_TOMBSTONES", 20)
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 6)
    if kind == "meaning among many":
        monkeypatch.setattr(vectors, "_EXHAUSTIVE", 20)
        monkeypatch.setattr(vectors, "_COMPARED", 40)

    async def read(store: Store, page: Slice) -> tuple[Shown, SortKey | None, int]:
        if kind == "keywords":
            return await by_keywords(store, page)
        return await by_meaning(store, page, None if kind == "words" else query_vector)

    names = [f"k{number}" for number in range(120)]
    await remember(store, chance, *names)
    await put(store, "k0", "tea in oslo")
    await embed_all(store, chance)
    whole, _, _ = await read(store, Slice(limit=200))
    first, after, _ = await read(store, Slice(limit=2))
    kept = set(chance.sample(names, 30)) | {name for name, _ in first}
    for name in names:
        if name not in kept:
            await store.remove_memory("default", name, now=NOW)
    await remember(store, chance, *(f"n{number}" for number in range(40)))

    other = await open_again()
    rest, _, total = await read(other, Slice(limit=200, after=after))
    await other.close()

    assert first + rest == [one for one in whole if one[0] in kept]
    assert total == len(first + rest) > 5


async def test_removed_documents_are_not_counted_after_a_merge(
    store: Store, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_TOMBSTONES", 20)
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 6)
    for number in range(18):
        await put(store, f"k{number}", "tea")
    for number in range(24):
        await put(store, f"o{number}", "zebra")
    for key in ["k0", "k6", "k12", *(f"o{number}" for number in range(24))]:
        await store.remove_memory("default", key, now=NOW)
    for number in range(40):
        await put(store, f"n{number}", "milk")

    other = await open_again()
    here, there = [await ask(one, "tea", page=Slice(limit=200)) for one in (store, other)]
    await other.close()

    assert 15 == here.total == there.total
    assert here.rows == there.rows


async def test_a_cursor_with_vectors_is_refused_without_vectors(
    store: Store, chance: random.Random, query_vector: bytes
) -> None:
    await remember(store, chance, *(f"k{number}" for number in range(30)))
    await embed_all(store, chance)
    _, with_meaning, _ = await by_meaning(store, Slice(limit=2), query_vector)
    words, without, _ = await by_meaning(store, Slice(limit=2), None)

    with pytest.raises(InvalidInput, match="start again from the first page"):
        await by_meaning(store, Slice(limit=2, after=with_meaning), None)
    rest, _, _ = await by_meaning(store, Slice(limit=99, after=without), query_vector)
    assert (await by_meaning(store, Slice(limit=99), None))[0] == words + rest


async def test_a_document_embedded_by_two_processes_is_shown_once(
    store: Store, query_vector: bytes
) -> None:
    await put(store, "a", "tea")
    found = await store.unembedded(None, limit=9)
    await store.store_vectors("test", [(document, query_vector) for document in found])
    assert 1 == (await ask(store, QUESTION, meaning=query_vector)).total

    await store.store_vectors("test", [(document, query_vector) for document in found])

    assert ["a"] == [hit.key for hit in (await ask(store, QUESTION, meaning=query_vector)).rows]
