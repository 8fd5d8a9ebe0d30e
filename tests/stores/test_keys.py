"""Keys are found by their hash, and the first key is shown to one process only."""

from __future__ import annotations

import asyncio

import pytest

from postroom.calls.authentication import authenticate, hash_secret
from postroom.errors import Unauthenticated
from postroom.model.key import Key
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, NOTHING, View, only
from postroom.pipeline.services import Services
from tests.stores.conftest import OpenAgain
from tests.stores.sends import NOW

SECRET = "pk_" + "s" * 43


async def test_keys_are_found_by_hash_listed_and_revoked(services: Services) -> None:
    key = Key("key_1", "crm", ("read",), only("inb_1"), EVERYTHING, EVERYTHING, NOW, None)
    await services.store.add_key(key, b"hash-1")

    found = await services.store.key_by_hash(b"hash-1", NOW)
    listed = await services.store.keys(Slice())

    assert key == found
    assert NOW == listed.rows[0].last_used_at
    assert await services.store.key_by_hash(b"hash-2", NOW) is None
    assert (True, False) == (
        await services.store.remove_key("key_1"),
        await services.store.remove_key("key_1"),
    )
    assert await services.store.key_by_hash(b"hash-1", NOW) is None


async def test_concurrent_creations_of_the_first_key_store_one(
    services: Services, open_again: OpenAgain
) -> None:
    key = Key("owner", "owner", ("read",), EVERYTHING, EVERYTHING, EVERYTHING, NOW, None)
    others = [await open_again() for _ in range(3)]

    kept = await asyncio.gather(
        *(store.add_key(key, bytes([n]), replaces=False) for n, store in enumerate(others))
    )

    assert [True] == [one for one in kept if one]
    assert await services.store.key_by_hash(bytes([kept.index(True)]), NOW) is not None
    for store in others:
        await store.close()


async def test_a_key_with_the_same_id_gets_the_new_secret(services: Services) -> None:
    key = Key("owner", "owner", ("read",), EVERYTHING, EVERYTHING, EVERYTHING, NOW, None)
    await services.store.add_key(key, b"old")
    await services.store.add_key(key, b"new")

    assert await services.store.key_by_hash(b"old", NOW) is None
    assert await services.store.has_key("owner")
    assert await services.store.key_by_hash(b"new", NOW) is not None


@pytest.mark.parametrize(
    ("inboxes", "accounts", "namespaces", "expected"),
    [
        ('["inb_1"]', "null", "null", NOTHING),
        ("[]", "null", "null", NOTHING),
        ("null", '["work"]', "null", NOTHING),
        ("null", "[]", "null", NOTHING),
        ('["inb_1"]', "null", '["a"]', only("a")),
        ("null", "null", "null", EVERYTHING),
        ("null", "null", "[]", NOTHING),
    ],
)
async def test_a_limited_key_of_an_earlier_version_has_its_named_namespaces(
    services: Services, inboxes: str, accounts: str, namespaces: str, expected: View
) -> None:
    key = Key("key_1", "crm", ("read",), EVERYTHING, EVERYTHING, EVERYTHING, NOW, None)
    await services.store.add_key(key, hash_secret(SECRET))
    engine = services.store.engine  # type: ignore[attr-defined]
    await engine.write(
        lambda tx: tx.run(
            "UPDATE keys SET inboxes = :i, accounts = :a, namespaces = :n",
            i=inboxes,
            a=accounts,
            n=namespaces,
        )
    )

    caller = await authenticate(services, SECRET)
    found = await services.store.key_by_hash(hash_secret(SECRET), NOW)
    listed = await services.store.keys(Slice())

    assert found is not None
    assert [expected] * 3 == [
        found.namespaces,
        listed.rows[0].namespaces,
        caller.namespaces,
    ]


@pytest.mark.parametrize("length", [1, 8, 19, 20, 46])
async def test_a_short_key_of_an_earlier_version_is_refused(
    services: Services, length: int
) -> None:
    secret = "1" * length
    key = Key("owner", "owner", ("read",), EVERYTHING, EVERYTHING, EVERYTHING, NOW, None)
    await services.store.add_key(key, hash_secret(secret))

    if length >= 20:
        assert "owner" == (await authenticate(services, secret)).key_id
        return
    with pytest.raises(Unauthenticated, match=r"at least 20 characters.*postroom key reset"):
        await authenticate(services, secret)
