"""A cell behind nginx compared with an installation without one, each with its own PostgreSQL.

    python -m bench.cells [--messages N]

Requests go over HTTP: to the installation directly, to the cell through nginx with TLS. Each
measure alternates between the two, after a warm-up. It shows the medians of the times, the CPU time
of all processes of a side (server, database, nginx) per request, and the ratios; it ends with 1 if
the ratio of the CPU times is larger than wanted. On a busy machine the median shows how long each
process waits for a processor; look at the fastest tenth. An import writes into the databases of
both in this process, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from postroom.blobs.files import FileBlobs
from postroom.model.inbox import Inbox
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.services import Services
from postroom.store import postgres as store_on_postgres
from postroom.store.search.index import compact
from tests.mails import mail, new_inbox
from tests.servers import postgres
from tests.servers.cells import Cell, routed
from tests.servers.nginx import DOMAIN, Nginx

INBOXES, BATCH, IDLE_S, WARM_UP = 20, 50, 30.0, 20
AUDIT_KEY = "0b" * 32
LIMITS = {
    "search one inbox": 1.5, "read by id": 1.5, "deliver": 2.0, "search everything": 1.5,
    "import": 1.3, "idle CPU": 3.0,
}  # fmt: skip
WORDS = ("invoice", "meeting", "holiday", "contract", "garden", "ticket", "parcel", "report")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def new_mail(number: int) -> bytes:
    text = " ".join(WORDS[number * k % len(WORDS)] for k in range(1, 60)) + f" number {number}"
    subject = f"{WORDS[number % len(WORDS)]} {number}"
    return mail(subject, text, message_id=f"<{number}.bench@example.com>")


@dataclass(eq=False)
class Side:
    """An installation with its database, and nginx if there is one."""

    database: postgres.Postgres
    cell: Cell
    router: Nginx | None = None
    inboxes: list[Inbox] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    count: int = 0
    connection: http.client.HTTPConnection | None = None

    def next(self) -> int:
        self.count += 1
        return self.count

    def connect(self) -> None:
        if self.router is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.cell.port)
            return
        context = ssl.create_default_context(cafile=str(self.router.tls.cert))
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1", self.router.port, context=context
        )

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, object]:
        assert self.connection is not None
        kind = "application/json" if body is None else "message/rfc822"
        headers = {"Authorization": f"Bearer {self.cell.key}", "Content-Type": kind}
        if self.router is not None:
            headers["Host"] = DOMAIN
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status in (200, 201), content
        found: dict[str, object] = json.loads(content)
        return found

    def read(self) -> None:
        self.ask("GET", f"/v1/messages/{self.ids[self.next() * 7919 % len(self.ids)]}")

    def deliver(self) -> None:
        number = self.next()
        to = quote(self.inboxes[number % INBOXES].address)
        self.ask("POST", f"/v1/inbound?recipient={to}", new_mail(1_000_000 + number))

    def search_one(self) -> None:
        number = self.next()
        self._search(number, f"&inbox_id={self.inboxes[number % INBOXES].id}")

    def search_all(self) -> None:
        self._search(self.next(), "")

    def _search(self, number: int, which: str) -> None:
        found = self.ask("GET", f"/v1/search/messages?q={WORDS[number % len(WORDS)]}{which}")
        assert found["total"]

    def cpu_s(self) -> float:
        """The CPU time of all processes of this side."""
        first = (self.database.folder / "data" / "postmaster.pid").read_text().split()[0]
        roots = [int(first), self.cell.pid]
        if self.router is not None and self.router.process is not None:
            roots.append(self.router.process.pid)
        return sum(_cpu_s(pid) for root in roots for pid in _tree(root))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _cpu_s(pid: int) -> float:
    """The CPU time of a process, and of its children that have ended."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, values[11:15])) * _TICK_S


@dataclass(frozen=True, slots=True)
class Measure:
    """Median, fastest tenth and CPU time per request of both sides, in milliseconds."""

    times: tuple[float, float]
    fastest: tuple[float, float]
    cpu: tuple[float, float]


def measured(taken: list[list[float]], used: list[float]) -> Measure:
    one, other = ((statistics.median(some), statistics.quantiles(some, n=10)[0]) for some in taken)
    return Measure((one[0], other[0]), (one[1], other[1]), (used[0], used[1]))


def compare(sides: list[Side], work: Callable[[Side], None], times: int) -> Measure:
    taken: list[list[float]] = [[], []]
    for _ in range(WARM_UP):
        for side in sides:
            work(side)
    before = [side.cpu_s() for side in sides]
    order = [*enumerate(sides)]
    for turn in range(times):
        for which, side in order if turn % 2 else order[::-1]:
            started = time.perf_counter()
            work(side)
            taken[which].append((time.perf_counter() - started) * 1000)
    used = [(side.cpu_s() - b) * 1000 / times for side, b in zip(sides, before, strict=True)]
    return measured(taken, used)


async def fill(sides: list[Side], folder: Path, messages: int) -> Measure:
    """Import the same mail into both, alternating by batch."""
    opened: list[Services] = []
    for side in sides:
        url = side.cell.env["POSTROOM_DATABASE_URL"]
        store = await store_on_postgres.open_store(url, folder, bytes.fromhex(AUDIT_KEY))
        blobs = FileBlobs(side.cell.data / "blobs")
        opened.append(Services(store=store, blobs=blobs, domains=(side.cell.domain,)))
        side.inboxes = [await new_inbox(opened[-1], f"box{n}") for n in range(INBOXES)]
    taken: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    for batch in range(messages // BATCH):
        order = [*enumerate(zip(sides, opened, strict=True))]
        for which, (side, services) in order if batch % 2 else order[::-1]:
            inbox = side.inboxes[batch % INBOXES]
            raws = [new_mail(batch * BATCH + n) for n in range(BATCH)]
            began, cpu_began = time.perf_counter(), time.process_time()
            added = await receive_many(services, [Arrival(raw, inbox.id, "Inbox") for raw in raws])
            taken[which].append((time.perf_counter() - began) * 1000)
            cpu[which].append((time.process_time() - cpu_began) * 1000)
            side.ids += [one.message_id for one in added]
    for services in opened:
        while await compact(services.store.engine, now=lambda: time.time() + 3_600):
            pass
        await services.store.close()
    return measured(taken, [statistics.median(side) for side in cpu])


def idle(sides: list[Side]) -> Measure:
    """The CPU time of each side without requests, in milliseconds per second."""
    time.sleep(5)
    before = [side.cpu_s() for side in sides]
    time.sleep(IDLE_S)
    used = [(side.cpu_s() - b) * 1000 / IDLE_S for side, b in zip(sides, before, strict=True)]
    return measured([[used[0]] * 2, [used[1]] * 2], used)


def run(messages: int) -> dict[str, Measure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = []
        for name in ("a", "b"):
            database = stack.enter_context(postgres.node(is_durable=True))
            url = database.new_database(is_empty=True)
            cell = Cell(folder, name, url, POSTROOM_AUDIT_KEY=AUDIT_KEY)
            cell.data.mkdir(mode=0o700)
            stack.callback(cell.close)
            sides.append(Side(database, cell))
        found = {"import": asyncio.run(fill(sides, folder, messages))}
        for side in sides:
            side.cell.start()
        sides[1].router = stack.enter_context(routed(folder / "router", [sides[1].cell]))
        for side in sides:
            side.connect()
        found["search one inbox"] = compare(sides, Side.search_one, 400)
        found["read by id"] = compare(sides, Side.read, 1_000)
        found["deliver"] = compare(sides, Side.deliver, 200)
        found["search everything"] = compare(sides, Side.search_all, 400)
        found["idle CPU"] = idle(sides)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000)
    found = run(parser.parse_args().messages)
    print("| measure | median ms | ratio | fastest tenth ms | ratio | CPU ms | ratio | wanted |")
    print("|---|---|---|---|---|---|---|---|")
    for name, limit in LIMITS.items():
        one = found[name]
        told = (f"{a:.2f}, {b:.2f} | {b / a:.2f}" for a, b in (one.times, one.fastest, one.cpu))
        print(f"| {name} | {' | '.join(told)} | {limit} |")
    return 0 if all(m.cpu[1] / m.cpu[0] <= LIMITS[n] for n, m in found.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
