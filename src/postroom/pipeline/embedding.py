"""Embedding: memories and mail without a vector get one, the newest first."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

from postroom.errors import ProviderError
from postroom.model.memory import CollectionName, Unembedded
from postroom.model.storage import MessageQuery
from postroom.pipeline.services import Services
from postroom.ports.embeddings import Embedder

EMBED_LIMIT = 256
"""A search embeds up to so many texts first, which takes some seconds, once."""

_EMBED_LIMIT_MAIL = 32

_AT_ONCE = 16
_EXPIRED_AT_ONCE = 200
_EXTRACTED_AT_ONCE = 200
_MAIL_AT_ONCE = 200
_MAIL_BEFORE_SEARCH = 2_000
_PAUSE_S = 30.0
_LEASE = timedelta(seconds=60)
_HOLDER = f"proc_{secrets.token_hex(8)}"


async def finish_embedding(services: Services, collection: CollectionName) -> None:
    """Embed the rest of a collection before a search, if it is little."""
    if services.embedder is None:
        return
    model, most = services.embedder.model, EMBED_LIMIT + 1
    if not 0 < await services.store.count_unembedded(collection, model=model, most=most) < most:
        return
    # One at a time: whoever waits finds it done.
    async with services.embedding_lock:
        while await _embed_some(services, collection) or await _embed_outdated(
            services, services.embedder, collection
        ):
            pass


async def _embed_outdated(
    services: Services, embedder: Embedder, collection: CollectionName
) -> bool:
    """Embed a few texts that another model has embedded; whether there were any."""
    model = embedder.model
    found = await services.store.embedded_by_others(collection, model=model, limit=_AT_ONCE)
    await _embed(services, embedder, found)
    return bool(found)


async def embed_mail(services: Services, query: MessageQuery) -> None:
    """Index the mail of a query for ranking, and embed the newest of it.

    The rest is embedded in the background; until then it is found by its words.
    """
    numbers = await services.store.unindexed_mail(query, limit=_MAIL_BEFORE_SEARCH)
    for first in range(0, len(numbers), _MAIL_AT_ONCE):
        await services.store.index_messages(numbers[first : first + _MAIL_AT_ONCE])
    if services.embedder is not None:
        async with services.embedding_lock:
            model = services.embedder.model
            found = await services.store.unembedded_mail(
                query, model=model, limit=_EMBED_LIMIT_MAIL
            )
            await _embed(services, services.embedder, found)


async def _embed_some(services: Services, collection: CollectionName | None) -> bool:
    """Embed a few texts; whether there were any."""
    if services.embedder is None:
        return False
    found = await services.store.unembedded(collection, limit=_AT_ONCE)
    await _embed(services, services.embedder, found)
    return bool(found)


async def _embed(services: Services, embedder: Embedder, found: list[Unembedded]) -> None:
    if found:
        vectors = await embedder.embed([document.text for document in found])
        await services.store.store_vectors(embedder.model, list(zip(found, vectors, strict=True)))


async def embed_pending(services: Services) -> bool:
    """Embed a batch and remove expired memories; whether there is more to do at once."""
    now = services.clock()
    if not await services.store.has_ranking_work(now=now, learns=services.embedder is not None):
        return False
    if not await services.store.claim("learn", _HOLDER, now=now, lasting=_LEASE):
        return False
    removed = await services.store.remove_expired(now=now, limit=_EXPIRED_AT_ONCE)
    extracted = await services.store.store_missing_mail_digests(limit=_EXTRACTED_AT_ONCE)
    indexed = await services.store.index_mail(limit=_MAIL_AT_ONCE, starts=False)
    try:
        async with services.embedding_lock:
            return await _embed_some(services, None) or removed + extracted + indexed > 0
    except ProviderError:
        await asyncio.sleep(_PAUSE_S)
        raise


async def remove_vectors_of_other_models(services: Services) -> bool:
    """Remove the vectors of other models, so that their texts are embedded again."""
    if services.embedder is not None:
        await services.store.remove_vectors_of_other_models(services.embedder.model)
    return False
