"""Whoever follows events by their number sees each of them, whichever worker it is on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from postroom.blobs.files import FileBlobs
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store import postgres
from tests.mails import deliver, mail, new_inbox
from tests.servers.citus import SLOW_COMMITS, Cluster

WRITERS, MAILS = 8, 10
NUMBERS = "SELECT number FROM events ORDER BY number"


async def test_a_reader_beside_eight_writers_misses_nothing(
    cluster: Cluster, cluster_url: str, services: Services, tmp_path: Path
) -> None:
    # One worker commits its part of a batch 0.1 s after the other.
    cluster.workers[0].set(*SLOW_COMMITS)
    stores = [await postgres.open_store(cluster_url, tmp_path) for _ in range(2)]
    done = asyncio.Event()
    inboxes = [await new_inbox(services, f"w{n}") for n in range(WRITERS)]

    async def write(n: int) -> None:
        writing = Services(store=stores[n % 2], blobs=FileBlobs(tmp_path / "blobs"))
        for k in range(MAILS):
            await deliver(writing, inboxes[n], mail(f"{n} {k}", message_id=f"<{n}.{k}@x>"))

    async def follow() -> list[int]:
        seen = [0]
        while True:
            is_last = done.is_set()
            events = await services.store.events_after(seen[-1], limit=50, visible=EVERYTHING)
            seen += [event.number for event in events]
            if is_last and not events:
                return seen[1:]

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write(n) for n in range(WRITERS)))
    done.set()
    seen = await following
    stored = await services.store.engine.read(lambda tx: tx.all(NUMBERS))
    cluster.workers[0].set("commit_delay = 0")
    for store in stores:
        await store.close()

    assert WRITERS * MAILS == len(seen)
    assert [row[0] for row in stored] == seen
