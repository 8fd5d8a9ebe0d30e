"""Memories link to mail and people, and are deleted or stale when mail is deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import NotFound
from postroom.model.inbox import Inbox
from postroom.model.memory import MemoryQuery
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from postroom.store.store import Store
from tests.mails import deliver, mail, new_inbox
from tests.stores.memories import AGENT, NOW, OWNER, about, get, put


async def test_a_link_must_name_mail_that_the_author_sees(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail())
    other_caller = replace(AGENT, visible=only("inb_other"))

    nowhere = "0" * 26
    for author, to in (
        (AGENT, f"msg_{nowhere}"),
        (AGENT, f"thr_{nowhere}"),
        (other_caller, added.message_id),
    ):
        with pytest.raises(NotFound, match=rf"links\[0\].to: no .* {to}"):
            await put(store, author=author, links=about(to))

    assert await get(store) is None


@pytest.mark.parametrize(
    ("to", "same", "is_address"),
    [
        ("Ana@Example.com", "ana@example.COM", True),
        ("msg_Support@example.com", "msg_support@example.com", True),
        ("thr_all@example.com", "THR_all@example.com", True),
        ("jürgen@exämple.de", "Jürgen@exämple.de", True),
        ("ana@localhost", "ana@LOCALHOST", True),
        ("msg_templates", "msg_templates", False),
        ("thr_" + "x" * 25, "thr_" + "x" * 25, False),
        ("ana@example.com/prefs", "ana@example.com/prefs", False),
        ("ana@example..com", "ana@example..com", False),
        ("@ana", "@ana", False),
        ("mail ana@example.com", "mail ana@example.com", False),
    ],
)
async def test_links_are_compared_exactly(
    store: Store, to: str, same: str, is_address: bool
) -> None:
    memory = await put(store, links=about(to))

    listed = await store.memories(MemoryQuery("default", NOW, linked_to=same))
    recalled = await store.memories_about(
        [to], [], EVERYTHING, visible=EVERYTHING, now=NOW, limit=9
    )

    assert ("agent", 1, is_address) == (memory.trust, listed.total, len(recalled) == 1)


async def test_deleting_mail_deletes_its_memories_or_makes_them_stale(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail("Other"))
    await put(store, "agents", "A.", links=about(one.message_id))
    await put(store, "owners", "B.", author=OWNER, links=about(one.message_id))
    await put(store, "thread", "C.", links=about(one.thread_id))
    both = (*about(one.message_id), *about(two.message_id))
    await put(store, "both", "D.", links=both)
    await put(store, "unrelated", "E.", links=about("ana@example.com"))

    await store.remove_message(one.message_id, EVERYTHING)

    left = {row.key: row.stale for row in (await store.memories(MemoryQuery("default", NOW))).rows}
    assert {"owners": True, "both": True, "unrelated": None} == left
    assert () == await store.problems()


@pytest.mark.parametrize(
    "since", [{"text": None, "tags": ("x",)}, {"text": "Learnt.", "max_trust": "mail"}]
)
async def test_a_memory_that_the_owner_wrote_survives_its_mail(
    store: Store, services: Services, inbox: Inbox, since: dict[str, Any]
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail("Other"))
    await put(store, author=OWNER, links=about(one.message_id))
    links = about(two.message_id) if since["text"] else None
    await put(store, links=links, **since)

    for added in (one, two):
        await store.remove_message(added.message_id, EVERYTHING)

    read = await get(store)
    assert read is not None
    assert read.stale
    assert () == await store.problems()


async def test_a_memory_is_stale_while_a_link_names_deleted_mail(
    store: Store, services: Services, inbox: Inbox
) -> None:
    gone, there = (
        await deliver(services, inbox, mail()),
        await deliver(services, inbox, mail("Other")),
    )
    await put(store, author=OWNER, links=(*about(gone.message_id), *about(there.message_id)))
    await store.remove_message(gone.message_id, EVERYTHING)

    edited = await put(store, "k", "New.", tags=("x",), author=OWNER)
    exported = [memory async for memory in store.all_memories(EVERYTHING, now=NOW)]
    await store.remove_memory("default", "k", now=NOW)
    assert (1, 0) == await store.import_memories(exported, OWNER, now=NOW)
    assert (0, 0) == await store.import_memories(exported, OWNER, now=NOW)
    imported = await get(store)
    assert imported is not None
    relinked = await put(store, "k", None, author=OWNER, links=about(there.message_id))

    assert [True, True, None] == [m.stale for m in (edited, imported, relinked)]


async def test_deleting_an_inbox_deletes_its_memories(
    store: Store, services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    gone, kept = await deliver(services, inbox, mail()), await deliver(services, other, mail())
    await put(store, "gone", "A.", links=about(gone.message_id))
    await put(store, "kept", "B.", links=about(kept.message_id))

    await store.remove_inbox(inbox.id, EVERYTHING, force=True)

    rows = (await store.memories(MemoryQuery("default", NOW))).rows
    assert ["kept"] == [row.key for row in rows]
    assert () == await store.problems()


async def test_a_link_follows_a_merged_thread(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = (
        await deliver(services, inbox, mail("One")),
        await deliver(services, inbox, mail("Two")),
    )
    await put(store, links=about(two.thread_id))

    await store.merge_threads([one.thread_id, two.thread_id], EVERYTHING)

    read = await get(store)
    assert read is not None
    assert about(one.thread_id) == read.links


async def test_a_merged_thread_is_found_by_its_former_id(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = (
        await deliver(services, inbox, mail("One")),
        await deliver(services, inbox, mail("Two")),
    )
    await store.merge_threads([one.thread_id, two.thread_id], EVERYTHING)

    await put(store, links=about(two.thread_id))

    for name in (one.thread_id, two.thread_id):
        assert 1 == (await store.memories(MemoryQuery("default", NOW, linked_to=name))).total
    await store.remove_message(one.message_id, EVERYTHING)
    await store.remove_message(two.message_id, EVERYTHING)
    assert await get(store) is None


async def test_memories_about_people_are_recalled_beside_their_mail(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail(sender="Ana <ANA@example.com>"))
    await put(store, "direct", "A.", links=about("ana@EXAMPLE.com"))
    await put(store, "by-mail", "B.", links=about(added.message_id), now=NOW + timedelta(hours=1))
    await put(store, "bo", "C.", links=about("bo@example.com"))
    await put(store, "hidden", "D.", links=about("ana@example.com"), namespace="secret")

    recalled = await store.memories_about(
        ["Ana@example.com"], [], only("default"), visible=EVERYTHING, now=NOW, limit=10
    )
    everything = await store.memories_about(
        ["ana@example.com"], [added.message_id], EVERYTHING, visible=EVERYTHING, now=NOW, limit=2
    )

    assert [("by-mail", "mail"), ("direct", "agent")] == [(m.key, m.trust) for m in recalled]
    assert all(memory.recalled for memory in recalled)
    assert 2 == len(everything)
