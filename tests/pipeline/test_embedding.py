"""Texts are embedded by one process at a time in the background, or by a search if they are few."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import ProviderError
from postroom.model.memory import Vector, collection_of
from postroom.model.view import EVERYTHING
from postroom.operations.mail.messages import search_messages
from postroom.operations.memories import memory_add
from postroom.operations.memory_search import memory_search
from postroom.pipeline import maintenance
from postroom.pipeline.maintenance import (
    EMBED_LIMIT,
    background_tasks,
    embed_pending,
    remove_vectors_of_other_models,
)
from tests.mails import deliver, mail, new_inbox

COLLECTION = collection_of("default")


class LetterCountEmbedder:
    """An embedder whose vectors count letters; it records the texts."""

    def __init__(self, model: str = "letters") -> None:
        self.model = model
        self.texts: list[str] = []
        self.fails = False

    async def embed(self, texts: list[str]) -> list[Vector]:
        if self.fails:
            raise ProviderError("nobody there")
        self.texts += texts
        counts = [[float(1 + text.count(c)) for c in "abcdefgh"] for text in texts]
        return [struct.pack("<8f", *row) for row in counts]

    async def close(self) -> None:
        pass


@pytest.fixture
def embedder() -> LetterCountEmbedder:
    return LetterCountEmbedder()


@pytest.fixture
def services(ctx: RequestContext, embedder: LetterCountEmbedder) -> RequestContext:
    return replace(ctx, embedder=embedder)


async def remember(ctx: RequestContext, *keys: str, **fields: object) -> None:
    for key in keys:
        await call(ctx, memory_add, {"key": key, "text": f"Text {key}.", **fields})


async def test_the_job_embeds_new_texts_and_then_waits(
    services: RequestContext, embedder: LetterCountEmbedder
):
    await remember(services, *"abcdefghijklmnopqrst")

    rounds = [await embed_pending(services) for _ in range(3)]

    assert [True, True, False] == rounds
    assert sorted(f"Text {key}." for key in "abcdefghijklmnopqrst") == sorted(embedder.texts)
    assert 0 == await services.store.count_unembedded(COLLECTION, model="letters", max_count=9)


async def test_only_the_holder_of_the_lease_embeds(
    services: RequestContext, embedder: LetterCountEmbedder
):
    await remember(services, "a")
    minute = timedelta(minutes=1)
    assert await services.store.claim("learn", "another", now=services.clock(), lifetime=minute)

    assert not await embed_pending(services)
    assert [] == embedder.texts


async def test_no_model_is_loaded_and_no_lease_taken_without_work(services: RequestContext):
    assert not await embed_pending(services)

    minute = timedelta(minutes=1)
    assert await services.store.claim("learn", "another", now=services.clock(), lifetime=minute)


async def test_without_a_model_nothing_is_embedded(ctx: RequestContext):
    words = replace(ctx, embedder=None)
    await remember(words, "a")

    assert not await embed_pending(words)
    page = await call(words, memory_search, {"query": "text"})
    assert ["a"] == [hit.key for hit in page.results]


async def test_expired_memories_are_removed(services: RequestContext):
    await remember(services, "kept")
    await remember(services, "over", expires_at="2100-01-01")
    later = replace(services, clock=lambda: services.clock() + timedelta(days=365 * 100))
    await embed_pending(services)

    assert await embed_pending(later)

    everything = [m async for m in later.store.all_memories(EVERYTHING, now=services.clock())]
    assert ["kept"] == [memory.key for memory in everything]


async def test_a_search_embeds_few_texts_and_leaves_many_to_the_job(
    services: RequestContext, embedder: LetterCountEmbedder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(maintenance, "EMBED_LIMIT", 3)
    await remember(services, "a", "b", "c")
    await call(services, memory_search, {"query": "text"})
    assert 0 == await services.store.count_unembedded(COLLECTION, model="letters", max_count=9)

    await remember(services, "d", "e", "f", "g")
    await call(services, memory_search, {"query": "text"})

    assert 4 == await services.store.count_unembedded(COLLECTION, model="letters", max_count=9)
    assert EMBED_LIMIT >= 150


async def test_concurrent_searches_embed_each_text_once(
    services: RequestContext, embedder: LetterCountEmbedder
):
    await remember(services, *"abcdefghijkl")

    await asyncio.gather(*(call(services, memory_search, {"query": "text"}) for _ in range(5)))

    learnt = [text for text in embedder.texts if text != "text"]
    assert sorted(set(learnt)) == sorted(learnt)
    assert 12 == len(learnt)


async def test_a_search_reports_a_failing_model(
    services: RequestContext, embedder: LetterCountEmbedder
):
    await remember(services, "a")
    embedder.fails = True

    with pytest.raises(ProviderError, match="nobody there"):
        await call(services, memory_search, {"query": "text"})


async def test_changing_the_model_embeds_everything_again(services: RequestContext):
    await remember(services, "a")
    await embed_pending(services)
    other = replace(services, embedder=LetterCountEmbedder("other letters"))

    await remove_vectors_of_other_models(other)
    assert 1 == len(await other.store.unembedded(COLLECTION, limit=9))
    await embed_pending(other)
    await remove_vectors_of_other_models(other)

    assert 0 == len(await other.store.unembedded(COLLECTION, limit=9))


async def test_a_search_embeds_texts_again_after_a_change_of_the_model(services: RequestContext):
    """A single command at the terminal has no background jobs."""
    await remember(services, *"abcdefghijklmnopqrst")
    while await embed_pending(services):
        pass
    embedder = LetterCountEmbedder("other letters")
    other = replace(services, embedder=embedder)

    page = await call(other, memory_search, {"query": "gaggle"})

    assert 20 == page.total
    assert 21 == len(embedder.texts)
    assert 0 == await other.store.count_unembedded(COLLECTION, model=embedder.model, max_count=9)


async def test_a_search_of_mail_embeds_texts_again_after_a_change_of_the_model(
    services: RequestContext,
):
    inbox = await new_inbox(services)
    await deliver(services, inbox, mail("Fruit", "apple"))
    await call(services, search_messages, {"q": "fruit", "mode": "hybrid"})
    other = replace(services, embedder=LetterCountEmbedder("other letters"))

    page = await call(other, search_messages, {"q": "gaggle", "mode": "hybrid"})

    assert ["Fruit"] == [row.subject for row in page.results]


@pytest.mark.parametrize("count", [3, 40])
async def test_a_ranking_says_if_it_is_not_final(services: RequestContext, count: int):
    inbox = await new_inbox(services, "ana")
    for number in range(count):
        await deliver(services, inbox, mail(f"Mail {number}", "abc" * number, to=inbox.address))

    async def ranked() -> tuple[list[str], str | None]:
        page = await call(services, search_messages, {"q": "aab", "mode": "hybrid", "limit": 100})
        return [row.subject for row in page.results], page.hint

    before, hint = await ranked()
    while await embed_pending(services):
        pass
    after, none = await ranked()

    assert none is None
    assert (before == after) or "the order is not final: " in (hint or "")
    assert (hint is None) == (count <= 32)


async def test_embedding_is_a_background_job(app: App):
    assert {"embed", "vectors"} <= {task.name for task in background_tasks(app.services)}
