"""Memories from mail that were written before texts were tracked by namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.model.memory import Author
from postroom.model.view import EVERYTHING, only
from postroom.store import postgres, sqlite
from postroom.store.sql.memories.mail_texts import has_missing_digests
from postroom.store.store import Store
from postroom.store.transaction import Transaction
from tests.stores.memories import NOW, put
from tests.stores.old_stores import OLDEST, OldStore

MESSAGE_ID = "msg_" + "1" * 26
OTHER_ID = "msg_" + "2" * 26
INBOX = """
    INSERT INTO inboxes (id, address, name, payload, created_at)
    VALUES (:id, :id, '', :blob, 0) RETURNING number
"""
THREAD = """
    INSERT INTO threads (id, inbox, subject, base_subject, message_count, first_date, last_date)
    VALUES (:id, :inbox, '', '', 1, 0, 0) RETURNING number
"""
MESSAGE = """
    INSERT INTO messages (
        id, inbox, thread, is_outbound, is_hidden, has_attachment, flags, date, received_at,
        size_bytes, parser_version, subject, from_address, from_name, addresses, snippet, labels,
        mailboxes, internet_id, raw, fingerprint, details
    ) VALUES (
        :id, :inbox, :thread, 1, 0, 0, 0, 0, 0, 0, 1, '', '', '', '[]', '', '[]', '[]', NULL, :id,
        :blob, '{}'
    ) RETURNING number
"""
COLLECTION = """
    INSERT INTO shelves (kind, name, next_leaf, leaves)
    VALUES ('memories', :name, 9, 3) RETURNING number
"""
MEMORY = """
    INSERT INTO memories (shelf, key, summary, text, tags, trust, is_owners, version, is_stale,
                          created_at, updated_at)
    VALUES (:collection, :key, :summary, :text, '[]', :trust, 0, 1, 0, 0, 0) RETURNING number
"""
LINK = """
    INSERT INTO memory_links (memory, position, type, target, shown)
    VALUES (:memory, 0, 'source', :to, :to)
"""
LEAF = """
    INSERT INTO leaves (shelf, leaf, what, length) VALUES (:collection, :document, :memory, 0)
"""
VERSION = """
    INSERT INTO memory_versions (memory, version, text, tags, trust, updated_at)
    VALUES (:memory, 0, :text, '[]', 'mail', 0)
"""
MARK = "INSERT INTO mail_texts (digest) VALUES (:digest) ON CONFLICT DO NOTHING"
PIN = "The PIN of the safe in the cellar is 4711."
OLDER = "The PIN of the other safe in the cellar is 4712."
CONFIRMED = "The door to the garden is open on Sundays only."
ARRIVED = MESSAGE.replace(":thread, 1, 0", ":thread, 0, 0")


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldStore:
    """A database to which an earlier version has written memories from mail."""
    url = request.getfixturevalue("database_url") if request.param == "postgres" else ""
    store = OldStore(OLDEST, tmp_path, url, rows=False)
    store.write(write)
    return store


@pytest.fixture
async def store(old: OldStore) -> AsyncIterator[Store]:
    folder = old.path.parent
    opened = await (
        postgres.open_store(old.url, folder) if old.url else sqlite.open_store(old.path)
    )
    yield opened
    await opened.close()


def write(tx: Transaction) -> None:
    """Two messages and memories from them, as earlier code wrote them."""

    def made(sql: str, **params: object) -> int:
        row = tx.one(sql, **params)
        return int(row[0]) if row else 0

    inbox = made(INBOX, id="inb_a", blob=b"")
    for number, message_id in enumerate((MESSAGE_ID, OTHER_ID)):
        thread = made(THREAD, id=f"thr_{number}", inbox=inbox)
        made(ARRIVED, id=message_id, inbox=inbox, thread=thread, blob=b"")
    collection = made(COLLECTION, name="hr")
    for document, (key, text, trust, to) in enumerate(
        (
            ("pin", PIN, "mail", MESSAGE_ID),
            ("vouched", "It is never open.", "user", OTHER_ID),
            ("tea", "Ana likes tea with milk and some sugar.", "agent", "ana@example.com"),
        )
    ):
        values = {
            "collection": collection,
            "key": key,
            "text": text,
            "trust": trust,
            "summary": None,
        }
        memory = made(MEMORY, **values)
        tx.run(LINK, memory=memory, to=to)
        tx.run(LEAF, collection=collection, document=document, memory=memory)
        if key != "tea":
            tx.run(VERSION, memory=memory, text=OLDER if key == "pin" else CONFIRMED)
    tx.run(MARK, digest=b"of no namespace")


async def trust(store: Store, text: str, namespace: str, *inboxes: str) -> str:
    author = Author(False, only(*inboxes), only(namespace), "key_b")
    told = (await put(store, "guess", text, author=author, namespace=namespace)).trust
    await store.remove_memory(namespace, "guess", now=NOW, by="key_c")
    return told


@pytest.mark.parametrize("is_in_background", [True, False])
async def test_earlier_marks_apply_to_their_namespace_only(
    store: Store, is_in_background: bool
) -> None:
    engine = store.engine  # type: ignore[attr-defined]
    assert await engine.read(has_missing_digests)
    if is_in_background:
        assert 2 == await store.store_missing_mail_digests(limit=9)
        assert 0 == await store.store_missing_mail_digests(limit=9)

    told = [await trust(store, text, "hr", "inb_a") for text in (PIN, OLDER, CONFIRMED)]
    known = await trust(store, "Ana likes tea with milk and some sugar.", "hr", "inb_a")
    elsewhere = [await trust(store, text, "sales", "inb_a") for text in (PIN, OLDER, CONFIRMED)]

    assert ["mail"] * 3 == told
    assert ["agent"] * 4 == [known, *elsewhere]
    assert not await engine.read(has_missing_digests)


async def test_earlier_marks_of_removed_memories_are_kept(store: Store) -> None:
    await store.remove_memory("hr", "pin", now=NOW, by="key_a")

    assert ["mail", "agent"] == [
        await trust(store, PIN, "hr", "inb_a"),
        await trust(store, PIN, "hr"),
    ]
    await store.remove_message(MESSAGE_ID, EVERYTHING)
    assert "agent" == await trust(store, PIN, "hr", "inb_a")
