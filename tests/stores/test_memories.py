"""Memories are stored with versions, listed, expired and exported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import Conflict, InvalidInput
from postroom.model.inbox import Inbox
from postroom.model.memory import Author, MemoryChange, MemoryQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from postroom.store.store import Store
from tests.mails import deliver, mail
from tests.stores.memories import AGENT, NOW, OWNER, about, get, put


async def test_omitted_fields_stay_and_every_version_is_stored(store: Store) -> None:
    first = await put(store, summary="Drinks", tags=("people",), links=about("ana@x.org"))

    second = await put(store, text="Ana likes coffee.", now=NOW + timedelta(hours=1))

    assert (True, 1, False, 2) == (first.created, first.version, second.created, second.version)
    assert ("Drinks", ("people",), about("ana@x.org")) == (
        second.summary,
        second.tags,
        second.links,
    )
    read = await get(store, history=9)
    assert read is not None
    assert read.history is not None
    assert [(1, "Ana likes tea.")] == [(old.version, old.text) for old in read.history]
    assert (NOW, NOW + timedelta(hours=1)) == (read.created_at, read.updated_at)


async def test_the_same_again_changes_nothing(store: Store) -> None:
    await put(store, tags=("people",))

    again = await put(store, now=NOW + timedelta(hours=1))

    assert (False, 1, NOW) == (again.created, again.version, again.updated_at)
    assert () == await store.problems()


@pytest.mark.parametrize("again", [OWNER, AGENT])
@pytest.mark.parametrize("first", [OWNER, AGENT])
async def test_repeating_a_memory_does_not_change_its_author(
    store: Store, first: Author, again: Author
) -> None:
    said: dict[str, Any] = {"summary": "Drinks", "tags": ("people",), "links": about("ana@x.org")}
    before = await put(store, author=first, **said)

    for repeated in ({}, said):
        after = await put(store, author=again, now=NOW + timedelta(hours=1), **repeated)
        assert replace(before, created=False) == after


async def test_the_number_of_versions_is_limited(store: Store) -> None:
    for number in range(60):
        await put(store, text=f"Ana has {number} cats.")

    read = await get(store, history=100)

    assert read is not None
    assert read.history is not None
    assert (60, 50) == (read.version, len(read.history))


async def test_a_default_summary_follows_the_text(store: Store) -> None:
    await put(store, text="Ana likes tea. " * 30)

    changed = await put(store, text="Ana likes coffee.")

    assert "Ana likes coffee." == changed.summary


async def test_a_new_memory_needs_a_text(store: Store) -> None:
    with pytest.raises(InvalidInput, match="text: is required"):
        await put(store, text=None)

    change = MemoryChange("default", "k", tags=("x",))
    assert await store.save_memory(change, AGENT, now=NOW, is_new_allowed=False) is None


async def test_a_change_of_an_outdated_version_is_refused(store: Store) -> None:
    await put(store)
    await put(store, text="Ana likes coffee.")

    with pytest.raises(Conflict, match="is at version 2, and you changed version 1"):
        await put(store, text="Ana likes milk.", of_version=1)
    changed = await put(store, text="Ana likes milk.", of_version=2)

    assert ("Ana likes milk.", 3) == (changed.text, changed.version)


async def test_only_visible_namespaces_are_counted(store: Store) -> None:
    for namespace, key in (("shop", "a"), ("shop", "b"), ("desk", "a"), ("hidden", "a")):
        await put(store, key, namespace=namespace)
    await put(store, "gone", namespace="shop", expires_at=NOW + timedelta(hours=1))
    later = NOW + timedelta(hours=2)

    every = await store.namespaces(EVERYTHING, later, Slice())
    some = await store.namespaces(only("shop", "desk"), later, Slice(limit=1))

    assert [("desk", 1), ("hidden", 1), ("shop", 2)] == [(n.name, n.memories) for n in every.rows]
    assert (["desk"], 2) == ([n.name for n in some.rows], some.total)
    assert NOW == every.rows[0].updated_at


async def test_memories_are_listed_by_change_and_filtered(store: Store) -> None:
    for number in range(5):
        await put(
            store,
            f"k{number}",
            now=NOW + timedelta(minutes=number),
            tags=("all", f"t{number}"),
            links=about("Ana@X.org") if number % 2 else (),
        )
    await put(store, "other", namespace="elsewhere")
    await put(store, "k0", "Changed.", now=NOW + timedelta(hours=1))

    async def keys(**filters: Any) -> list[str]:
        return [row.key for row in (await store.memories(query(**filters))).rows]

    def query(**filters: Any) -> MemoryQuery:
        return MemoryQuery("default", NOW, **filters)

    assert ["k0", "k4", "k3", "k2", "k1"] == await keys()
    assert ["k3", "k1"] == await keys(linked_to="ana@x.ORG")
    assert ["k2"] == await keys(tags=("all", "t2"))
    assert ["k0", "k4"] == await keys(since=NOW + timedelta(minutes=4))
    first = await store.memories(query(page=Slice(limit=2)))
    rest = await store.memories(query(page=Slice(limit=9, after=first.next)))
    assert (5, 5, 2) == (first.total, rest.total, rest.offset)
    assert ["k3", "k2", "k1"] == [row.key for row in rest.rows]


async def test_a_memory_expires(store: Store) -> None:
    soon = NOW + timedelta(hours=1)
    await put(store, expires_at=soon)
    await put(store, "kept", expires_at=soon)
    await put(store, "kept", None, clears_expiry=True)

    assert await get(store, now=soon) is None
    assert 1 == (await store.memories(MemoryQuery("default", soon))).total
    assert await store.has_ranking_work(now=soon, can_embed=False)
    assert 1 == await store.remove_expired(now=soon, limit=9)
    assert not await store.has_ranking_work(now=soon, can_embed=False)
    anew = await put(store, "k", "Again.", now=soon)
    assert (True, 1) == (anew.created, anew.version)
    assert () == await store.problems()


async def test_memory_keys_are_case_sensitive(store: Store) -> None:
    await put(store, links=about("ana@example.com/Prefs"))

    query = MemoryQuery("default", NOW, linked_to="ana@example.com/prefs")
    assert 0 == (await store.memories(query)).total


async def test_an_export_is_imported_unchanged(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail())
    await put(store, "a", "One.", author=OWNER, tags=("x",), expires_at=NOW + timedelta(days=1))
    await put(store, "b", "Two.", links=about(added.message_id), namespace="other")
    exported = [memory async for memory in store.all_memories(EVERYTHING, now=NOW)]
    await store.remove_memory("default", "a", now=NOW)
    await store.remove_message(added.message_id, EVERYTHING)

    assert (2, 0) == await store.import_memories(exported, OWNER, now=NOW)
    assert (0, 0) == await store.import_memories(exported, OWNER, now=NOW)

    assert exported == [memory async for memory in store.all_memories(EVERYTHING, now=NOW)]
    other = [memory async for memory in store.all_memories(only("other"), now=NOW)]
    assert ["b"] == [memory.key for memory in other]
