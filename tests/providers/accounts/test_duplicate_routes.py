"""A mail that arrives by several routes is one message with one event: delivered locally, in any
remote mailbox, repeatedly, and after a change of UIDVALIDITY.

`ROUTES=1000 pytest tests/providers/accounts/test_duplicate_routes.py` tries more than a normal run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.app import open_app
from postroom.config import read_settings
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival, receive
from tests.mails import mail
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import ADDRESS
from tests.providers.accounts.test_malformed_responses import CAPABILITIES, ImapRemote
from tests.servers.imap_script import Mail, ScriptedImap, scripted

WAYS = ("delivered", "INBOX", "Work", "another UIDVALIDITY", "a pass")
STEPS = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 3)), min_size=1, max_size=12)


@dataclass
class RoutesFixture:
    """An installation that a mail can reach by several routes; UIDs are never reused."""

    synced: SyncedAccount
    server: ScriptedImap
    uids: Iterator[int]
    runs: Iterator[int]

    async def take(self, way: str, raw: bytes) -> None:
        if way == "delivered":
            await receive(self.synced.app.services, Arrival(raw, self.synced.account.inbox_id))
        elif way == "another UIDVALIDITY":
            self.server.uidvalidity += 1
        elif way == "a pass":
            await self.synced.sync()
        else:
            self.server.mailboxes[way.encode()][next(self.uids)] = Mail(raw)

    async def event_counts(self) -> Counter[str]:
        """The number of events for each subject."""
        events = await self.synced.app.services.store.events_after(
            0, limit=100_000, visible=EVERYTHING
        )
        return Counter(str(e.data["subject"]) for e in events if e.type == "message.received")


@pytest.fixture
async def routes(tmp_path: Path) -> AsyncIterator[RoutesFixture]:
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    boxes: dict[bytes, dict[int, Mail]] = {b"INBOX": {}, b"Work": {}}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES) as server,
        open_app(read_settings(values).settings) as app,
    ):
        yield RoutesFixture(
            await add_synced_account(app, ImapRemote(server)), server, count(1), count(1)
        )


@settings(
    max_examples=int(os.environ.get("ROUTES", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_a_mail_by_any_routes_is_one_message_and_one_event(
    routes: RoutesFixture, steps: list[tuple[str, int]]
) -> None:
    run = next(routes.runs)
    for box in routes.server.mailboxes.values():
        box.clear()
    ids = [f"<{run}.0@x.example>", f"<{run}.1@x.example>", None, None]
    raws = [mail(f"{run}.{n}", to=ADDRESS, message_id=own) for n, own in enumerate(ids)]
    for way, number in (*steps, ("a pass", 0), ("a pass", 0)):
        await routes.take(way, raws[number])

    brought = {f"{run}.{n}" for way, n in steps if way in ("delivered", "INBOX", "Work")}
    found = await routes.synced.app.services.store.messages(
        MessageQuery(
            visible=EVERYTHING, mailbox="*", inbox_id=routes.synced.account.inbox_id, q=f"{run}."
        )
    )
    here = Counter(row.subject for row in found.rows if row.subject.startswith(f"{run}."))
    counts = {
        subject: n for subject, n in (await routes.event_counts()).items() if subject in brought
    }
    assert dict.fromkeys(brought, 1) == here
    assert dict.fromkeys(brought, 1) == counts
