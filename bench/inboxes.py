"""The cost of one inbox among few and among many: `python -m bench.inboxes [--many 20000]`.

Creates two stores with three messages in each inbox, one with 200 inboxes, and runs the same
operations about one inbox at a time, with a key that sees only that inbox. Times are CPU times of
the whole process, medians over inboxes. Fails if an operation takes more than twice as long among
many.

`--owned 5000` measures instead a delivery where as many inboxes have a rule or a webhook each, on
SQLite and PostgreSQL, whose CPU time is added. Fails if one takes more than 1.5 times as long as
without them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.search.corpus import Corpus
from bench.search.loading import new_message
from bench.search.measuring import calibration_ms, table
from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import Settings
from postroom.model.event import Webhook
from postroom.model.inbox import Inbox
from postroom.model.key import Caller
from postroom.model.rule import Rule
from postroom.model.view import NOTHING, only
from postroom.operations.inboxes import get_inbox, list_inboxes
from postroom.operations.mail.message_changes import list_labels, list_mailboxes
from postroom.operations.mail.messages import list_messages, search_messages
from postroom.operations.mail.threads import list_threads
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.maintenance import compact_all
from postroom.store.sql.rules import add_rule
from postroom.store.sql.statements import insert, stored_view
from postroom.store.sql.webhooks import add_webhook
from postroom.store.transaction import Transaction
from tests.servers import postgres

FEW, EACH, TIMES, DELIVERIES = 200, 3, 40, 200
AT_ONCE = 500
MAX_RATIO, MAX_OWNED_RATIO = 2.0, 1.5
Query = Callable[[App, int], Awaitable[Any]]


async def add_inboxes(app: App, inboxes: int) -> None:
    store, now = app.services.store, datetime.now(UTC)
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


async def fill(app: App, inboxes: int) -> None:
    """Add inboxes with a few messages each, and index them."""
    await add_inboxes(app, inboxes)
    store, corpus = app.services.store, Corpus()
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


RULE = """
name: Orders
when:
  - from: {equals: shop@example.com}
then: [{apply_label: Orders}]
"""


def with_rules(tx: Transaction, numbers: range) -> None:
    now = datetime.now(UTC)
    for n in numbers:
        row = {"id": f"rul_{n}", "name": "Orders", "description": "", "yaml": RULE}
        row |= {"enabled": 1, "position": n + 1, "inboxes": stored_view(only(f"inb_{n}"))}
        insert(tx, "rules", **row, authority="owner", created_at=0, updated_at=0)
    own = only(f"inb_{numbers[0]}")
    add_rule(tx, Rule(f"rul_new_{numbers[0]}", "Orders", "", True, 0, RULE, now, now, own), own)


def with_webhooks(tx: Transaction, numbers: range) -> None:
    url, types, now = "https://example.com/hook", ("message.sent",), datetime.now(UTC)
    for n in numbers:
        add_webhook(tx, Webhook(f"whk_{n}", url, types, only(f"inb_{n}"), now, secret="s"))


def cpu_ms() -> float:
    """CPU time of this process and of its child processes, which are PostgreSQL."""
    pids, tree = [os.getpid()], defaultdict[str, list[str]](list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            tree[stat.read_text().rpartition(")")[2].split()[1]].append(stat.parent.name)
    for pid in pids:
        pids += map(int, tree[str(pid)])
    others = (Path(f"/proc/{pid}/schedstat") for pid in pids[1:])
    return time.process_time() * 1e3 + sum(int(p.read_text().split()[0]) for p in others) / 1e6


async def measure_deliveries(app: App, inboxes: int) -> float:
    """Milliseconds of CPU of a delivery, the mean over inboxes that are spread evenly."""
    await deliver(app, inboxes - 1)
    started = cpu_ms()
    for turn in range(DELIVERIES):
        await deliver(app, turn * inboxes // DELIVERIES)
    return (cpu_ms() - started) / DELIVERIES


async def run_owned(folder: Path, many: int) -> int:
    rows: list[list[object]] = [["a delivery, CPU ms", "none", "100 inboxes", f"{many}", "ratio"]]
    slow = 0
    with postgres.running() as server:
        for name, add in (("rules", with_rules), ("webhooks", with_webhooks)):
            for database, url in (("SQLite", None), ("PostgreSQL", server.new_database())):
                data = folder / f"{name}-{database}"
                async with open_app(Settings(data_dir=data, database_url=url)) as app:
                    await add_inboxes(app, many)
                    took = [await measure_deliveries(app, many)]
                    for numbers in (range(100), range(100, many)):
                        await app.services.store.engine.write(partial(add, numbers=numbers))
                        took.append(await measure_deliveries(app, many))
                ratio = took[-1] / took[0]
                slow += ratio > MAX_OWNED_RATIO
                rows.append([f"{name}, {database}", *(f"{ms:.2f}" for ms in took), f"{ratio:.2f}"])
    table(rows)
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.inboxes", description=__doc__)
    parser.add_argument("--many", type=int, default=20_000, help="inboxes of the second store")
    parser.add_argument("--owned", type=int, help="inboxes with a rule or a webhook of their own")
    arguments = parser.parse_args()
    print(f"calibration loop: {calibration_ms():.0f} ms\n")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.owned:
            return 1 if asyncio.run(run_owned(Path(folder), arguments.owned)) else 0
        return 1 if asyncio.run(run(Path(folder), arguments.many)) else 0


if __name__ == "__main__":
    sys.exit(main())
