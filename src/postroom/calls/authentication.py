"""Authentication: the caller of a key, and waits that end when a key is revoked."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from postroom.calls.context import RequestContext
from postroom.errors import MailError, Unauthenticated
from postroom.model.key import MIN_KEY_CHARS, Caller
from postroom.model.view import is_within
from postroom.pipeline.services import Services

OWNER_KEY_ID = "owner"
_RETRY_S = 15.0
T = TypeVar("T")


def new_secret() -> str:
    """A new random key."""
    return "pk_" + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """The hash of a key, which is stored instead of it. A key is random, so SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


async def authenticate(services: Services, secret: str | None) -> Caller:
    """The caller with this key. Raises Unauthenticated."""
    if not secret:
        raise Unauthenticated("a key is required: send it as `Authorization: Bearer <key>`")
    if len(secret) < MIN_KEY_CHARS:
        # An earlier version let the owner choose a short key, which can be guessed.
        raise Unauthenticated(
            f"unknown key; a key has at least {MIN_KEY_CHARS} characters. Create one with "
            "`postroom key create`, or replace the owner's with `postroom key reset`"
        )
    secret_hash = hash_secret(secret)
    key = await services.store.key_by_hash(secret_hash, services.clock())
    if key is None:
        raise Unauthenticated(
            "unknown key; it may have been revoked. Create one with `postroom key create`"
        )
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    return replace(await caller_of_key(services, key), secret_hash=secret_hash)


@asynccontextmanager
async def revocation(ctx: RequestContext) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the caller's key is revoked or loses a right.

    It never ends for a caller without a key.
    """
    task = asyncio.create_task(_revoked(ctx))
    try:
        yield task
    finally:
        task.cancel()


async def _revoked(ctx: RequestContext) -> None:
    secret_hash = ctx.caller.secret_hash
    while True:
        position = ctx.store.notifier.position("keys")
        try:
            if secret_hash and not await _has_rights(ctx, secret_hash):
                return
        except MailError:
            await asyncio.sleep(_RETRY_S)
            continue
        await ctx.store.notifier.wait("keys", position)


async def _has_rights(ctx: RequestContext, secret_hash: bytes) -> bool:
    """Whether the key still gives all that the caller had when the call began."""
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    key = await ctx.store.key_by_hash(secret_hash, ctx.clock())
    if key is None:
        return False
    before, now = ctx.caller, await caller_of_key(ctx, key)
    return before.scopes <= now.scopes and all(
        is_within(old, new)
        for old, new in (
            (before.inboxes, now.inboxes),
            (before.accounts, now.accounts),
            (before.namespaces, now.namespaces),
        )
    )


async def unless_revoked(ctx: RequestContext, work: Coroutine[Any, Any, T]) -> T:
    """Await *work*. Raises Unauthenticated if the key is revoked or limited before it is done."""
    working = asyncio.create_task(work)
    try:
        async with revocation(ctx) as revoked:
            await asyncio.wait([working, revoked], return_when=asyncio.FIRST_COMPLETED)
            if revoked.done():
                raise Unauthenticated("this key was revoked or limited while the request waited")
            return working.result()
    finally:
        working.cancel()
