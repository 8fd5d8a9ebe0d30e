"""Drills under load: eight processes on one SQLite file; four on PostgreSQL, killed or cut off.

    python -m tests.faults.database [MINUTES] [SCALE OF THE OTHER DRILLS]

prints the result, and exits with 1 if anything was lost, duplicated, corrupted, wrong, late, or
refused without an explanation.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg

from tests.faults.drills import table
from tests.faults.importing import killed_while_importing
from tests.faults.load_clients import LoadClients, RulePlanner
from tests.faults.receiving import killed_while_receiving
from tests.faults.sending import killed_while_sending, one_key, strange_relays
from tests.faults.server_under_test import Outcome, ServerUnderTest, count_duplicates, server
from tests.faults.syncing import killed_while_syncing
from tests.servers import postgres
from tests.servers.proxy import Proxy, proxied

PROCESSES = 4
ON_ONE_FILE, MAILS = 8, 16_000
"""The number of processes that share a SQLite file, and of mails in a full run."""

EVERY_S = 20.0
BACK_WITHIN_S = 5.0
UNLIMITED = {
    "POSTROOM_LIMIT_REQUESTS_PER_SECOND": "50000",
    "POSTROOM_LIMIT_SENDS_PER_HOUR": "100000",
}
DRILLS: tuple[tuple[Callable[..., Outcome], int], ...] = (
    (killed_while_receiving, 1_000),
    (killed_while_importing, 1_000),
    (killed_while_syncing, 1_000),
    (killed_while_sending, 1_000),
    (strange_relays, 200),
    (one_key, 50),
)
"""The drills that work on any database, with the sizes of their full runs."""

RECEIVED = "SELECT message FROM events WHERE type LIKE '%received'"
PLANS = "SELECT id FROM plans WHERE state = 'applied' AND rule = '{rule}'"
CHANGED = """
    SELECT i.message FROM plan_items i JOIN plans p ON p.number = i.plan
     WHERE p.state = 'applied' AND p.rule = '{rule}'
"""
LABELLED = """
    SELECT ml.message FROM message_labels ml JOIN labels l ON l.number = ml.label
     WHERE l.folded = '{label}' AND l.inbox = ml.inbox
"""


@dataclass
class DrillResult:
    """The result of a drill."""

    acknowledged: int = 0
    stored: int = 0
    refused: int = 0
    reads: int = 0
    plans: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    wrong: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    back_after_s: list[float] = field(default_factory=list)
    commit_s: list[float] = field(default_factory=list)
    """The times of plain commits at that moment, to detect a stalled disk."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.torn or self.wrong or self.unexplained)

    @property
    def is_soon(self) -> bool:
        return max(self.back_after_s, default=0.0) <= BACK_WITHIN_S


def shared(processes: int, mails: int, **settings: str) -> DrillResult:
    """Let load clients deliver to an installation of several processes, without a fault."""
    found = DrillResult()
    with server("none", processes, **settings, **UNLIMITED) as services:
        clients = _entered(services)
        while sum(len(writer.record.acknowledged) for writer in clients.writers) < mails:
            clients.stop.wait(0.1)
        clients.stop_all()
        _count(found, clients, services)
    return found


def restarted(restarts: int, every_s: float, defect: str = "none") -> DrillResult:
    """Kill the database repeatedly under load."""
    with postgres.running(is_durable=True) as database:
        return drilled(
            database.new_database(),
            lambda: database.control("restart", "-m", "immediate"),
            restarts, every_s, defect,
        )  # fmt: skip


def cut_off(cuts: int, every_s: float, defect: str = "none") -> DrillResult:
    """Cut every connection to the database repeatedly under load."""
    with postgres.running(is_durable=True) as database, _proxy_thread(database.port) as (port, cut):
        url = database.new_database().replace(f":{database.port}/", f":{port}/")
        return drilled(url, cut, cuts, every_s, defect)


@contextmanager
def _proxy_thread(target: int) -> Iterator[tuple[int, Callable[[], object]]]:
    """Run a proxy in a thread; yields its port and a function that cuts all connections."""
    ready, ending = threading.Event(), asyncio.Event()
    opened: list[tuple[Proxy, asyncio.AbstractEventLoop]] = []

    async def stand() -> None:
        async with proxied(target) as proxy:
            opened.append((proxy, asyncio.get_running_loop()))
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(stand()), daemon=True)
    thread.start()
    ready.wait()
    [(proxy, loop)] = opened
    try:
        yield proxy.port, lambda: loop.call_soon_threadsafe(proxy.cut_all)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()


def drilled(
    url: str,
    disturb: Callable[[], object],
    times: int,
    every_s: float,
    defect: str = "none",
    processes: int = PROCESSES,
) -> DrillResult:
    """Run load clients on a server whose database is disturbed repeatedly."""
    found = DrillResult()
    with server(defect, processes, POSTROOM_DATABASE_URL=url, **UNLIMITED) as services:
        clients = _entered(services)
        for _ in range(times):
            clients.stop.wait(every_s)
            disturb()
            back_at = time.monotonic()
            found.commit_s.append(round(_plain_commit(url), 3))
            found.back_after_s.append(round(clients.first_success(back_at), 3))
        clients.stop.wait(every_s)
        clients.stop_all()
        _count(found, clients, services)
    return found


def _entered(services: ServerUnderTest) -> LoadClients:
    for name in ("bo", "ana"):
        services.ask("POST", "/v1/inboxes", {"username": name})
    return LoadClients.start_all(services)


def _plain_commit(url: str) -> float:
    """The time of a plain commit on this database, for comparison."""
    started = time.monotonic()
    with suppress(psycopg.OperationalError), psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS drill (at TIMESTAMPTZ)")
        connection.execute("INSERT INTO drill VALUES (now())")
    return time.monotonic() - started


def _count(found: DrillResult, clients: LoadClients, services: ServerUnderTest) -> None:
    """Compare what the load clients recorded with what is stored."""
    stored = Counter(row[0] for row in services.rows("SELECT subject FROM messages"))
    told = Counter(row[0] for row in services.rows(RECEIVED))
    for writer in clients.writers:
        found.acknowledged += len(writer.record.acknowledged)
        found.lost += sum(stored[s] < writer.copies for s in writer.record.acknowledged)
        mine = (count for s, count in stored.items() if str(s).startswith(writer.prefix))
        found.doubled += sum(count > writer.copies for count in mine)
    found.doubled += count_duplicates(told)
    found.stored = stored.total()
    for client in clients.all:
        found.refused += client.record.refused
        found.reads += client.record.reads
        found.wrong += client.record.wrong
        found.unexplained += client.record.unexplained
    for planner in clients.planners:
        _count_rule(found, planner, services)
    found.torn += services.problems()


def _count_rule(found: DrillResult, planner: RulePlanner, services: ServerUnderTest) -> None:
    """Each message was labelled by one plan, and each confirmed plan was applied."""
    plans = {row[0] for row in services.rows(PLANS.format(rule=planner.rule_id))}
    found.plans += len(plans)
    found.lost += len(set(planner.record.acknowledged) - plans)
    changed = Counter(row[0] for row in services.rows(CHANGED.format(rule=planner.rule_id)))
    labelled = Counter(row[0] for row in services.rows(LABELLED.format(label=planner.label)))
    found.doubled += count_duplicates(changed) + count_duplicates(labelled)
    if not found.stored == len(changed) == len(labelled):
        found.wrong.append(f"{found.stored} mails, {len(changed)} planned, {len(labelled)} done")


def main() -> int:
    given = [float(word) for word in sys.argv[1:]]
    minutes, scale = given[0] if given else 1.0, given[1] if given[1:] else 0.0
    alone = shared(ON_ONE_FILE, max(200, round(MAILS * scale)))
    print("on one file", alone, flush=True)
    is_good = alone.is_clean
    for name, drill in (("restarted", restarted), ("cut off", cut_off)):
        found = drill(max(1, round(minutes * 60 / EVERY_S)), EVERY_S)
        print(name, found, flush=True)
        is_good &= found.is_clean and found.is_soon
    with postgres.running(is_durable=True) as database:
        outcomes = [
            drill(max(2, round(full * scale)), POSTROOM_DATABASE_URL=database.new_database())
            for drill, full in DRILLS
            if scale
        ]
    print(table(outcomes))
    return 0 if is_good and all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
