"""Authentication: the caller of a key, waits that end with the key, and sessions of the web pages.

Only the hashes of the secrets of a session are stored. Somebody with a link to sign in has the
rights of the owner and may approve mail, because links are shown on the owner's terminal only. A
session that a key opened has the rights of this key, for as long as the key exists.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from postroom.calls.context import RequestContext
from postroom.errors import Forbidden, MailError, Unauthenticated
from postroom.model.event import AuditRecord
from postroom.model.key import MIN_KEY_CHARS, OWNER, Caller, Key, Scope, WebSession
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
"""A key or token that contains a cell name; one without is shorter than the shortest of these."""


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
        raise Unauthenticated(f"this access token is valid only for {key.resource}")
    if key.has_expired(services.clock()):
        # Only the holder of the key learns this: it is too long to be guessed.
        raise Unauthenticated(
            f"this key expired at {key.expires_at:%Y-%m-%dT%H:%M:%SZ}; ask the owner for another, "
            f"or to extend it with `postroom key update {key.id} --expires 30d`"
        )
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    return replace(await caller_of_key(services, key), secret_hash=secret_hash)


def _unknown(secret: str, here: str | None) -> str:
    """The error for an unknown key. It reveals only the cell that the key itself names."""
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


SESSION_LIFETIME = timedelta(hours=12)
LINK_LIFETIME = timedelta(minutes=10)
_USER_AGENT_CHARS = 200
_SESSION_CHECK_S = 60.0
"""An open stream checks its session this often, because the clock of the machine may be set."""
_SIGNED_IN_OWNER = replace(OWNER, is_local=False)
"""The owner in a browser, which may be on another machine."""


class SignedIn(NamedTuple):
    """A session and what its person may do."""

    session: WebSession
    caller: Caller


def _session_secret(services: Services) -> str:
    """A new random secret; one of a cell begins with its name and a dot."""
    return random_secret("", services.cell, ".")


async def new_sign_in_link(services: Services) -> str:
    """The secret of a new link, for the owner's terminal."""
    secret, now = _session_secret(services), services.clock()
    store = services.store.by(AuditRecord(OWNER.key_id, "create_sign_in_link", now, via="cli"))
    await store.add_sign_in_link(hash_secret(secret), expires_at=now + LINK_LIFETIME, now=now)
    return secret


async def sign_in_with_link(services: Services, link: str, user_agent: str) -> str:
    """The secret of the session that a link opens, once. Raises Unauthenticated."""
    secret = await _open(services, OWNER.key_id, user_agent, link_hash=hash_secret(link))
    if secret is None:
        raise Unauthenticated(
            "this link was used already or is older than 10 minutes; `postroom web` prints a new "
            "one"
        )
    return secret


async def sign_in_with_key(services: Services, key: str, user_agent: str) -> str:
    """The secret of a session with the rights of a key. Raises Unauthenticated, Forbidden."""
    caller = await authenticate(services, key)
    if not caller.scopes & {Scope.READ, Scope.APPROVE}:
        raise Forbidden("this key does not have the scope read; sign in with a key that has it")
    secret = await _open(services, caller.key_id, user_agent, key_hash=caller.secret_hash)
    assert secret is not None
    return secret


async def _open(
    services: Services,
    key_id: str,
    user_agent: str,
    *,
    key_hash: bytes | None = None,
    link_hash: bytes | None = None,
) -> str | None:
    secret, now = _session_secret(services), services.clock().replace(microsecond=0)
    session = WebSession(
        services.new_id("ses"),
        key_id,
        user_agent[:_USER_AGENT_CHARS],
        created_at=now,
        expires_at=now + SESSION_LIFETIME,
        last_used_at=now,
        key_hash=key_hash,
    )
    store = services.store.by(AuditRecord(key_id, "sign_in", now, (session.id,), via="web"))
    is_open = await store.add_web_session(session, hash_secret(secret), link_hash=link_hash)
    return secret if is_open else None


async def signed_in(services: Services, secret: str | None) -> SignedIn | None:
    """The session with this secret; None if it has ended, or its key has."""
    if not secret:
        return None
    session = await services.store.web_session(hash_secret(secret), services.clock())
    if session is None:
        return None
    if session.key_hash is None:
        return SignedIn(session, _SIGNED_IN_OWNER)
    key = await services.store.key_by_hash(session.key_hash, services.clock())
    if key is None or key.has_expired(services.clock()):
        return None
    from postroom.pipeline.apply_rules import caller_of_key  # late, for a quick start

    caller = await caller_of_key(services, key)
    return SignedIn(session, replace(caller, secret_hash=session.key_hash))


@asynccontextmanager
async def session_end(services: Services, secret: str) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the session with this secret has ended, or its key has."""
    task = asyncio.create_task(_ended(services, secret))
    try:
        yield task
    finally:
        task.cancel()


async def _ended(services: Services, secret: str) -> None:
    while True:
        position = services.store.notifier.position("keys")
        try:
            person = await signed_in(services, secret)
        except MailError:
            await asyncio.sleep(_SESSION_CHECK_S)
            continue
        if person is None:
            return
        left_s = (person.session.expires_at - services.clock()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(left_s, 0.0) + 0.01, _SESSION_CHECK_S)):
                await services.store.notifier.wait("keys", position)


async def sessions_of(services: Services, caller: Caller) -> tuple[WebSession, ...]:
    """The sessions that a caller may end: the owner all, others those of their key."""
    return await services.store.web_sessions(services.clock(), _whose(caller))


async def sign_out(services: Services, caller: Caller, session_id: str | None = None) -> int:
    """End one session, or all that the caller may end; returns how many."""
    targets = () if session_id is None else (session_id,)
    record = AuditRecord(caller.key_id, "sign_out", services.clock(), targets, via="web")
    return await services.store.by(record).remove_web_sessions(session_id, _whose(caller))


def _whose(caller: Caller) -> str | None:
    return None if caller.is_owner else caller.key_id
