"""What takes long ends with the key that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from postroom.errors import MailError, Unauthenticated
from postroom.operations.context import Context

LOOK_AGAIN_S = 15.0
T = TypeVar("T")


@asynccontextmanager
async def revocation(ctx: Context) -> AsyncIterator[asyncio.Task[None]]:
    """Done once the caller's key is gone; whoever asks without a key keeps what they have."""
    task = asyncio.create_task(_revoked(ctx))
    try:
        yield task
    finally:
        task.cancel()


async def _revoked(ctx: Context) -> None:
    while True:
        rung = ctx.store.bell.rung("keys")
        try:
            if not await _is_known(ctx):
                return
        except MailError:
            await asyncio.sleep(LOOK_AGAIN_S)
            continue
        await ctx.store.bell.wait("keys", rung)


async def _is_known(ctx: Context) -> bool:
    secret_hash = ctx.caller.secret_hash
    return secret_hash is None or await ctx.store.key_of(secret_hash, ctx.clock()) is not None


async def unless_revoked(ctx: Context, work: Coroutine[Any, Any, T]) -> T:
    """What work returns. Raises Unauthenticated if the caller's key goes before."""
    working = asyncio.create_task(work)
    try:
        async with revocation(ctx) as revoked:
            await asyncio.wait([working, revoked], return_when=asyncio.FIRST_COMPLETED)
            if revoked.done():
                raise Unauthenticated("this key was revoked while it waited")
            return working.result()
    finally:
        working.cancel()
