"""Every change of the audit log in the database is detected."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import Conflict, Unstorable
from postroom.model.key import OWNER
from postroom.operations import inboxes, keys, memories
from postroom.operations.mail import message_changes
from postroom.store import postgres
from postroom.store.audited_store import START, AuditHmac
from postroom.store.open import load_key
from tests.mails import deliver, mail, new_inbox

TAMPERINGS = 1000
ENTRIES = 40


def settings_of(folder: Path):
    return read_settings({"POSTROOM_DATA_DIR": str(folder)}).settings


async def problems_of(folder: Path) -> tuple[str, ...]:
    async with open_app(settings_of(folder)) as app:
        return (await app.services.store.check_audit()).problems


@pytest.fixture
async def folder(tmp_path):
    """A log of some length, and its end when it had half of that length."""
    data = tmp_path / "data"
    async with open_app(settings_of(data)) as app:
        ctx = app.context(OWNER)
        inbox = await new_inbox(ctx)
        added = await deliver(ctx, inbox, mail())
        for number in range(ENTRIES):
            label = {"message_ids": [added.message_id], "label": f"L{number}"}
            await call(ctx, message_changes.apply_label, label)
    return data


Tamper = Callable[[apsw.Connection, random.Random, int], None]


def alter(db: apsw.Connection, source: random.Random, last: int) -> None:
    columns = (
        "at",
        "actor",
        "action",
        "target",
        "inbox",
        "details",
        "id",
        "hash",
        "namespace",
        "via",
    )
    column = source.choice(columns)
    value = {"at": 1, "inbox": None, "hash": source.randbytes(32)}.get(column, "x")
    db.execute(f"UPDATE audit SET {column} = ? WHERE number = ?", (value, source.randint(1, last)))


def remove(db: apsw.Connection, source: random.Random, last: int) -> None:
    db.execute("DELETE FROM audit WHERE number = ?", (source.randint(1, last),))


def remove_and_close_the_gap(db: apsw.Connection, source: random.Random, last: int) -> None:
    gone = source.randint(1, last)
    db.execute("DELETE FROM audit WHERE number = ?", (gone,))
    for number in range(gone + 1, last + 1):
        db.execute("UPDATE audit SET number = number - 1 WHERE number = ?", (number,))
    db.execute("UPDATE audit_head SET number = number - 1")


def swap(db: apsw.Connection, source: random.Random, last: int) -> None:
    one, other = source.sample(range(1, last + 1), 2)
    for number, new in ((one, -1), (other, one), (-1, other)):
        db.execute("UPDATE audit SET number = ? WHERE number = ?", (new, number))


def cut(db: apsw.Connection, source: random.Random, last: int) -> None:
    db.execute("DELETE FROM audit WHERE number > ?", (source.randint(0, last - 1),))


def cut_with_the_head(db: apsw.Connection, source: random.Random, last: int) -> None:
    """Restore an old copy of the rows and of the recorded end."""
    kept = source.randint(1, last - 1)
    db.execute("DELETE FROM audit WHERE number > ?", (kept,))
    ((link,),) = db.execute("SELECT hash FROM audit WHERE number = ?", (kept,))
    proof = AuditHmac(KEYS[0]).head(kept, link)
    db.execute("UPDATE audit_head SET number = ?, hash = ?, hmac = ?", (kept, link, proof))


def empty(db: apsw.Connection, source: random.Random, last: int) -> None:
    db.execute("DELETE FROM audit")
    db.execute("DELETE FROM audit_head")


def forge(db: apsw.Connection, source: random.Random, last: int) -> None:
    """Add an entry at the end, sealed with another key."""
    ((link,),) = db.execute("SELECT hash FROM audit WHERE number = ?", (last,))
    seal = AuditHmac(source.randbytes(32))
    new = seal.link(link, b"entry")
    db.execute(
        "INSERT INTO audit VALUES (?, 'aud_x', 1, 'owner', 'no', 'm', NULL, '{}', ?, NULL, 'cli')",
        (last + 1, new),
    )
    proof = seal.head(last + 1, new)
    db.execute("UPDATE audit_head SET number = ?, hash = ?, hmac = ?", (last + 1, new, proof))


def copy_over(db: apsw.Connection, source: random.Random, last: int) -> None:
    """Replace an entry by another one, except for its id."""
    one, other = source.sample(range(1, last + 1), 2)
    db.execute(
        """UPDATE audit SET (at, actor, action, target, details, hash) =
               (SELECT at, actor, action, target, details || ' ', hash FROM audit WHERE number = ?)
            WHERE number = ?""",
        (one, other),
    )


def touch_the_head(db: apsw.Connection, source: random.Random, last: int) -> None:
    column = source.choice(("number", "hash", "hmac"))
    value = source.randint(1, 10**6) + last if column == "number" else source.randbytes(32)
    db.execute(f"UPDATE audit_head SET {column} = ?", (value,))


KEYS: list[bytes] = []
WAYS: tuple[Tamper, ...] = (
    alter, alter, alter, remove, remove_and_close_the_gap, swap, cut, cut_with_the_head, empty,
    forge, copy_over, touch_the_head,
)  # fmt: skip


async def test_a_thousand_tamperings_are_detected(folder, tmp_path):
    source = random.Random(9)
    KEYS[:] = [load_key(folder / "audit.key")]
    assert () == await problems_of(folder)
    unnoticed = []
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    async with open_app(settings_of(copy)) as app:
        db = apsw.Connection(str(copy / "postroom.db"))
        db.execute("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete")
        saved = (
            list(db.execute("SELECT * FROM audit")),
            list(db.execute("SELECT * FROM audit_head")),
        )
        for number in range(TAMPERINGS):
            way = WAYS[number % len(WAYS)]
            db.execute("BEGIN")
            way(db, source, len(saved[0]))
            db.execute("COMMIT")
            if not (await app.services.store.check_audit()).problems:
                unnoticed.append((number, way.__name__))
            _restore(db, *saved)
        assert () == (await app.services.store.check_audit()).problems
        db.close()

    assert [] == unnoticed


def _restore(db: apsw.Connection, rows: list, heads: list) -> None:
    db.execute("BEGIN; DELETE FROM audit; DELETE FROM audit_head")
    db.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.executemany("INSERT INTO audit_head VALUES (?, ?, ?)", heads)
    db.execute("COMMIT")


async def test_removed_entries_are_detected_after_new_entries(folder):
    """Also after the database was restored to an earlier moment."""
    db = apsw.Connection(str(folder / "postroom.db"))
    db.execute("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete")
    KEYS[:] = [load_key(folder / "audit.key")]
    [(last,)] = db.execute("SELECT number FROM audit_head")
    [(link,)] = db.execute("SELECT hash FROM audit WHERE number = ?", (last - 1,))
    db.execute("DELETE FROM audit WHERE number = ?", (last,))
    proof = AuditHmac(KEYS[0]).head(last - 1, link)
    db.execute("UPDATE audit_head SET number = ?, hash = ?, hmac = ?", (last - 1, link, proof))
    db.close()
    assert [f"audit: the log ends at {last - 1}, but audit.mark names entry {last}"] == list(
        await problems_of(folder)
    )

    async with open_app(settings_of(folder)) as app:
        for key in ("one", "two", "three"):
            await call(app.context(OWNER), memories.memory_add, {"key": key, "text": "T."})

    told = (f"audit: entry {last} is not the one in audit.mark",)
    assert told == await problems_of(folder)
    (folder / "audit.mark").unlink()
    assert () == await problems_of(folder)


async def test_a_damaged_end_mark_and_another_key_are_detected(folder):
    mark, key = folder / "audit.mark", folder / "audit.key"
    whole = mark.read_bytes()

    mark.write_bytes(b"00000000000000000001 00 00\n")
    assert "mark" in (await problems_of(folder))[0]
    mark.write_bytes(whole)
    key.write_text("00" * 32)
    with pytest.raises(Conflict, match="another key"):
        await problems_of(folder)
    db = apsw.Connection(str(folder / "postroom.db"))
    db.execute("DELETE FROM metadata WHERE name = 'audit_key'")
    db.close()
    assert await problems_of(folder)


async def test_a_lost_key_is_not_replaced(folder):
    (folder / "audit.key").unlink()

    with pytest.raises(Conflict, match=r"audit\.key"):
        await problems_of(folder)

    assert not (folder / "audit.key").exists()


async def test_two_machines_that_share_a_database_must_share_the_key(tmp_path, database_url):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = await postgres.open_store(database_url, tmp_path / "one")
    await first.close()

    with pytest.raises(Conflict, match="POSTROOM_AUDIT_KEY"):
        await postgres.open_store(database_url, tmp_path / "two")

    key = load_key(tmp_path / "one" / "audit.key")
    await (await postgres.open_store(database_url, tmp_path / "two", key)).close()


async def test_a_log_from_before_namespaces_is_valid_and_continues(tmp_path):
    data = tmp_path / "data"
    assert () == await problems_of(data)
    seal = AuditHmac(load_key(data / "audit.key"), data / "audit.mark")
    old = ("aud_1", 1, "owner", "memory_add", "k", None, "{}")
    link = seal.link(START, json.dumps([1, *old], separators=(",", ":")).encode())
    db = apsw.Connection(str(data / "postroom.db"))
    columns = "number, id, at, actor, action, target, inbox, details, hash"
    db.execute(f"INSERT INTO audit ({columns}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)", (*old, link))
    db.execute("INSERT INTO audit_head VALUES (1, ?, ?)", (link, seal.head(1, link)))
    db.close()

    async with open_app(settings_of(data)) as app:
        ctx = app.context(OWNER)
        await call(ctx, memories.memory_add, {"key": "k", "text": "T."})
        assert 2 == (await call(ctx, keys.list_audit, {"target": "k"})).total

    assert () == await problems_of(data)


async def test_the_log_cannot_be_changed_by_a_statement(app, ctx):
    inbox = await new_inbox(ctx)
    await call(ctx, inboxes.rename_inbox, {"inbox_id": inbox.id, "name": "New"})
    engine = app.services.store.engine

    for sql in ("UPDATE audit SET actor = 'x'", "DELETE FROM audit"):
        with pytest.raises(Unstorable, match="audit log"):
            await engine.write(lambda tx, sql=sql: tx.run(sql))


async def test_two_processes_write_one_chain(tmp_path):
    settings = settings_of(tmp_path / "data")
    async with open_app(settings) as one, open_app(settings) as other:
        inbox = await new_inbox(one.services)
        added = await deliver(one.services, inbox, mail())
        labels = [
            call(
                app.context(OWNER),
                message_changes.apply_label,
                {"message_ids": [added.message_id], "label": f"{app is one}{n}"},
            )
            for n in range(25)
            for app in (one, other)
        ]
        await asyncio.gather(*labels)

        check = await other.services.store.check_audit()

    assert (50, ()) == (check.entries, check.problems)
    assert () == await problems_of(tmp_path / "data")
