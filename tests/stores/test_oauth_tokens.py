"""Grants and their tokens, on each database: each code and refresh token is exchanged once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from postroom.model.key import Key, OAuthClient, OAuthToken, TokenKind
from postroom.model.view import EVERYTHING
from postroom.store.sql.credentials import MAX_UNUSED_CLIENTS, remove_surplus_tokens
from postroom.store.store import Store
from tests.stores.memories import NOW

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
CLIENT = OAuthClient("cli_1", "Helper", ("https://app.example/cb", "cursor://x/cb"))


def token(kind: TokenKind, lasts: timedelta = DAY) -> OAuthToken:
    ends = NOW + lasts
    return OAuthToken(kind, "key_1", CLIENT.id, "https://mail.example/mcp", NOW, ends)


async def grant(store: Store) -> None:
    key = Key("key_1", "Helper", ("read",), EVERYTHING, EVERYTHING, EVERYTHING, NOW, None,
              client_id=CLIENT.id)  # fmt: skip
    await store.add_grant(key, b"secret", token("code", MINUTE), b"code")


async def exchange(store: Store, used: bytes, new: bytes = b"") -> Key | None:
    tokens = {b"access" + new: token("access", MINUTE), b"refresh" + new: token("refresh")}
    return await store.exchange_token(used, tokens, now=NOW)


async def test_an_access_token_represents_its_grant_until_it_expires(store: Store) -> None:
    await grant(store)

    made = await exchange(store, b"code")
    found = await store.key_by_hash(b"access", NOW)

    assert made is not None
    assert found is not None
    assert ("key_1", CLIENT.id) == (found.id, found.client_id)
    assert ("https://mail.example/mcp", NOW + MINUTE) == (found.resource, found.expires_at)
    assert [None] * 3 == [await store.key_by_hash(h, NOW) for h in (b"code", b"refresh", b"other")]
    assert await store.key_by_hash(b"access", NOW + MINUTE) is None


async def test_of_many_exchanges_of_one_token_the_second_ends_the_grant(store: Store) -> None:
    await grant(store)
    await exchange(store, b"code")

    found: Sequence[Key | None] = await asyncio.gather(
        *(exchange(store, b"refresh", str(n).encode()) for n in range(6))
    )

    assert 1 == sum(key is not None for key in found)
    assert not await store.has_key("key_1")
    assert [None] * 6 == [await store.oauth_token(f"access{n}".encode()) for n in range(6)]


async def test_a_token_that_has_expired_is_not_exchanged(store: Store) -> None:
    await grant(store)

    late = await store.exchange_token(b"code", {b"a": token("access")}, now=NOW + MINUTE)

    assert late is None


async def test_a_used_token_is_known_for_a_while_and_then_removed(store: Store) -> None:
    await grant(store)
    await exchange(store, b"code")

    await store.remove_expired_tokens(NOW + DAY)
    known = await store.oauth_token(b"code")
    await store.remove_expired_tokens(NOW + DAY + MINUTE)

    assert known is not None
    assert NOW == known.used_at
    assert await store.oauth_token(b"code") is None
    assert await store.oauth_token(b"refresh") is not None


async def test_a_grant_that_was_never_used_is_unfinished_once_its_code_has_expired(
    store: Store,
) -> None:
    await grant(store)

    assert [] == await store.unfinished_grants(NOW)
    assert ["key_1"] == await store.unfinished_grants(NOW + MINUTE)


async def test_a_grant_keeps_its_newest_tokens_only(store: Store) -> None:
    await grant(store)
    await exchange(store, b"code")
    later = replace(token("refresh"), created_at=NOW + MINUTE)
    await store.exchange_token(b"refresh", {b"newest": later}, now=NOW)

    await store.engine.write(lambda tx: remove_surplus_tokens(tx, "key_1", max_tokens=1))

    names = (b"code", b"access", b"refresh", b"newest")
    found = [name for name in names if await store.oauth_token(name)]
    assert [b"newest"] == found


async def test_unused_clients_are_replaced_and_expire(store: Store) -> None:
    await store.add_oauth_client(CLIENT, now=NOW, expires_at=NOW + DAY)
    await grant(store)
    await exchange(store, b"code")
    others = [OAuthClient(f"cli_x{n}", "", ()) for n in range(MAX_UNUSED_CLIENTS + 1)]

    for number, other in enumerate(others):
        at = NOW + timedelta(seconds=number)
        await store.add_oauth_client(other, now=at, expires_at=at + DAY)

    assert await store.oauth_client(CLIENT.id, NOW + DAY) == CLIENT
    found = [await store.oauth_client(other.id, NOW) for other in (others[0], others[-1])]
    assert [None, others[-1]] == found
    assert await store.oauth_client(others[-1].id, NOW + 2 * DAY) is None
