"""Which queries look into more than one partition, that is, would ask every shard.

The list of them is golden: a query that joins it does so on purpose (`--update-golden`), and with
a look at what it would cost. The planner is left no choice but which partitions to leave out, so
that the answer depends on the query alone and not on how full the tables are.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from postroom.blobs.files import FileBlobs
from postroom.model.event import EventQuery
from postroom.model.message import Recipient
from postroom.model.page import Slice
from postroom.model.stored import AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.pipeline.house import House
from postroom.store.postgres import connection as connections
from postroom.store.postgres import open_store
from postroom.store.sql.adding import SAME_MESSAGE_ID
from postroom.store.sql.threading import SAME_SUBJECT
from tests.mails import deliver, mail, new_inbox
from tests.stores.test_sends import a_send

GOLDEN = Path(__file__).parents[1] / "golden" / "shards.txt"
HEAD = """\
# Queries that look into every partition: on several machines, each would ask all of them.
# Written by `pytest tests/stores/test_shards.py --update-golden`.
"""
STAY = ((SAME_MESSAGE_ID, "messages"), (SAME_SUBJECT, "threads"))
"""Queries that name the inbox, and the table in which they must not look elsewhere."""
FILES = [("a.txt", "text/plain", b"a")]
Statements = dict[bytes, list[object]]
PLAIN = (
    "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_hashjoin",
    "enable_mergejoin", "enable_material", "enable_memoize",
)  # fmt: skip
"""What the planner must do without: then a plan names every partition that may be needed."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Every statement that was run, with some values."""
    found: Statements = {}
    real = connections.PostgresTransaction._execute

    def execute(self, sql, params):
        statement, names = connections.positional(sql)
        found.setdefault(statement, [params[name] for name in names])
        return real(self, sql, params)

    monkeypatch.setattr(connections.PostgresTransaction, "_execute", execute)
    return found


async def use_all_of_it(house: House) -> None:
    """A day in the life of two inboxes."""
    store = house.store
    bo, cy = await new_inbox(house, "bo"), await new_inbox(house, "cy")
    first = await deliver(house, bo, mail("One", attachments=FILES, message_id="<one@x>"))
    second = await deliver(house, bo, mail("Re: One", in_reply_to="<one@x>"))
    third = await deliver(house, cy, mail("Re: Another"))
    now = datetime.now(UTC)
    queued = (Recipient("x@example.com", "queued"),)
    send = await a_send(house, bo)
    message = dataclasses.replace(send.message, recipients=queued)
    await store.record_send(dataclasses.replace(send, message=message))
    for query in (MessageQuery(inbox_id=bo.id, q="one"), MessageQuery(thread_id=first.thread_id)):
        await store.messages(query)
    await store.message(first.message_id, None)
    await store.message_by_internet_id(bo.id, "one@x")
    await store.newest_message(first.thread_id, None)
    await store.threads(ThreadQuery(inbox_id=bo.id, label="work"))
    await store.thread(first.thread_id, None, limit=10, before=second.message_id)
    await store.attachments(AttachmentQuery(inbox_id=bo.id))
    await store.labels(None, Slice())
    await store.events(EventQuery(inbox_id=bo.id))
    await store.events_after(0, limit=10)
    await store.change_messages([first.message_id], Change(labels=("Work",), move_to="Trash"), None)
    await store.split_thread(first.thread_id, [second.message_id], "thr_new", None)
    await store.merge_threads(["thr_new", first.thread_id], None)
    claimed = await store.claim_mail(
        "me", now=now, until=now + timedelta(minutes=1), limit=9, most_per_domain=100
    )
    for job in claimed.jobs:
        await store.begin_handing_over(job, ["x@example.com"])
        outcome = {"x@example.com": Recipient("x@example.com", "sent")}
        await store.settle_mail(job, outcome, now=now, next_at=now)
    await store.next_mail_at()
    await store.remove_message(third.message_id, None)
    await store.remove_inbox(cy.id, None, force=True)


def partitions_of(url: str, asked: Statements) -> dict[str, set[str]]:
    """For each query, the tables of which more than one partition is looked at."""
    found: dict[str, set[str]] = {}
    with connections.connect(url) as connection:
        for name in PLAIN:
            connection.execute(f"SET {name} = off".encode())
        for statement, values in asked.items():
            if not re.match(rb"\s*(SELECT|UPDATE|DELETE|INSERT)", statement):
                continue
            plan = _plan(connection, statement, values)
            seen = set(re.findall(r" on (\w+)_(\d)\b", plan))
            several = {name for name, part in seen if {(name, "0"), (name, "1")} <= seen}
            if several:
                found[_shown(statement)] = several
    return found


def _plan(connection: psycopg.Connection, statement: bytes, values: list[object]) -> str:
    with connection.transaction(force_rollback=True):
        rows = connection.execute(b"EXPLAIN " + statement, values).fetchall()
    return "\n".join(row[0] for row in rows)


def _shown(statement: bytes) -> str:
    text = re.sub(r"\s+", " ", statement.decode()).strip()
    text = re.sub(r"^SELECT .*? FROM ", "SELECT … FROM ", text)
    text = re.sub(r"IN \(\$\d+(, \$\d+)*\)", "IN (…)", text)
    return re.sub(r"\$\d+", "?", text)


async def test_every_query_that_asks_all_shards_is_known(
    asked: Statements, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = await open_store(database_url, tmp_path)
    await use_all_of_it(House(store=store, blobs=FileBlobs(tmp_path)))
    await store.close()

    crossing = partitions_of(database_url, asked)

    lines = sorted(f"{', '.join(sorted(tables))}: {sql}" for sql, tables in crossing.items())
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    assert GOLDEN.read_text().removeprefix(HEAD).splitlines() == lines
    for sql, table in STAY:
        assert table not in crossing.get(_shown(connections.positional(sql)[0]), set())
