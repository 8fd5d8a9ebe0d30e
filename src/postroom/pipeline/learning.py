"""Meaning is learnt by itself: texts without a vector get one, the newest first."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

from postroom.errors import ProviderError
from postroom.model.memory import ShelfName, Unlearnt
from postroom.model.stored import MessageQuery
from postroom.pipeline.house import House
from postroom.ports.embedder import Embedder

FEW = 256
"""So many a search learns itself, rather than pass them over: some seconds, and only once."""

_FEW_MAILS = 32

_AT_ONCE = 16
_EXPIRED_AT_ONCE = 200
_MAIL_AT_ONCE = 200
_MAIL_AT_FIRST = 2_000
_REST_S = 30.0
_LEASE = timedelta(seconds=60)
_HOLDER = f"proc_{secrets.token_hex(8)}"


async def finish_learning(house: House, shelf: ShelfName) -> None:
    """Learn what a shelf is still to learn, if it is little: no reader is to run ahead."""
    if house.embedder is None:
        return
    model = house.embedder.model
    if not 0 < await house.store.count_unlearnt(shelf, model=model, most=FEW + 1) <= FEW:
        return
    # One at a time: who waits finds it done.
    async with house.learning:
        while await _learn(house, shelf) or await _relearn(house, house.embedder, shelf):
            pass


async def _relearn(house: House, embedder: Embedder, shelf: ShelfName) -> bool:
    """Learn a few texts that another model knew; whether there were any."""
    model = embedder.model
    found = await house.store.learnt_by_others(shelf, model=model, limit=_AT_ONCE)
    await _learn_these(house, embedder, found)
    return bool(found)


async def learn_mail(house: House, query: MessageQuery) -> None:
    """Learn the newest of the mail that somebody asks for, and shelve what is not shelved yet.

    The rest is learnt in the background; until then it is found by its words.
    """
    for _ in range(_MAIL_AT_FIRST // _MAIL_AT_ONCE):
        if await house.store.shelve_mail(limit=_MAIL_AT_ONCE, starts=True) < _MAIL_AT_ONCE:
            break
    if house.embedder is not None:
        async with house.learning:
            model = house.embedder.model
            found = await house.store.unlearnt_mail(query, model=model, limit=_FEW_MAILS)
            await _learn_these(house, house.embedder, found)


async def _learn(house: House, shelf: ShelfName | None) -> bool:
    """Learn a few texts; whether there were any."""
    if house.embedder is None:
        return False
    found = await house.store.unlearnt(shelf, limit=_AT_ONCE)
    await _learn_these(house, house.embedder, found)
    return bool(found)


async def _learn_these(house: House, embedder: Embedder, found: list[Unlearnt]) -> None:
    if found:
        vectors = await embedder.embed([leaf.text for leaf in found])
        await house.store.learn(embedder.model, list(zip(found, vectors, strict=True)))


async def learn_more(house: House) -> bool:
    """Learn and forget a little; whether there is more to do at once.

    Looking costs next to nothing, and only who finds something asks for the lease.
    """
    now = house.clock()
    if not await house.store.has_recall_work(now=now, learns=house.embedder is not None):
        return False
    if not await house.store.claim("learn", _HOLDER, now=now, lasting=_LEASE):
        return False
    removed = await house.store.remove_expired(now=now, limit=_EXPIRED_AT_ONCE)
    shelved = await house.store.shelve_mail(limit=_MAIL_AT_ONCE, starts=False)
    try:
        async with house.learning:
            return await _learn(house, None) or removed + shelved > 0
    except ProviderError:
        await asyncio.sleep(_REST_S)
        raise


async def forget_other_models(house: House) -> bool:
    """Drop the vectors that another model made, so that they are learnt anew."""
    if house.embedder is not None:
        await house.store.forget_other_models(house.embedder.model)
    return False
