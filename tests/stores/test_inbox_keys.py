"""The tables that came to name the inbox: old rows get one, and old code goes on beside the new."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from postroom.store.postgres import migrations as server
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.sql.checking import problems
from postroom.store.sqlite import engine as file
from postroom.store.sqlite import inbox_keys
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.sqlite.migrations import STEPS, migrate
from postroom.store.transaction import Row, Transaction

BEFORE = STEPS.index(inbox_keys.BODIES)
TABLES = ("bodies", "search_texts", "message_labels", "message_mailboxes", "outbox")
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
NAME = "INSERT INTO {} (inbox, name, folded) VALUES (:inbox, :id, :id) RETURNING number"
IDENTITY = """
    INSERT INTO identities (id, inbox, email, name, signature, is_default)
    VALUES (:id, :inbox, :id, '', '', 1)
"""
OLD = (
    "INSERT INTO bodies (message, text, new_text) VALUES (:message, 'text', NULL)",
    """INSERT INTO search_texts (message, searchable, senders, recipients)
       VALUES (:message, 'text', '', '')""",
    "INSERT INTO message_labels (label, message) VALUES (:label, :message)",
    "INSERT INTO message_mailboxes (mailbox, message) VALUES (:mailbox, :message)",
    """INSERT INTO outbox (message, state, status, attempts, queued_at, next_at, is_scheduled)
       VALUES (:message, 'waiting', 'queued', 0, 0, 0, 0)""",
    "INSERT INTO thread_aliases (id, thread) VALUES (:alias, :thread)",
)
"""What code from before says when a message arrives."""

READ = """
    SELECT m.id, b.text, s.searchable, l.name, x.name, o.state FROM messages m
      JOIN bodies b ON b.message = m.number JOIN search_texts s ON s.message = m.number
      JOIN message_labels ml ON ml.message = m.number JOIN labels l ON l.number = ml.label
      JOIN message_mailboxes mm ON mm.message = m.number JOIN mailboxes x ON x.number = mm.mailbox
      JOIN outbox o ON o.message = m.number ORDER BY m.number
"""
CLAIM = "SELECT message FROM outbox o WHERE o.state = 'waiting' ORDER BY o.message"
TAKE = "UPDATE outbox SET state = 'claimed' WHERE message = :n AND state = 'waiting'"
Open = Callable[[], SqliteEngine | PostgresEngine]


@pytest.fixture(params=["sqlite", "postgres"])
def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens a database of this test, as another process would."""
    if request.param == "sqlite":
        return lambda: SqliteEngine.open(tmp_path / "postroom.db")
    url = request.getfixturevalue("database_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return lambda: PostgresEngine.open(url, partitions=3)


@pytest.fixture
async def old(open_engine: Open) -> AsyncIterator[SqliteEngine | PostgresEngine]:
    """A process of the version before."""
    real = server.steps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "migrate", partial(migrate, steps=STEPS[:BEFORE]))
        patch.setattr(server, "steps", lambda partitions: real(partitions)[:BEFORE])
        opened = open_engine()
    yield opened
    await opened.close()


def arrive(tx: Transaction, name: str) -> None:
    """A message in an inbox of its own, as code from before writes it."""

    def made(sql: str, **params: object) -> int:
        row = tx.one(sql, id=name, **params)
        return int(row[0]) if row else 0

    inbox = made(INBOX, blob=b"")
    thread = made(THREAD, inbox=inbox)
    tx.run(IDENTITY, id=name, inbox=inbox)
    values = {
        "message": made(MESSAGE, inbox=inbox, thread=thread, blob=b""),
        "label": made(NAME.format("labels"), inbox=inbox),
        "mailbox": made(NAME.format("mailboxes"), inbox=inbox),
        "alias": f"alias of {name}",
        "thread": thread,
    }
    for sql in OLD:
        tx.run(sql, **values)


def inboxes_of(tx: Transaction, table: str) -> list[Row]:
    """The inbox that each row names, and that of its message."""
    key, other = ("thread", "threads") if table == "thread_aliases" else ("message", "messages")
    return tx.all(
        f"""SELECT x.inbox, m.inbox FROM {table} x JOIN {other} m ON m.number = x.{key}
             ORDER BY m.number"""
    )


async def test_rows_from_before_and_rows_of_old_code_get_the_inbox_of_their_message(
    old: SqliteEngine | PostgresEngine, open_engine: Open
) -> None:
    await old.write(lambda tx: [arrive(tx, f"first {n}") for n in range(4)])
    before = await old.read(lambda tx: tx.all(READ))

    new = open_engine()
    after = await old.read(lambda tx: tx.all(READ))
    await old.write(lambda tx: [arrive(tx, f"second {n}") for n in range(4)])
    rows = {
        table: await new.read(partial(inboxes_of, table=table))
        for table in (*TABLES, "thread_aliases")
    }
    wrong = await new.read(problems)
    await new.close()

    assert before == after
    assert {name: [(n, n) for n in range(1, 9)] for name in rows} == rows
    assert () == wrong


async def test_old_code_claims_and_removes_beside_the_new(
    old: SqliteEngine | PostgresEngine, open_engine: Open
) -> None:
    await old.write(lambda tx: [arrive(tx, f"message {n}") for n in range(4)])
    await open_engine().close()

    def work(tx: Transaction) -> list[int]:
        due = [row[0] for row in tx.claimable(CLAIM, "o")]
        counts = [tx.run(TAKE, n=number) for number in (*due, due[0])]
        for table in TABLES:
            tx.run(f"DELETE FROM {table} WHERE message = :n", n=due[0])
        return counts

    counts = await old.write(work)
    left = await old.read(lambda tx: tx.all(READ))

    assert [1, 1, 1, 1, 0] == counts
    assert [f"message {n}" for n in (1, 2, 3)] == [row[0] for row in left]
