"""The cost of the gate: CPU time of a send with the policy `risky`, compared with `never`.

    python -m bench.approval [--sends 300] [--contacts 20000]

The sends alternate, so that other load affects both. The clock runs ahead, so that no rate is
unusual and every mail is sent. The bar is 0.3 ms of CPU per send.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from time import process_time

from postroom.app import App, open_app
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.inboxes import create_inbox
from postroom.operations.keys import create_key
from postroom.operations.outgoing.sending import send_message

BAR_MS = 0.3


async def key_with_policy(app: App, approval: str) -> RequestContext:
    owner = app.context(OWNER)
    arguments = {"name": approval, "scopes": ["read", "write", "send"], "approval": approval}
    key = await call(owner, create_key, arguments)
    return app.context(await app.authenticate(key.key))


async def cost_ms(ctx: RequestContext, number: int) -> float:
    mail = {"to": ["p1@example.com"], "subject": f"Mail {number}", "body_text": "Good morning."}
    started = process_time()
    await call(ctx, send_message, mail)
    return (process_time() - started) * 1_000


async def add_contacts(app: App, number: int) -> None:
    rows = [
        {"inbox": 1, "address": f"p{n}@example.com", "mails": 1, "known": 1} for n in range(number)
    ]
    sql = "INSERT INTO contacts VALUES (:inbox, :address, :mails, :known)"
    await app.services.store.engine.write(lambda tx: tx.many(sql, rows))


async def main(sends: int, contacts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        values = {"POSTROOM_DATA_DIR": str(Path(folder) / "data"),
                  "POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}  # fmt: skip
        async with open_app(read_settings(values).settings) as opened:
            limits = replace(opened.services.limits, sends_per_hour=10**6)
            times = (datetime.now(UTC) + n * timedelta(minutes=1) for n in count())
            services = replace(opened.services, limits=limits, clock=times.__next__)
            app = replace(opened, services=services)
            await call(app.context(OWNER), create_inbox, {"username": "me"})
            await add_contacts(app, contacts)
            callers = {name: await key_with_policy(app, name) for name in ("never", "risky")}
            found: dict[str, list[float]] = {name: [] for name in callers}
            for number in range(sends):
                for name, ctx in callers.items():
                    found[name].append(await cost_ms(ctx, number))
    never, risky = (median(found[name][sends // 10 :]) for name in ("never", "risky"))
    verdict = "good" if risky - never <= BAR_MS else "too much"
    print(f"never {never:.2f} ms, risky {risky:.2f} ms of CPU per send, ratio {risky / never:.2f}")
    print(f"the gate costs {risky - never:.2f} ms (bar {BAR_MS}): {verdict}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sends", type=int, default=300)
    parser.add_argument("--contacts", type=int, default=20_000)
    asked = parser.parse_args()
    asyncio.run(main(asked.sends, asked.contacts))
