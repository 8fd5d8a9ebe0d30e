"""Signing in to the web pages: links from the terminal, keys, and the sessions that they open.

Only the hashes of their secrets are stored. Somebody with a link has the rights of the owner and
may approve mail, because links are shown on the owner's terminal only. A session that a key opened
has the rights of this key, for as long as the key exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from postroom.calls.authentication import authenticate, hash_secret, random_secret
from postroom.errors import Forbidden, MailError, Unauthenticated
from postroom.model.event import AuditRecord
from postroom.model.key import OWNER, Caller, Scope, WebSession
from postroom.pipeline.services import Services

SESSION_FOR = timedelta(hours=12)
LINK_FOR = timedelta(minutes=10)
_USER_AGENT_CHARS = 200
_CHECK_S = 60.0
"""An open stream checks its session this often, because the clock of the machine may be set."""
_SIGNED_IN_OWNER = replace(OWNER, is_local=False)
"""The owner in a browser, which may be on another machine."""


class SignedIn(NamedTuple):
    """A session and what its person may do."""

    session: WebSession
    caller: Caller


def _new_secret(services: Services) -> str:
    """A new random secret; one of a cell begins with its name and a dot."""
    return random_secret("", services.cell, ".")


async def new_sign_in_link(services: Services) -> str:
    """The secret of a new link, for the owner's terminal."""
    secret, now = _new_secret(services), services.clock()
    store = services.store.by(AuditRecord(OWNER.key_id, "create_sign_in_link", now, via="cli"))
    await store.add_sign_in_link(hash_secret(secret), expires_at=now + LINK_FOR, now=now)
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
        raise Forbidden("this key may not read; sign in with a key that has the scope read")
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
    secret, now = _new_secret(services), services.clock().replace(microsecond=0)
    session = WebSession(
        services.new_id("ses"),
        key_id,
        user_agent[:_USER_AGENT_CHARS],
        created_at=now,
        expires_at=now + SESSION_FOR,
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
            await asyncio.sleep(_CHECK_S)
            continue
        if person is None:
            return
        left_s = (person.session.expires_at - services.clock()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(left_s, 0.0) + 0.01, _CHECK_S)):
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
