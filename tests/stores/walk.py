"""A random walk: several processes change one installation, and a model is changed alike.

The model is plain Python without a database. The results of the processes must equal its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import Settings
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import create_inbox, delete_inbox
from postroom.operations.mail.inbound import receive_message
from postroom.operations.mail.message_changes import (
    apply_label,
    delete_message,
    list_labels,
    move_message,
    update_message,
)
from postroom.operations.mail.messages import search_messages
from postroom.operations.mail.threads import get_thread
from postroom.pipeline.maintenance import compact_all
from tests.mails import mail

PROCESSES = 3
START = datetime(2026, 3, 1, tzinfo=UTC)
HIDDEN = {"Trash", "Junk"}
_WORDS = ("invoice", "voice", "report", "straße", "你好", "of the", "x1", "re", "café", "-----")
_LABELS = ("Work", "Home", "Ünïcode")
_MAILBOXES = ("Inbox", "Archive", "Trash", "Junk", "Projects")


@dataclass
class ModelMessage:
    """A message in the model. No two have the same date."""

    raw: bytes
    internet_id: str
    inbox: str
    date: datetime
    text: str
    thread: int
    mailbox: str = "Inbox"
    labels: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)


class RandomWalk:
    """Several processes on one installation, and the model."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._chance = random.Random(seed)
        self._stack = AsyncExitStack()
        self._apps: list[App] = []
        self._inboxes: dict[str, str] = {}
        self._known: dict[str, ModelMessage] = {}
        self._came = 0
        self.different: list[object] = []

    async def __aenter__(self) -> RandomWalk:
        for _ in range(PROCESSES):
            self._apps.append(await self._stack.enter_async_context(open_app(self._settings)))
        await self._make_inbox()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self, steps: int) -> None:
        """Take this many steps; results that differ from the model are in `different`."""
        ways: list[tuple[int, Callable[[], Any]]] = [
            (15, self._receive), (10, self._receive_some), (4, self._receive_again),
            (8, self._label), (6, self._move), (6, self._flag), (6, self._delete),
            (1, self._make_inbox), (1, self._remove_inbox), (2, self._compact), (20, self._search),
            (4, self._look_at_thread), (3, self._count_labels),
        ]  # fmt: skip
        weights = [weight for weight, _ in ways]
        for _ in range(steps):
            ((_, step),) = self._chance.choices(ways, weights)
            await step()
        for app in self._apps:
            self.different += await app.services.store.problems()

    async def _ask(self, operation: Any, **arguments: object) -> Any:
        """Call an operation in one of the processes."""
        app = self._chance.choice(self._apps)
        return await call(app.context(OWNER), operation, arguments)

    # Changes.

    async def _make_inbox(self) -> None:
        if len(self._inboxes) < 5:
            made = await self._ask(create_inbox)
            self._inboxes[made.id] = made.address

    async def _remove_inbox(self) -> None:
        if len(self._inboxes) > 1:
            inbox = self._chance.choice(list(self._inboxes))
            await self._ask(delete_inbox, inbox_id=inbox, force=True)
            del self._inboxes[inbox]
            self._known = {key: one for key, one in self._known.items() if one.inbox != inbox}

    async def _receive_some(self) -> None:
        """Several mails at once, by any of the processes."""
        await asyncio.gather(*(self._receive() for _ in range(self._chance.randrange(2, 6))))

    async def _receive(self) -> None:
        self._came += 1
        came = self._came
        inbox = self._chance.choice(list(self._inboxes))
        before = [one for one in self._known.values() if one.inbox == inbox]
        parent = self._chance.choice(before) if before and self._chance.random() < 0.4 else None
        words = self._chance.choices(_WORDS, k=self._chance.randrange(1, 6))
        subject, text = f"{came} {words[0]}", " ".join(words[1:])
        date = START + timedelta(seconds=20_000 * self._chance.randrange(500) + came)
        internet_id = f"<walk-{came}@example.com>"
        raw = mail(
            subject, text, date=date, to=self._inboxes[inbox], message_id=internet_id,
            in_reply_to=parent.internet_id if parent else None,
        )  # fmt: skip
        received = await self._ask(receive_message, recipient=self._inboxes[inbox], raw=raw)
        self._expect("received", received.status)
        thread = parent.thread if parent else came
        self._known[received.message_id] = ModelMessage(
            raw, internet_id, inbox, date, f"{subject}\n{text}", thread
        )

    async def _receive_again(self) -> None:
        if message_id := self._any():
            one = self._known[message_id]
            address = self._inboxes[one.inbox]
            received = await self._ask(receive_message, recipient=address, raw=one.raw)
            self._expect((message_id, "duplicate"), (received.message_id, received.status))

    async def _label(self) -> None:
        some = self._some()
        label, remove = self._chance.choice(_LABELS), self._chance.random() < 0.3
        if some:
            await self._ask(apply_label, message_ids=some, label=label, remove=remove)
        for message_id in some:
            labels = self._known[message_id].labels
            (labels.discard if remove else labels.add)(label)

    async def _move(self) -> None:
        if message_id := self._any():
            mailbox = self._chance.choice(_MAILBOXES)
            await self._ask(move_message, message_id=message_id, destination=mailbox)
            self._known[message_id].mailbox = mailbox

    async def _flag(self) -> None:
        if message_id := self._any():
            flags = self._chance.sample(["seen", "flagged", "answered"], self._chance.randrange(3))
            await self._ask(update_message, message_id=message_id, flags=flags)
            self._known[message_id].flags = set(flags)

    async def _delete(self) -> None:
        if message_id := self._any():
            permanent = self._chance.random() < 0.5
            await self._ask(delete_message, message_id=message_id, permanent=permanent)
            self._known[message_id].mailbox = "Trash"
            if permanent:
                del self._known[message_id]

    async def _compact(self) -> None:
        await compact_all(self._chance.choice(self._apps).services)

    # Queries.

    async def _search(self) -> None:
        inbox = self._chance.choice([None, *self._inboxes])
        word = self._chance.choice([*_WORDS, "no such word", "oice"])
        words, mode, q = [word], "exact", word
        if self._chance.random() < 0.3:
            words, mode = [word, self._chance.choice(_WORDS)], "words"
            q = " ".join(f'"{one}"' for one in words)
        unread, subject = self._chance.choice([None, None, True, False]), None
        if self._chance.random() < 0.2:
            subject = self._chance.choice(_WORDS)
        is_oldest_first = self._chance.random() < 0.4
        mailbox = self._chance.choice([None, None, "*", *_MAILBOXES])
        labels = [self._chance.choice(_LABELS)] if self._chance.random() < 0.3 else []
        limit, offset = self._chance.choice([1, 5, 100]), self._chance.choice([0, 0, 3])
        asked = {
            "q": q, "mode": mode, "inbox_id": inbox, "mailbox": mailbox, "labels": labels,
            "unread": unread, "subject": subject, "sort": "oldest" if is_oldest_first else "newest",
        }  # fmt: skip
        page = await self._ask(search_messages, **asked, limit=limit, offset=offset)
        fits = [
            (one.date, key, _shown(one))
            for key, one in self._known.items()
            if all(own in one.text for own in words)
            if subject is None or subject in one.text.partition("\n")[0]
            if unread is None or unread == ("seen" not in one.flags)
            if inbox in (None, one.inbox)
            if (one.mailbox not in HIDDEN if mailbox is None else mailbox in ("*", one.mailbox))
            if set(labels) <= one.labels
        ]
        in_order = sorted(fits, key=itemgetter(0), reverse=not is_oldest_first)
        expected = [row[1:] for row in in_order][offset : offset + limit]
        rows = [
            (row.id, (set(row.labels), set(row.flags), row.mailboxes[0])) for row in page.results
        ]
        self._expect((asked, expected, len(fits)), (asked, rows, page.total))

    async def _look_at_thread(self) -> None:
        if message_id := self._any():
            one = self._known[message_id]
            thread = await self._ask(get_thread, thread_id=await self._thread_of(message_id))
            mates = [
                (other.date, key, other.mailbox in HIDDEN)
                for key, other in self._known.items()
                if other.thread == one.thread and other.inbox == one.inbox
            ]
            shown = [row for row in mates if not row[2]] or mates
            expected = [row[1] for row in sorted(shown)][-len(thread.messages) :]
            self._expect(
                (expected, len(shown)), ([m.id for m in thread.messages], thread.message_count)
            )

    async def _thread_of(self, message_id: str) -> str:
        app = self._chance.choice(self._apps)
        message = await app.services.store.message(message_id, EVERYTHING)
        assert message is not None
        return message.thread_id

    async def _count_labels(self) -> None:
        page = await self._ask(list_labels, limit=100)
        shown = [one for one in self._known.values() if one.mailbox not in HIDDEN]
        counts = Counter(label for one in shown for label in one.labels)
        self._expect(counts, Counter({row.name: row.message_count for row in page.results}))

    def _expect(self, expected: object, found: object) -> None:
        if expected != found:
            self.different.append({"expected": expected, "found": found})

    def _any(self) -> str | None:
        return self._chance.choice(list(self._known)) if self._known else None

    def _some(self) -> list[str]:
        return self._chance.sample(list(self._known), min(len(self._known), 5))


def _shown(one: ModelMessage) -> tuple[set[str], set[str], str]:
    return set(one.labels), set(one.flags), one.mailbox
