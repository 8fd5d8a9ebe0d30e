"""Authentication: the caller of a key, and waits that end with the key."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from postroom.calls.context import RequestContext
from postroom.errors import MailError, Unauthenticated
from postroom.model.key import MIN_KEY_CHARS, Caller, Key
from postroom.model.view import is_within
from postroom.pipeline.services import Services

OWNER_KEY_ID = "owner"
_RETRY_S = 15.0
_CHECK_S = 600.0
T = TypeVar("T")


def random_secret(prefix: str, cell: str | None, separator: str) -> str:
    """A new random secret, after its prefix and the cell that it belongs to, if there are cells.

    A router finds the cell of a request by it, and so needs no directory.
    """
    named = "" if cell is None else f"{cell}{separator}"
    return f"{prefix}{named}{secrets.token_urlsafe(32)}"


def new_secret(cell: str | None = None) -> str:
    """A new random key, of this cell."""
    return random_secret("pk_", cell, "_")


_OF_CELL = re.compile(r"p[ko]_([a-z0-9]{1,16})_[\w-]{43}", re.ASCII)
"""A key or token that names its cell; one that names none is shorter than the shortest of these."""


def cell_of(secret: str) -> str | None:
    """The cell that a key or token says it belongs to."""
    found = _OF_CELL.fullmatch(secret)
    return found[1] if found else None


def hash_secret(secret: str) -> bytes:
    """The hash of a key, which is stored instead of it. A key is random, so SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


async def authenticate(
    services: Services, secret: str | None, resource: str | None = None
) -> Caller:
    """The caller with this key, or with an OAuth access token for the *resource*.

    Raises Unauthenticated.
    """
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
        raise Unauthenticated(_unknown(secret, services.cell))
    if key.resource is not None and key.resource != resource:
        raise Unauthenticated(f"this access token is for {key.resource} and for nothing else")
    if key.has_expired(services.clock()):
        # Only who has the key is told so: it is too long to be guessed.
        raise Unauthenticated(
            f"this key expired at {key.expires_at:%Y-%m-%dT%H:%M:%SZ}; ask the owner for another, "
            f"or to extend it with `postroom key update {key.id} --expires 30d`"
        )
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    return replace(await caller_of_key(services, key), secret_hash=secret_hash)


def _unknown(secret: str, here: str | None) -> str:
    """Why a key is refused that is not known here, with nothing that it does not say itself."""
    cell = cell_of(secret)
    if cell is None or cell == here:
        return "unknown key; it may have been revoked. Create one with `postroom key create`"
    this = "this server has no cell" if here is None else f"this is cell {here}"
    return f"this key belongs to cell {cell}, and {this}; send it to the server of cell {cell}"


@asynccontextmanager
async def revocation(ctx: RequestContext) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the caller's key is revoked, expires or loses a right.

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
        key = None
        try:
            if secret_hash:
                key = await ctx.store.key_by_hash(secret_hash, ctx.clock())
                if key is None or not await _has_rights(ctx, key):
                    return
        except MailError:
            await asyncio.sleep(_RETRY_S)
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(_seconds_left(key, ctx.clock())):
                await ctx.store.notifier.wait("keys", position)


def _seconds_left(key: Key | None, now: datetime) -> float | None:
    """How long to wait before the expiry is checked; the clock of the machine may be set."""
    if key is None or key.expires_at is None:
        return None
    return min(max((key.expires_at - now).total_seconds(), 0.0) + 0.01, _CHECK_S)


async def _has_rights(ctx: RequestContext, key: Key) -> bool:
    """Whether the key still gives all that the caller had when the call began."""
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    if key.has_expired(ctx.clock()):
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
    """Await *work*. Raises Unauthenticated if the key ends or is limited before it is done."""
    working = asyncio.create_task(work)
    try:
        async with revocation(ctx) as revoked:
            await asyncio.wait([working, revoked], return_when=asyncio.FIRST_COMPLETED)
            if revoked.done():
                raise Unauthenticated("this key expired or was revoked or limited during the wait")
            return working.result()
    finally:
        working.cancel()
