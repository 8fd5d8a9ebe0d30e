"""A store without numpy gives the same results as one with it, on the same database."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from postroom import checks
from postroom.app import App
from postroom.mail.text.terms import question_terms
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import EmbeddedQuery, Keyword, MemoryQuery
from postroom.model.page import Slice, SortKey
from postroom.model.view import EVERYTHING, View, only
from postroom.pipeline.services import Services
from postroom.store.ranking import index
from postroom.store.store import Store
from tests.mails import deliver, mail, new_inbox
from tests.stores.conftest import OpenAgain
from tests.stores.memories import NOW, put
from tests.stores.ranking_helpers import WORDS, ask
from tests.stores.without_numpy import open_without_numpy, without_numpy

KEYS = [f"k{number}" for number in range(60)]
RARE = [f"rare{number}" for number in range(40)]


def text(chance: random.Random) -> str:
    """Mostly short, sometimes long, so that lengths are on both sides of the average."""
    length = chance.choice((1, 3, 8, 15, 400))
    return " ".join(chance.choices([*WORDS, *RARE], [9] * len(WORDS) + [1] * len(RARE), k=length))


async def change(store: Store, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 25)):
        key = chance.choice(KEYS)
        if chance.random() < 0.3:
            await store.remove_memory("default", key, now=NOW)
        else:
            await put(store, key, text(chance), tags=tuple(chance.sample(["a", "b"], 1)))


async def by_terms(store: Store, question: str, page: Slice, **filters: Any) -> object:
    query = MemoryQuery("default", NOW, page=page, **filters)
    terms = question_terms(question)
    return await store.search_memories(query, EmbeddedQuery(terms))


@pytest.mark.parametrize("seed", range(3))
async def test_memories_have_the_same_order_and_relevance_through_any_history(
    store: Store, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 7)
    monkeypatch.setattr(index, "MAX_TOMBSTONES", 40)
    chance = random.Random(seed)
    plain = await open_without_numpy(open_again)
    wrong = []
    for _ in range(15):
        await change(chance.choice([store, plain]), chance)
        question = " ".join(chance.choices([*WORDS, *RARE], k=chance.randint(1, 5)))
        page = Slice(limit=chance.choice((3, 50)), offset=chance.choice((0, 0, 2)))
        filters = chance.choice(({}, {"tags": ("a",)}))
        found = [await by_terms(one, question, page, **filters) for one in (store, plain)]
        wrong += [(question, page, found)] if found[0] != found[1] else []
    await plain.close()

    assert [] == wrong


@pytest.mark.parametrize("needs_all", [True, False])
async def test_keywords_and_phrases_find_the_same(
    store: Store, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch, needs_all: bool
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 7)
    chance = random.Random(5)
    plain = await open_without_numpy(open_again)
    for _ in range(5):
        await change(store, chance)
    query = MemoryQuery("default", NOW)
    asked = [
        [Keyword((one,)), Keyword((two, three))]
        for one, two, three in (chance.choices(WORDS[:8], k=3) for _ in range(12))
    ]
    asked += [[Keyword(("tea", "coffe"), "tea coffee")], [Keyword(("nowher",))]]

    found = [
        [await one.search_keywords(query, keywords, needs_all=needs_all) for keywords in asked]
        for one in (store, plain)
    ]
    await plain.close()

    assert found[0] == found[1]
    assert any(one.total for one in found[0])


@pytest.mark.parametrize("kind", ["terms", "keywords"])
async def test_one_continues_the_cursor_of_the_other(
    store: Store, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 16)
    chance = random.Random(6)
    plain = await open_without_numpy(open_again)
    for key in KEYS:
        await put(store, key, text(chance))

    async def read(one: Store, page: Slice) -> Any:
        if kind == "terms":
            return await ask(one, "tea in oslo", page=page)
        query = MemoryQuery("default", NOW, page=page)
        return await one.search_keywords(query, [Keyword(("tea",))], needs_all=False)

    whole = await read(store, Slice(limit=100))
    seen, after, turn = [], None, 0
    while turn == 0 or after is not None:
        found = await read([plain, store][turn % 2], Slice(limit=4, after=after))
        seen += [(hit.key, hit.relevance) for hit in found.rows]
        after, turn = found.next, turn + 1
        await put(store, f"later{turn}", "tea tea oslo")
    await plain.close()

    assert [(hit.key, hit.relevance) for hit in whole.rows] == seen
    assert turn > 3


async def test_mail_has_the_same_order_and_relevance_for_all_and_for_some_inboxes(
    services: Services, inbox: Inbox, open_again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 7)
    chance = random.Random(7)
    other = await new_inbox(services, "other")
    plain = await open_without_numpy(open_again)
    for number in range(40):
        subject = " ".join(chance.choices(WORDS, k=2))
        await deliver(services, chance.choice([inbox, other]), mail(subject, text(chance)))
        if number == 20:
            await services.store.index_mail(limit=100, starts=True)
    await plain.index_mail(limit=15, starts=True)

    async def read(one: Store, visible: View, after: SortKey | None = None) -> Any:
        page = Slice(limit=9, after=after)
        query = MessageQuery(visible=visible, page=page)
        missing = await one.unindexed_mail(query, limit=30)
        terms = question_terms("tea invoice rare1")
        return missing, await one.rank_mail(query, EmbeddedQuery(terms))

    for visible in (EVERYTHING, only(inbox.id), only(other.id), only()):
        missing, found = await read(services.store, visible)
        assert (missing, found) == await read(plain, visible)
        if found.next:
            assert await read(services.store, visible, found.next) == await read(
                plain, visible, found.next
            )
    await plain.close()


async def test_doctor_and_the_log_name_the_extra_when_there_are_many_messages(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await new_inbox(app.services)
    await deliver(app.services, inbox, mail("One", "message"))
    with without_numpy():
        few = await checks.check_index(app.services, app.settings)
        monkeypatch.setattr(checks, "MANY_MESSAGES", 0)
        many = await checks.check_index(app.services, app.settings)
        async with app.background_jobs():
            async with asyncio.timeout(60):
                while "search.no_index" not in caplog.text:  # noqa: ASYNC110 (logged elsewhere)
                    await asyncio.sleep(0.01)
    installed = await checks.check_index(app.services, app.settings)

    assert ["ok", "warning", "ok"] == [found.status for found in (few, many, installed)]
    assert "pip install 'postroom[index]'" in (many.fix or "")
