"""A cell behind nginx compared with an installation without one, each with its own PostgreSQL.

    python -m bench.cells [--messages N | --idle | --arrivals]

Requests go over HTTP: to the installation directly, to the cell through nginx with TLS. Each
measure alternates between the two, after a warm-up. It shows the medians of the times, the CPU time
of all processes of a side (server, database, nginx) per request, and the ratios; it ends with 1 if
the ratio of the CPU times is larger than wanted. On a busy machine the median shows how long each
process waits for a processor; look at the fastest tenth. An import writes into the databases of
both in this process, by turns.

With `--idle`, it starts 1, 4 and 8 cells that nobody uses, and shows what they take of one machine,
once with a PostgreSQL server for each cell and once with one server for all: memory (PSS, which
divides what processes share among them), connections to PostgreSQL, and CPU.

With `--arrivals`, mail comes over SMTP on 8 connections, by turns into an installation on SQLite
and into a cell with its own PostgreSQL, each new and empty. It shows mails per second and CPU per
mail.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from postroom.blobs.files import FileBlobs
from postroom.model.inbox import Inbox
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.services import Services
from postroom.store import postgres as store_on_postgres
from postroom.store.search.index import compact
from tests.bare_services import NO_PROVIDERS
from tests.mails import mail, new_inbox
from tests.servers import postgres
from tests.servers.cells import Cell, routed
from tests.servers.nginx import DOMAIN, Nginx
from tests.servers.postroom import command

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
        roots = [_postmaster(self.database), self.cell.pid]
        if self.router is not None and self.router.process is not None:
            roots.append(self.router.process.pid)
        return _total_cpu_s(roots)


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
        opened.append(
            Services(**NO_PROVIDERS, store=store, blobs=blobs, domains=(side.cell.domain,))
        )
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


COUNTS = (1, 4, 8)
SETTLE_S = 10.0
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


@dataclass(frozen=True, slots=True)
class Idle:
    """What cells take that nobody uses."""

    cells: int
    postroom_mb: float
    database_mb: float
    connections: int
    postroom_cpu: float
    database_cpu: float
    """Milliseconds of CPU a second."""

    def row(self, one: Idle) -> str:
        memory, of_one = (i.postroom_mb + i.database_mb for i in (self, one))
        cpu, cpu_of_one = (i.postroom_cpu + i.database_cpu for i in (self, one))
        return (
            f"| {self.cells} | {self.postroom_mb:.0f} | {self.database_mb:.0f} "
            f"| {memory / of_one:.1f} | {self.connections} "
            f"| {self.connections / one.connections:.1f} "
            f"| {self.postroom_cpu:.1f} | {self.database_cpu:.1f} | {cpu / cpu_of_one:.1f} |"
        )


def _pss_mb(roots: list[int]) -> float:
    return sum(_pss_kb(pid) for root in roots for pid in _tree(root)) / 1_024


def _pss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def _postmaster(database: postgres.Postgres) -> int:
    return int((database.folder / "data" / "postmaster.pid").read_text().split()[0])


def _start_idle(stack: ExitStack, cell: Cell) -> int:
    """Start a cell as an operator does, and use it once, so that it has what it needs open."""
    log = stack.enter_context((cell.data.parent / f"{cell.name}.log").open("wb"))
    process = subprocess.Popen(command("serve"), env=cell.env, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    while _status(cell) != 200:
        assert process.poll() is None, f"cell {cell.name} ended"
        time.sleep(0.1)
    cell.ask("POST", "/v1/inboxes", {"username": "bo"})
    to = quote(f"bo@{cell.env['POSTROOM_DOMAIN']}")
    cell.status("POST", f"/v1/inbound?recipient={to}", new_mail(1))
    cell.ask("GET", "/v1/search/messages?q=invoice")
    return process.pid


def _status(cell: Cell) -> int:
    try:
        return cell.status("GET", "/readyz")
    except OSError:
        return 0


def idle_cells(*, is_shared: bool) -> list[Idle]:
    """Start cells up to each count; measure them while they are idle."""
    found, databases, servers = list[Idle](), list[postgres.Postgres](), list[int]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for count in COUNTS:
            while len(servers) < count:
                if not (is_shared and databases):
                    databases.append(stack.enter_context(postgres.node(is_durable=True)))
                url = databases[-1].new_database(is_empty=True)
                servers.append(_start_idle(stack, Cell(folder, f"c{len(servers)}", url)))
            found.append(_measured_idle(servers, databases))
    return found


def _measured_idle(servers: list[int], databases: list[postgres.Postgres]) -> Idle:
    roots = [_postmaster(one) for one in databases]
    time.sleep(SETTLE_S)
    before = [_total_cpu_s(servers), _total_cpu_s(roots)]
    time.sleep(IDLE_S)
    cpu = [
        (_total_cpu_s(pids) - b) * 1000 / IDLE_S
        for pids, b in zip((servers, roots), before, strict=True)
    ]
    connections = 0
    for one in databases:
        with psycopg.connect(one.url("postgres")) as admin:
            row = admin.execute(CONNECTIONS).fetchone()
            connections += int(row[0]) - 1 if row else 0
    return Idle(len(servers), _pss_mb(servers), _pss_mb(roots), connections, cpu[0], cpu[1])


def _total_cpu_s(roots: list[int]) -> float:
    return sum(_cpu_s(pid) for root in roots for pid in _tree(root))


def show_idle() -> int:
    for is_shared, title in ((False, "a server for each cell"), (True, "one server for all")):
        found = idle_cells(is_shared=is_shared)
        print(f"\nPostgreSQL: {title}\n")
        print(
            "| cells | Postroom MB | PostgreSQL MB | ratio | connections | ratio "
            "| CPU ms/s of Postroom | of PostgreSQL | ratio |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for one in found:
            print(one.row(found[0]), flush=True)
    return 0


ARRIVALS, ROUNDS, KILOBYTES = 500, 3, 8


@dataclass(frozen=True, slots=True)
class Arrived:
    """What mail over SMTP took: a second, and milliseconds of CPU per mail."""

    per_s: float
    postroom_ms: float
    database_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.postroom_ms + self.database_ms


def arrivals(*, on_postgres: bool) -> Arrived:
    """Deliver mail into a new installation."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        extra, roots = {"POSTROOM_DOMAIN": "postroom.localhost"}, list[int]()
        if on_postgres:
            database = stack.enter_context(postgres.node(is_durable=True))
            cell = Cell(folder, "a", database.new_database(is_empty=True), **extra)
            roots.append(_postmaster(database))
        else:
            cell = Cell(folder, "a", "", **extra)
        pid = _start_idle(stack, cell)
        before = [_total_cpu_s([pid]), _total_cpu_s(roots)]
        words = ["-m", "bench.post", "--clients", str(cell.smtp), str(ARRIVALS), str(KILOBYTES)]
        done = subprocess.run([sys.executable, *words], check=True, capture_output=True)
        cpu = [
            (_total_cpu_s(pids) - b) * 1000 / ARRIVALS
            for pids, b in zip(([pid], roots), before, strict=True)
        ]
    return Arrived(ARRIVALS / json.loads(done.stdout)["seconds"], *cpu)


def show_arrivals() -> int:
    print("| mails/s SQLite, PostgreSQL | ratio | CPU ms/mail SQLite, PostgreSQL | ratio |")
    print("|---|---|---|---|")
    for _ in range(ROUNDS):
        one, other = arrivals(on_postgres=False), arrivals(on_postgres=True)
        print(
            f"| {one.per_s:.0f}, {other.per_s:.0f} | {other.per_s / one.per_s:.2f} "
            f"| {one.cpu_ms:.1f}, {other.postroom_ms:.1f} + {other.database_ms:.1f} "
            f"| {other.cpu_ms / one.cpu_ms:.2f} |",
            flush=True,
        )
    return 0


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
    parser.add_argument("--idle", action="store_true", help="only what idle cells take")
    parser.add_argument("--arrivals", action="store_true", help="only mail in over SMTP")
    options = parser.parse_args()
    if options.idle:
        return show_idle()
    if options.arrivals:
        return show_arrivals()
    found = run(options.messages)
    print("| measure | median ms | ratio | fastest tenth ms | ratio | CPU ms | ratio | wanted |")
    print("|---|---|---|---|---|---|---|---|")
    for name, limit in LIMITS.items():
        one = found[name]
        told = (f"{a:.2f}, {b:.2f} | {b / a:.2f}" for a, b in (one.times, one.fastest, one.cpu))
        print(f"| {name} | {' | '.join(told)} | {limit} |")
    return 0 if all(m.cpu[1] / m.cpu[0] <= LIMITS[n] for n, m in found.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
