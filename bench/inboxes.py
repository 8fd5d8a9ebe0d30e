"""The cost of one inbox among few and among many: `python -m bench.inboxes [--many 20000]`.

Creates two stores with three messages in each inbox, one with 200 inboxes, and runs the same
operations about one inbox at a time, with a key that sees only that inbox. Times are CPU times of
the whole process, medians over inboxes. Fails if an operation takes more than twice as long among
many.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.search.corpus import Corpus
from bench.search.loading import new_message
from bench.search.measuring import calibration_ms, table
from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import Settings
from postroom.model.inbox import Inbox
from postroom.model.key import Caller
from postroom.model.view import NOTHING, only
from postroom.operations.inboxes import get_inbox, list_inboxes
from postroom.operations.mail.message_changes import list_labels, list_mailboxes
from postroom.operations.mail.messages import list_messages, search_messages
from postroom.operations.mail.threads import list_threads
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.maintenance import compact_all

FEW, EACH, TIMES = 200, 3, 40
AT_ONCE = 500
MAX_RATIO = 2.0
Query = Callable[[App, int], Awaitable[Any]]


async def fill(app: App, inboxes: int) -> None:
    """Add inboxes with a few messages each, and index them."""
    store, now, corpus = app.services.store, datetime.now(UTC), Corpus()
    for first in range(0, inboxes, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, inboxes))
        await asyncio.gather(
            *(
                store.add_inbox(
                    Inbox(f"inb_{n}", f"agent{n}@postroom.localhost", "", None, now),
                    client_id=None,
                    payload=b"",
                )
                for n in numbers
            )
        )
    for first in range(0, inboxes * EACH, AT_ONCE):
        mails = corpus.mails(first, min(first + AT_ONCE, inboxes * EACH))
        messages = [
            replace(new_message(mail), inbox_id=f"inb_{mail.number % inboxes}") for mail in mails
        ]
        await store.add_messages(messages)
        await compact_all(app.services)
        if first % 10_000 == 0:
            print(f"  {first} messages", file=sys.stderr, flush=True)


def asking(operation: Any, **arguments: object) -> Query:
    """Call an operation about one inbox, with a key for that inbox alone."""

    async def ask(app: App, inbox: int) -> Any:
        own = only(f"inb_{inbox}")
        caller = Caller(key_id=f"key_{inbox}", inboxes=own, accounts=NOTHING, namespaces=NOTHING)
        request = {
            name: f"inb_{inbox}" if value is INBOX else value for name, value in arguments.items()
        }
        return await call(app.context(caller), operation, request)

    return ask


async def deliver(app: App, inbox: int) -> Any:
    raw = (
        f"From: Ada <ada@example.com>\nTo: agent{inbox}@postroom.localhost\nSubject: News\n"
        f"Message-ID: <{time.monotonic_ns()}@example.com>\n\nAll is well.\n"
    )
    return await receive(app.services, Arrival(raw.encode(), f"inb_{inbox}"))


INBOX = object()
STEPS: dict[str, Query] = {
    "list messages": asking(list_messages, inbox_id=INBOX),
    "search messages": asking(search_messages, q="the"),
    "list threads": asking(list_threads, inbox_id=INBOX),
    "list mailboxes": asking(list_mailboxes, inbox_id=INBOX),
    "list labels": asking(list_labels),
    "list inboxes": asking(list_inboxes),
    "get an inbox": asking(get_inbox, inbox_id=INBOX),
    "deliver a message": deliver,
    "search after a delivery": asking(search_messages, q="well"),
}


async def measure(app: App, inboxes: int, ask: Query) -> float:
    """Milliseconds of CPU, the median over inboxes that are spread evenly."""
    await ask(app, inboxes - 1)  # loads everything that is loaded on first use
    took = []
    for turn in range(TIMES):
        inbox = turn * inboxes // TIMES
        started = time.process_time()
        await ask(app, inbox)
        took.append((time.process_time() - started) * 1e3)
    return median(took)


async def run(folder: Path, many: int) -> int:
    async with AsyncExitStack() as stack:
        apps = {}
        for count in (FEW, many):
            apps[count] = await stack.enter_async_context(
                open_app(Settings(data_dir=folder / str(count)))
            )
            await fill(apps[count], count)
        rows: list[list[object]] = [["CPU ms", f"{FEW} inboxes", f"{many} inboxes", "ratio"]]
        slow = 0
        for name, ask in STEPS.items():
            few_ms, many_ms = [await measure(app, count, ask) for count, app in apps.items()]
            rows.append([name, f"{few_ms:.2f}", f"{many_ms:.2f}", f"{many_ms / few_ms:.2f}"])
            slow += many_ms > MAX_RATIO * few_ms
    table(rows)
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.inboxes", description=__doc__)
    parser.add_argument("--many", type=int, default=20_000, help="inboxes of the second store")
    many: int = parser.parse_args().many
    print(f"calibration loop: {calibration_ms():.0f} ms\n")
    with tempfile.TemporaryDirectory() as folder:
        return 1 if asyncio.run(run(Path(folder), many)) else 0


if __name__ == "__main__":
    sys.exit(main())
