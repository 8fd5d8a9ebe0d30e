"""Queries about one inbox read one partition of each table, however many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from postroom.blobs.files import FileBlobs
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import Added, AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.postgres import open_store
from postroom.store.sql.messages.message_reads import PLACE
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.store import Store
from tests.bare_services import NO_PROVIDERS
from tests.mails import deliver, mail, new_inbox
from tests.stores import partitions

FILES = [("a.txt", "text/plain", b"a")]
BY_ID = {partitions.shown(sql.replace(":id", "$1").encode()) for sql in (PLACE, NAMED)}
"""The query that resolves an id to an inbox and a number."""


Ask = Callable[[Store, Inbox, Added], Awaitable[object]]
COMMON: dict[str, Ask] = {
    "a message": lambda store, _, one: store.message(one.message_id, EVERYTHING),
    "the newest of a thread": lambda store, _, one: store.newest_message(one.thread_id, EVERYTHING),
    "a thread": lambda store, _, one: store.thread(
        one.thread_id, EVERYTHING, limit=10, before=None
    ),
    "a list": lambda store, inbox, _: store.messages(
        MessageQuery(visible=EVERYTHING, inbox_id=inbox.id)
    ),
    "a search": lambda store, inbox, _: store.messages(
        MessageQuery(visible=EVERYTHING, inbox_id=inbox.id, q="one")
    ),
    "a label": lambda store, inbox, _: store.messages(
        MessageQuery(visible=EVERYTHING, inbox_id=inbox.id, labels=("work",))
    ),
    "a search in a thread": lambda store, _, one: store.messages(
        MessageQuery(visible=EVERYTHING, thread_id=one.thread_id, q="one")
    ),
    "threads": lambda store, inbox, _: store.threads(
        ThreadQuery(visible=EVERYTHING, inbox_id=inbox.id)
    ),
    "threads with a label": lambda store, inbox, _: store.threads(
        ThreadQuery(visible=EVERYTHING, inbox_id=inbox.id, label="work")
    ),
    "files": lambda store, inbox, _: store.attachments(
        AttachmentQuery(visible=EVERYTHING, inbox_id=inbox.id)
    ),
    "files of a thread": lambda store, _, one: store.attachments(
        AttachmentQuery(visible=EVERYTHING, thread_id=one.thread_id)
    ),
    "events": lambda store, inbox, _: store.events(
        EventQuery(visible=EVERYTHING, inbox_id=inbox.id)
    ),
    "a split": lambda store, _, one: store.split_thread(
        one.thread_id, [one.message_id], "thr_new", EVERYTHING
    ),
}
"""Frequent queries about one inbox."""


@pytest.mark.parametrize("name", COMMON)
async def test_queries_of_one_inbox_read_one_partition(
    name: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(database_url, tmp_path)
    services = Services(**NO_PROVIDERS, store=store, blobs=FileBlobs(tmp_path))
    inbox = await new_inbox(services, "bo")
    one = await deliver(services, inbox, mail("One", attachments=FILES, message_id="<one@x>"))
    await deliver(services, inbox, mail("Re: One", in_reply_to="<one@x>"))
    await store.change_messages([one.message_id], Change(add_labels=("work",)), EVERYTHING)
    statements = partitions.record(monkeypatch)

    await COMMON[name](store, inbox, one)
    await store.close()

    assert len(statements) > 1
    assert partitions.crossing(database_url, statements).keys() <= BY_ID


async def test_an_arriving_message_reads_one_partition(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(database_url, tmp_path)
    services = Services(**NO_PROVIDERS, store=store, blobs=FileBlobs(tmp_path))
    inbox = await new_inbox(services, "bo")
    await deliver(services, inbox, mail("One", message_id="<one@x>"))
    statements = partitions.record(monkeypatch)

    await deliver(services, inbox, mail("Re: One", attachments=FILES, in_reply_to="<one@x>"))
    await deliver(services, inbox, mail("Re: One"))
    await store.close()

    assert len(statements) > 10
    assert {} == partitions.crossing(database_url, statements)
