"""The cost of the activity counts: `get_activity` and counting.

    python -m bench.activity [--messages 100000] [--inboxes 1000]

The store has the counts of this much mail, spread over the inboxes and 90 days. The bars are 20 ms
for `get_activity` of 30 days, and 0.05 ms of CPU for each mail that is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.health import CallCount
from postroom.model.key import OWNER, Caller
from postroom.model.view import only
from postroom.operations.health import get_activity
from postroom.operations.inboxes import create_inbox
from postroom.store.sql.events import ALL_INBOXES, COUNT_MAIL, count_mail
from postroom.store.transaction import Transaction

ACTIVITY_MS, COUNT_MS = 20.0, 0.05
DAYS, ROUNDS, COUNTED = 90, 20, 5_000
WAYS = (("received", ""), ("sent", "mcp"), ("sent", "web"), ("rules", ""))
TOOLS = [f"tool_{number}" for number in range(40)]


async def fill(app: App, messages: int, inboxes: int) -> int:
    """Write the counts of this much mail; returns the number of rows."""
    source, today = Random(7), app.services.clock().date()
    last = (today - date(1970, 1, 1)).days
    found = Counter(
        (last - source.randrange(DAYS), 1 + source.randrange(inboxes), *source.choice(WAYS))
        for _ in range(messages)
    )
    rows = [
        {"day": day, "inbox": place, "name": name, "via": via, "count": count}
        for (day, inbox, name, via), count in found.items()
        for place in (inbox, ALL_INBOXES)
    ]
    calls = [
        CallCount(today - timedelta(days=day), f"key_{key}", "mcp", tool, 9, 1)
        for day in range(DAYS)
        for key in range(20)
        for tool in TOOLS
    ]
    await app.services.store.engine.write(lambda tx: tx.many(COUNT_MAIL, rows))
    await app.services.store.count_calls(calls)
    return len(rows) + len(calls)


async def activity_ms(app: App, days: int, caller: Caller = OWNER) -> float:
    taken = []
    for _ in range(ROUNDS):
        started = perf_counter()
        await call(app.context(caller), get_activity, {"days": days})
        taken.append((perf_counter() - started) * 1_000)
    return median(taken)


async def count_ms(app: App) -> float:
    """The CPU time of counting one mail, in a transaction with many others."""
    now = app.services.clock()
    started = process_time()

    def count(tx: Transaction) -> None:
        for number in range(COUNTED):
            count_mail(tx, "received", number % 50, now)

    await app.services.store.engine.write(count)
    return (process_time() - started) * 1_000 / COUNTED


async def main(messages: int, inboxes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        values = {"POSTROOM_DATA_DIR": str(Path(folder) / "data")}
        async with open_app(read_settings(values).settings) as app:
            rows = await fill(app, messages, inboxes)
            for days in (14, 30, 90):
                taken = await activity_ms(app, days)
                bar = f" (bar {ACTIVITY_MS:.0f})" if days == 30 else ""
                print(f"get_activity of {days} days, {rows} rows: {taken:.1f} ms{bar}")
            inbox = await call(app.context(OWNER), create_inbox, {"username": "me"})
            limited = replace(OWNER, inboxes=only(inbox.id))
            print(f"by a limited key, 90 days: {await activity_ms(app, 90, limited):.1f} ms")
            print(f"counting a mail: {await count_ms(app):.4f} ms of CPU (bar {COUNT_MS})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--inboxes", type=int, default=1_000)
    asyncio.run(main(**vars(parser.parse_args())))
