"""Which queries look into more than one partition, that is, would ask every shard.

The list of them is golden: a query that joins it does so on purpose (`--update-golden`), for a
reason that is told, and with a look at what it would cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.blobs.files import FileBlobs
from postroom.model.event import EventQuery, Posted, Webhook
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.page import Slice
from postroom.model.sending import OutboxQuery
from postroom.model.storage import Added, AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.postgres import open_store
from postroom.store.sql.messages.message_reads import PLACE
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.store import Store
from tests.mails import SOME, deliver, mail, new_inbox
from tests.stores import shards
from tests.stores.conftest import OpenAgain
from tests.stores.sends import a_send

OPERATIONS = Path(__file__).parents[2] / "docs" / "how-to" / "operations.md"
FILES = [("a.txt", "text/plain", b"a")]
HOOK = Webhook("whk_1", "http://127.0.0.1/", (), EVERYTHING, datetime.now(UTC), secret="whsec_x")
VERY_NEW = 10**6
BY_ID = {shards.shown(sql.replace(":id", "$1").encode()) for sql in (PLACE, NAMED)}
"""How an id becomes an inbox and a number."""


@pytest.mark.parametrize("open_again", ["postgres"], indirect=True)
async def test_every_query_that_asks_all_shards_is_known(
    open_again: OpenAgain, tmp_path: Path
) -> None:
    store = await open_again()
    await use_all_of_it(Services(store=store, blobs=FileBlobs(tmp_path)))
    problems = await store.problems()
    await store.close()  # and then the fixture looks at every query

    assert () == problems


async def use_all_of_it(services: Services) -> None:
    """A day in the life of two inboxes."""
    store = services.store
    bo, cy = await new_inbox(services, "bo"), await new_inbox(services, "cy")
    await store.add_webhook(HOOK)
    first = await deliver(services, bo, mail("One", attachments=FILES, message_id="<one@x>"))
    second = await deliver(services, bo, mail("Re: One", in_reply_to="<one@x>"))
    third = await deliver(services, cy, mail("Re: Another"))
    await read_all_of_it(services, bo, first, second)
    await store.change_messages(
        [first.message_id], Change(labels=("Work",), move_to="Trash"), EVERYTHING
    )
    await store.split_thread(first.thread_id, [second.message_id], "thr_new", EVERYTHING)
    await store.merge_threads(["thr_new", first.thread_id], EVERYTHING)
    await send_one(services, bo)
    await work_for_all(services)
    await store.remove_message(third.message_id, EVERYTHING)
    await store.remove_inbox(cy.id, EVERYTHING, force=True)


async def read_all_of_it(services: Services, bo: Inbox, first: Added, second: Added) -> None:
    """What can be asked of one inbox, and what of all."""
    store = services.store
    for inbox_id in (bo.id, None):
        for q, label in (("one", None), (None, "work")):
            labels = (label,) if label else ()
            await store.messages(
                MessageQuery(visible=EVERYTHING, inbox_id=inbox_id, q=q, labels=labels)
            )
        await store.threads(ThreadQuery(visible=EVERYTHING, inbox_id=inbox_id, label="work"))
        await store.events(EventQuery(visible=EVERYTHING, inbox_id=inbox_id))
    await store.messages(MessageQuery(visible=EVERYTHING, thread_id=first.thread_id))
    await store.message(first.message_id, EVERYTHING)
    await store.message_by_internet_id(bo.id, "one@x")
    await store.newest_message(first.thread_id, EVERYTHING)
    await store.thread(first.thread_id, EVERYTHING, limit=10, before=second.message_id)
    for query in (
        AttachmentQuery(visible=EVERYTHING, inbox_id=bo.id),
        AttachmentQuery(visible=EVERYTHING, message_id=first.message_id),
        AttachmentQuery(visible=EVERYTHING, thread_id=first.thread_id),
    ):
        await store.attachments(query)
    await store.labels(EVERYTHING, Slice())
    await store.events(EventQuery(visible=EVERYTHING, message_id=first.message_id))
    await store.events_after(0, limit=10, visible=EVERYTHING)


async def send_one(services: Services, inbox: Inbox) -> None:
    """A mail on its way out, and all that is asked of the outbox."""
    store, now = services.store, datetime.now(UTC)
    send = await a_send(services, inbox)
    message = dataclasses.replace(send.message, recipients=(Recipient("x@example.com", "queued"),))
    await store.record_send(dataclasses.replace(send, message=message))
    await store.outbox(OutboxQuery(visible=EVERYTHING))
    claimed = await store.claim_mail(
        "me", now=now, until=now + timedelta(minutes=1), free=SOME, max_per_domain=100
    )
    for job in claimed.jobs:
        await store.renew_mail([job], now + timedelta(minutes=2))
        await store.begin_transmission(job, ["x@example.com"])
        outcome = {"x@example.com": Recipient("x@example.com", "sent")}
        await store.settle_mail(job, outcome, now=now, next_at=now)
    await store.next_mail_at()


async def work_for_all(services: Services) -> None:
    """What is done by itself, and what is checked."""
    store, now = services.store, datetime.now(UTC)
    found = await store.webhook_deliveries(HOOK.id, EVERYTHING, Slice())
    delivery, event = await store.webhook_delivery(HOOK.id, found.rows[0].id, EVERYTHING)
    assert event is not None
    assert (found.rows[0], event.id) == (delivery, delivery.event_id)
    for job in await store.claim_webhooks("me", now=now, until=now, limit=9):
        await store.settle_webhook(job, Posted(200, ""), now=now, next_at=None)
    await store.next_webhook_at()
    await store.remove_webhook(HOOK.id, EVERYTHING)
    await store.claim_rule_jobs("me", now=now, until=now, limit=9)
    await store.next_rule_job_at()
    numbers = await store.candidates([MessageQuery(visible=EVERYTHING)])
    await store.facts(numbers, with_text=True, with_files=True)
    await store.outdated(VERY_NEW, 0, 10)
    await store.readings(1, 0, 10)
    await store.compact_index()
    await store.problems()


def test_every_query_that_asks_all_shards_has_a_reason() -> None:
    unexplained = [line for line in shards.golden() if shards.reason_of(line) is None]
    used = {shards.reason_of(line) for line in shards.golden()}
    told = " ".join(OPERATIONS.read_text().split())

    assert [] == unexplained
    assert [] == [line for line in shards.golden() if "FOR UPDATE" in line]
    assert [] == [reason for reason, _ in shards.REASONS if reason not in used]
    assert [] == [reason for reason, _ in shards.REASONS if reason not in told]


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
"""What is asked again and again, of one inbox."""


@pytest.mark.parametrize("name", COMMON)
async def test_what_is_asked_of_one_inbox_looks_into_one_partition(
    name: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(database_url, tmp_path)
    services = Services(store=store, blobs=FileBlobs(tmp_path))
    inbox = await new_inbox(services, "bo")
    one = await deliver(services, inbox, mail("One", attachments=FILES, message_id="<one@x>"))
    await deliver(services, inbox, mail("Re: One", in_reply_to="<one@x>"))
    await store.change_messages([one.message_id], Change(add_labels=("work",)), EVERYTHING)
    asked = shards.record(monkeypatch)

    await COMMON[name](store, inbox, one)
    await store.close()

    assert len(asked) > 1
    assert shards.crossing(database_url, asked).keys() <= BY_ID


async def test_a_message_that_arrives_looks_into_one_partition(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(database_url, tmp_path)
    services = Services(store=store, blobs=FileBlobs(tmp_path))
    inbox = await new_inbox(services, "bo")
    await deliver(services, inbox, mail("One", message_id="<one@x>"))
    asked = shards.record(monkeypatch)

    await deliver(services, inbox, mail("Re: One", attachments=FILES, in_reply_to="<one@x>"))
    await deliver(services, inbox, mail("Re: One"))
    await store.close()

    assert len(asked) > 10
    assert {} == shards.crossing(database_url, asked)
