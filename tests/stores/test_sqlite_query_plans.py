"""SQLite does not scan an inbox for a thread or a message, although it lacks statistics."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from postroom.blobs.files import FileBlobs
from postroom.model.event import EventQuery, Webhook, WebhookResponse
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import OutboxQuery
from postroom.model.mail.storage import Added, AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.sqlite import open_store
from postroom.store.sqlite.connection import SqliteTransaction
from tests.bare_services import NO_PROVIDERS
from tests.mails import SOME, deliver, mail, new_inbox
from tests.stores.sends import a_send

FILES = [("a.txt", "text/plain", b"a")]
HOOK = Webhook("whk_1", "http://127.0.0.1/", (), EVERYTHING, datetime.now(UTC), secret="whsec_x")
VERY_NEW = 10**6
NARROW = re.compile(r"\b(thread|number|message|id) (= :|IN \(:)")
"""A condition that selects a few rows."""
WIDE = re.compile(
    r"USING (COVERING )?INDEX \w+ \((inbox=\?)( AND (is_hidden|date|last_date).*?)?\)"
)
"""An index that leads to all rows of an inbox."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
    """Every statement that was run, with the values of one call."""
    found: dict[str, dict[str, object]] = {}
    for name in ("all", "one", "run", "put"):
        monkeypatch.setattr(SqliteTransaction, name, _noting(name, found))
    return found


def _noting(name: str, found: dict[str, dict[str, object]]):
    real = getattr(SqliteTransaction, name)

    def noted(self, sql, /, **params):
        found.setdefault(sql, params)
        return real(self, sql, **params)

    return noted


async def test_a_thread_or_a_message_is_found_by_an_index(
    statements: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    store = await open_store(tmp_path / "postroom.db")
    await use_two_inboxes(Services(**NO_PROVIDERS, store=store, blobs=FileBlobs(tmp_path)))
    await store.close()

    connection = apsw.Connection(str(tmp_path / "postroom.db"))
    plans = {
        sql: str(connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
        for sql, values in statements.items()
        if NARROW.search(sql) and sql.split()[0] in ("SELECT", "UPDATE", "DELETE")
    }

    assert len(plans) > 50
    assert [] == [(sql, plan) for sql, plan in plans.items() if WIDE.search(plan)]


async def use_two_inboxes(services: Services) -> None:
    """Typical writes to two inboxes."""
    store = services.store
    bo, cy = await new_inbox(services, "bo"), await new_inbox(services, "cy")
    await store.add_webhook(HOOK)
    first = await deliver(services, bo, mail("One", attachments=FILES, message_id="<one@x>"))
    second = await deliver(services, bo, mail("Re: One", in_reply_to="<one@x>"))
    third = await deliver(services, cy, mail("Re: Another"))
    await read_everything(services, bo, first, second)
    await store.change_messages(
        [first.message_id], Change(labels=("Work",), move_to="Trash"), EVERYTHING
    )
    await store.split_thread(first.thread_id, [second.message_id], "thr_new", EVERYTHING)
    await store.merge_threads(["thr_new", first.thread_id], EVERYTHING)
    await send_one(services, bo)
    await run_background_jobs(services)
    await store.remove_message(third.message_id, EVERYTHING)
    await store.remove_inbox(cy.id, EVERYTHING, force=True)


async def read_everything(services: Services, bo: Inbox, first: Added, second: Added) -> None:
    """All queries about one inbox, and about all."""
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
    """A mail that is being sent, and all queries of the outbox."""
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


async def run_background_jobs(services: Services) -> None:
    """Background jobs and verification."""
    store, now = services.store, datetime.now(UTC)
    found = await store.webhook_deliveries(HOOK.id, EVERYTHING, Slice())
    delivery, event = await store.webhook_delivery(HOOK.id, found.rows[0].id, EVERYTHING)
    assert event is not None
    assert (found.rows[0], event.id) == (delivery, delivery.event_id)
    for job in await store.claim_webhooks("me", now=now, until=now, limit=9):
        await store.settle_webhook(job, WebhookResponse(200, ""), now=now, next_at=None)
    await store.next_webhook_at()
    await store.remove_webhook(HOOK.id, EVERYTHING)
    await store.claim_rule_jobs("me", now=now, until=now, limit=9)
    await store.next_rule_job_at()
    numbers = await store.candidates([MessageQuery(visible=EVERYTHING)])
    await store.facts(numbers, with_text=True, with_files=True)
    await store.outdated(VERY_NEW, 0, 10)
    await store.stored_parses(1, 0, 10)
    await store.compact_index()
    await store.problems()
