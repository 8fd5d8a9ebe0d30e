"""A Citus cluster beside one plain PostgreSQL, both on this machine, in one run.

    CITUS_PROGRAMS=folder python -m bench.cluster [--messages N] [--partitions P] [--shards S]

Each measure alternates between the two, after a warm-up; the ratio is that of the medians. On one
machine a cluster has no more processors than a server alone: the ratios are what distribution
costs, not what more machines bring. `make bench-cluster CITUS_SOURCE=…` builds Citus first.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from postroom.blobs.files import FileBlobs
from postroom.model.inbox import Inbox
from postroom.model.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.services import Services
from postroom.store import postgres as store_on_postgres
from postroom.store.postgres import citus as placement
from postroom.store.search.index import compact
from tests.faults.drilled import server
from tests.mails import deliver, mail, new_inbox
from tests.servers import citus, postgres
from tests.servers.postgres import Postgres

INBOXES = 20
BATCH = 50
IDLE_S = 15.0
AUDIT_KEY = "0b" * 32
LIMITS = {
    "search one inbox": 1.5, "read by id": 1.5, "deliver": 2.0, "search everything": 1.5,
    "import": 1.3, "idle CPU": 3.0,
}  # fmt: skip
WORDS = ("invoice", "meeting", "holiday", "contract", "garden", "ticket", "parcel", "report")
RELATIONS = """
    SELECT count(*) FROM pg_class
     WHERE relkind IN ('r', 'p', 'i', 'I') AND relnamespace = 'public'::regnamespace
"""


@dataclass
class Side:
    """One of the two databases, with the same mail in it."""

    nodes: tuple[Postgres, ...]
    url: str
    services: Services
    inboxes: list[Inbox] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def fill(self, messages: int) -> None:
        self.inboxes = [await new_inbox(self.services, f"box{n}") for n in range(INBOXES)]
        while len(self.ids) < max(messages, INBOXES * BATCH):
            await self.load()
        while await compact(self.services.store.engine, now=lambda: time.time() + 3_600):
            pass

    async def load(self) -> None:
        """Store a batch in one transaction, as an import does."""
        inbox = self.inboxes[len(self.ids) // BATCH % INBOXES]
        arrivals = [Arrival(self._mail(), inbox.id, "Inbox") for _ in range(BATCH)]
        added = await receive_many(self.services, arrivals)
        self.ids += [one.message_id for one in added]

    async def deliver(self) -> None:
        await deliver(self.services, self.inboxes[next(self.numbers) % INBOXES], self._mail())

    async def read(self) -> None:
        wanted = self.ids[next(self.numbers) * 7919 % len(self.ids)]
        assert await self.services.store.message(wanted, EVERYTHING)

    async def search_one(self) -> None:
        n = next(self.numbers)
        await self._search(n, self.inboxes[n % INBOXES].id)

    async def search_all(self) -> None:
        await self._search(next(self.numbers), None)

    async def _search(self, n: int, inbox_id: str | None) -> None:
        query = MessageQuery(visible=EVERYTHING, inbox_id=inbox_id, q=WORDS[n % len(WORDS)])
        assert (await self.services.store.messages(query)).total

    def _mail(self) -> bytes:
        n = next(self.numbers)
        text = " ".join(WORDS[n * k % len(WORDS)] for k in range(1, 60)) + f" number {n}"
        return mail(f"{WORDS[n % len(WORDS)]} {n}", text, message_id=f"<{n}.bench@example.com>")

    def relations(self) -> int:
        """Tables and indexes on all nodes."""
        found = 0
        for node in self.nodes:
            with psycopg.connect(node.url(self.url.rpartition("/")[2])) as connection:
                connection.execute("SET citus.override_table_visibility = off")
                found += (connection.execute(RELATIONS).fetchone() or (0,))[0]
        return found

    def idle_cpu_s(self) -> float:
        """The CPU time of the database while a server without work is connected to it."""
        with server("none", 1, POSTROOM_DATABASE_URL=self.url, POSTROOM_AUDIT_KEY=AUDIT_KEY):
            time.sleep(5)
            before = sum(map(_cpu_s, self.nodes))
            time.sleep(IDLE_S)
            return sum(map(_cpu_s, self.nodes)) - before


def _cpu_s(node: Postgres) -> float:
    """The CPU time of a server and its processes, also of those that have ended."""
    parent = (node.folder / "data" / "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ticks = 0
    for pid in (parent, *children):
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, values[11:15] if pid == parent else values[11:13]))
    return ticks / 100


async def _compare(
    plain: Side, cluster: Side, work: Callable[[Side], Awaitable[None]], times: int
) -> tuple[float, float]:
    """The median time of some work on both, in milliseconds."""
    taken: dict[int, list[float]] = {0: [], 1: []}
    for n in range(times + 5):
        for which, side in enumerate((plain, cluster)):
            started = time.perf_counter()
            await work(side)
            if n >= 5:
                taken[which].append((time.perf_counter() - started) * 1000)
    return statistics.median(taken[0]), statistics.median(taken[1])


async def _measure(plain: Side, cluster: Side, messages: int) -> dict[str, tuple[float, float]]:
    for side in (plain, cluster):
        await side.fill(messages)
    return {
        "search one inbox": await _compare(plain, cluster, Side.search_one, 60),
        "read by id": await _compare(plain, cluster, Side.read, 200),
        "deliver": await _compare(plain, cluster, Side.deliver, 100),
        "search everything": await _compare(plain, cluster, Side.search_all, 40),
        "import": await _compare(plain, cluster, Side.load, 15),
    }


async def _run(messages: int, partitions: int, shards: int) -> None:
    placement.PARTITIONS, placement.SHARDS = partitions, shards
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        alone = stack.enter_context(postgres.node(is_durable=True))
        nodes = stack.enter_context(citus.running(is_durable=True))
        with psycopg.connect(alone.url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE bench")
        sides = []
        for servers, url in (((alone,), alone.url("bench")), (nodes.nodes, nodes.new_database())):
            store = await store_on_postgres.open_store(url, folder, bytes.fromhex(AUDIT_KEY))
            blobs = FileBlobs(folder / f"blobs{len(sides)}")
            sides.append(Side(servers, url, Services(store=store, blobs=blobs)))
        plain, cluster = sides
        found = await _measure(plain, cluster, messages)
        for side in sides:
            await side.services.store.close()
        found["idle CPU"] = (plain.idle_cpu_s() * 1000, cluster.idle_cpu_s() * 1000)
        print(f"{messages} messages, {partitions} x {shards}, "
              f"relations: {plain.relations()} and {cluster.relations()}")  # fmt: skip
    for name, (one, other) in found.items():
        ratio, limit = other / one, LIMITS[name]
        told = "" if ratio <= limit else f"  (wanted: {limit})"
        print(f"{name:20}{one:10.1f} ms{other:10.1f} ms{ratio:8.2f}{told}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=placement.PARTITIONS)
    parser.add_argument("--shards", type=int, default=placement.SHARDS)
    given = parser.parse_args()
    asyncio.run(_run(given.messages, given.partitions, given.shards))
    return 0


if __name__ == "__main__":
    sys.exit(main())
