"""One mail by any routes is one message and one event: delivered here, in any mailbox there, again
and again, and after another UIDVALIDITY.

`ROUTES=1000 pytest tests/providers/accounts/test_routes.py` tries more than the normal run.
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
from postroom.model.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival, receive
from tests.mails import mail
from tests.providers.accounts.conftest import Desk, open_desk
from tests.providers.accounts.test_nonsense import CAPABILITIES, ImapWorld
from tests.providers.accounts.worlds import ADDRESS
from tests.servers.imap_script import Mail, ScriptedImap, scripted

WAYS = ("delivered", "INBOX", "Work", "another UIDVALIDITY", "a pass")
STEPS = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 3)), min_size=1, max_size=12)


@dataclass
class Crossing:
    """An installation that a mail may reach in several ways; UIDs are never used twice."""

    desk: Desk
    server: ScriptedImap
    uids: Iterator[int]
    runs: Iterator[int]

    async def take(self, way: str, raw: bytes) -> None:
        if way == "delivered":
            await receive(self.desk.app.services, Arrival(raw, self.desk.account.inbox_id))
        elif way == "another UIDVALIDITY":
            self.server.uidvalidity += 1
        elif way == "a pass":
            await self.desk.sync()
        else:
            self.server.mailboxes[way.encode()][next(self.uids)] = Mail(raw)

    async def event_counts(self) -> Counter[str]:
        """How often each subject was told of."""
        events = await self.desk.app.services.store.events_after(
            0, limit=100_000, visible=EVERYTHING
        )
        return Counter(str(e.data["subject"]) for e in events if e.type == "message.received")


@pytest.fixture
async def crossing(tmp_path: Path) -> AsyncIterator[Crossing]:
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    boxes: dict[bytes, dict[int, Mail]] = {b"INBOX": {}, b"Work": {}}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES) as server,
        open_app(read_settings(values).settings) as app,
    ):
        yield Crossing(await open_desk(app, ImapWorld(server)), server, count(1), count(1))


@settings(
    max_examples=int(os.environ.get("ROUTES", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_a_mail_by_any_routes_is_one_message_and_one_event(
    crossing: Crossing, steps: list[tuple[str, int]]
) -> None:
    run = next(crossing.runs)
    for box in crossing.server.mailboxes.values():
        box.clear()
    ids = [f"<{run}.0@x.example>", f"<{run}.1@x.example>", None, None]
    raws = [mail(f"{run}.{n}", to=ADDRESS, message_id=own) for n, own in enumerate(ids)]
    for way, number in (*steps, ("a pass", 0), ("a pass", 0)):
        await crossing.take(way, raws[number])

    brought = {f"{run}.{n}" for way, n in steps if way in ("delivered", "INBOX", "Work")}
    found = await crossing.desk.app.services.store.messages(
        MessageQuery(
            visible=EVERYTHING, mailbox="*", inbox_id=crossing.desk.account.inbox_id, q=f"{run}."
        )
    )
    here = Counter(row.subject for row in found.rows if row.subject.startswith(f"{run}."))
    counts = {
        subject: n for subject, n in (await crossing.event_counts()).items() if subject in brought
    }
    assert dict.fromkeys(brought, 1) == here
    assert dict.fromkeys(brought, 1) == counts
