"""Keys are known by their hash, and a first key is told to one alone."""

from __future__ import annotations

import asyncio

from postroom.model.key import Key
from postroom.model.page import Slice
from postroom.pipeline.house import House
from tests.stores.conftest import OpenAgain
from tests.stores.sends import NOW


async def test_keys_are_found_by_hash_listed_and_revoked(house: House) -> None:
    key = Key("key_1", "crm", ("read",), ("inb_1",), None, None, NOW, None)
    await house.store.add_key(key, b"hash-1")

    found = await house.store.key_of(b"hash-1", NOW)
    listed = await house.store.keys(Slice())

    assert key == found
    assert NOW == listed.rows[0].last_used_at
    assert await house.store.key_of(b"hash-2", NOW) is None
    assert (True, False) == (
        await house.store.remove_key("key_1"),
        await house.store.remove_key("key_1"),
    )
    assert await house.store.key_of(b"hash-1", NOW) is None


async def test_of_those_who_make_a_first_key_at_once_one_is_told_that_it_is_kept(
    house: House, open_again: OpenAgain
) -> None:
    key = Key("owner", "owner", ("read",), None, None, None, NOW, None)
    others = [await open_again() for _ in range(3)]

    kept = await asyncio.gather(
        *(store.add_key(key, bytes([n]), replaces=False) for n, store in enumerate(others))
    )

    assert [True] == [one for one in kept if one]
    assert await house.store.key_of(bytes([kept.index(True)]), NOW) is not None
    for store in others:
        await store.close()


async def test_a_key_with_the_same_id_gets_the_new_secret(house: House) -> None:
    key = Key("owner", "owner", ("read",), None, None, None, NOW, None)
    await house.store.add_key(key, b"old")
    await house.store.add_key(key, b"new")

    assert await house.store.key_of(b"old", NOW) is None
    assert await house.store.has_key("owner")
    assert await house.store.key_of(b"new", NOW) is not None
