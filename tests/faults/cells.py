"""Drills on cells: databases are stopped or replaced, cells are killed and added under load.

    python -m tests.faults.cells [SCALE]

prints the result, and exits with 1 if anything was lost, duplicated, corrupted, missed or refused
without an explanation.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import smtplib
import ssl
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path

from tests.faults.cell_commits import kills_in_commits
from tests.faults.cell_mail import mail_between_cells
from tests.faults.database import PROCESSES, DrillResult, drilled
from tests.faults.drills import table
from tests.faults.server_under_test import TIMEOUT_S, Outcome, count_duplicates
from tests.mails import mail
from tests.servers import postgres
from tests.servers.cells import Cell, cells, routed
from tests.servers.nginx import DOMAIN, Nginx
from tests.servers.standby import replicated

RECEIVED = "SELECT id FROM events WHERE type = 'message.received'"


@dataclass
class Answer:
    """A response through the router."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, object] = field(default_factory=dict)
    took_s: float = 0.0


def request(router: Nginx, cell: Cell, method: str, path: str, body: bytes | None = None) -> Answer:
    """Send a request through the router with the key of a cell, on a new connection."""
    kind = "message/rfc822" if path.startswith("/v1/inbound") else "application/json"
    headers = {"Authorization": f"Bearer {cell.key}", "Host": DOMAIN, "Content-Type": kind}
    asked = urllib.request.Request(router.url + path, body, headers, method=method)
    context = ssl.create_default_context(cafile=str(router.tls.cert))
    began = time.monotonic()
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S, context=context) as response:
            found = Answer(response.status, named(response.headers), json.load(response))
    except urllib.error.HTTPError as error:
        found = Answer(error.code, named(error.headers), json.load(error))
    except (OSError, http.client.HTTPException) as error:
        found = Answer(0, {}, {"detail": repr(error)})
    found.took_s = time.monotonic() - began
    return found


def named(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class Traffic(threading.Thread):
    """Delivers to one cell and searches in it through the router, repeatedly."""

    def __init__(self, router: Nginx, cell: Cell, name: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._router, self._cell, self.prefix, self._stop_it = router, cell, name, stop
        self.acknowledged: list[str] = []
        self.refused: list[Answer] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._stop_it.is_set():
            subject = f"{self.prefix}{len(self.acknowledged)}x"
            raw = mail(subject, message_id=f"<{subject}@traffic>")
            path = f"/v1/inbound?recipient=bo@{self._cell.domain}"
            said = request(self._router, self._cell, "POST", path, raw)
            if said.status not in (200, 201):
                self._refuse(said)
                continue
            self.acknowledged.append(subject)
            found = request(self._router, self._cell, "GET", f"/v1/search/messages?q={subject}")
            if found.status != 200:
                self._refuse(found)
            elif found.body["total"] != 1:
                self.wrong.append(f"{subject}: {found.body['total']}")

    def _refuse(self, said: Answer) -> None:
        self.refused.append(said)
        self._stop_it.wait(0.2)

    @property
    def unexplained(self) -> list[Answer]:
        """Error responses without a status or header that tells the client to retry."""
        return [a for a in self.refused if a.status != 503 or "retry-after" not in a.headers]


@contextmanager
def traffic(router: Nginx, opened: Sequence[Cell]) -> Iterator[list[Traffic]]:
    """Send traffic to cells while the block runs."""
    stop = threading.Event()
    used = [Traffic(router, cell, f"{cell.name}{router.port}n", stop) for cell in opened]
    for one in used:
        one.start()
    try:
        until(lambda: all(one.acknowledged for one in used))
        yield used
    finally:
        stop.set()
        for one in used:
            one.join(TIMEOUT_S)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _count(outcome: Outcome, used: Sequence[Traffic], opened: Sequence[Cell]) -> None:
    for one, cell in zip(used, opened, strict=True):
        stored = Counter(str(row[0]) for row in cell.rows("SELECT subject FROM messages"))
        outcome.acknowledged += len(one.acknowledged)
        outcome.lost += sum(not stored[subject] for subject in one.acknowledged)
        outcome.doubled += count_duplicates(
            Counter({s: n for s, n in stored.items() if one.prefix in s})
        )
        outcome.lost += len(one.wrong)


def reply_to_recipient(cell: Cell) -> tuple[int, float]:
    """The reply code of a cell to RCPT, and the seconds it took."""
    with smtplib.SMTP("127.0.0.1", cell.smtp, timeout=TIMEOUT_S) as session:
        session.ehlo()
        session.mail("ana@example.com")
        began = time.monotonic()
        code, _ = session.rcpt(f"bo@{cell.domain}")
        return code, round(time.monotonic() - began, 2)


ANSWER_S = 2.0
"""How soon a cell without its database says so."""


@dataclass
class Outage(Outcome):
    """The requests and deliveries while one cell had no database."""

    others_refused: int = 0
    unexplained: list[Answer] = field(default_factory=list)
    answers_s: list[float] = field(default_factory=list)
    back_after_s: list[float] = field(default_factory=list)
    recipients: set[int] = field(default_factory=set)

    @property
    def is_clean(self) -> bool:
        fine = not self.others_refused and not self.unexplained and self.recipients == {451}
        # Other programs may delay some answers.
        fine = fine and statistics.median(self.answers_s) <= ANSWER_S
        return fine and self.lost == self.doubled == self.torn == 0


def _signal(database: postgres.Postgres, number: signal.Signals) -> None:
    """Send a signal to every process of a server."""
    first = int((database.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    for pid in (first, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


OUTAGES: tuple[tuple[Callable[[postgres.Postgres], None], Callable[[postgres.Postgres], None]], ...]
OUTAGES = (
    (lambda it: it.control("stop", "-m", "immediate"), lambda it: it.control("start")),
    (lambda it: _signal(it, signal.SIGSTOP), lambda it: _signal(it, signal.SIGCONT)),
)
"""The ways to stop or freeze a database, and to resume it."""


def stopped_databases(
    stops: int, router: Nginx, opened: Sequence[Cell], database: postgres.Postgres
) -> Outage:
    """Stop and start the database of the second cell repeatedly."""
    outage = Outage("the database of one cell stopped, the others used")
    down = opened[1]
    with traffic(router, opened) as used:
        for number in range(stops):
            before, there = len(used[0].acknowledged), len(used[1].refused)
            stop, start = OUTAGES[number % len(OUTAGES)]
            stop(database)
            for path in ("/v1/inboxes", "/v1/search/messages?q=x"):
                said = request(router, down, "GET", path)
                outage.answers_s.append(round(said.took_s, 2))
            code, took_s = reply_to_recipient(down)
            outage.recipients.add(code)
            outage.answers_s.append(took_s)
            until(lambda b=before: len(used[0].acknowledged) > b + 3)  # type: ignore[misc]
            until(lambda t=there: len(used[1].refused) > t)  # type: ignore[misc]
            start(database)
            began, known = time.monotonic(), len(used[1].acknowledged)
            until(lambda k=known: len(used[1].acknowledged) > k)  # type: ignore[misc]
            outage.back_after_s.append(round(time.monotonic() - began, 2))
            outage.tried += 1
    _count(outage, used, opened)
    outage.others_refused = len(used[0].refused)
    outage.unexplained = used[1].unexplained
    outage.answers_s += [round(answer.took_s, 2) for answer in used[1].refused]
    return outage


def outages(stops: int) -> Outage:
    with (
        postgres.running(is_durable=True) as first,
        postgres.running(is_durable=True) as second,
        tempfile.TemporaryDirectory() as name,
        cells(Path(name), {"a": first.new_database(), "b": second.new_database()}) as opened,
        routed(Path(name) / "router", opened) as router,
    ):
        found = stopped_databases(stops, router, opened, second)
        found.torn = sum(cell.problems() for cell in opened)
    return found


def added_cells(
    times: int, folder: Path, router: Nginx, opened: Sequence[Cell], server: postgres.Postgres
) -> Outcome:
    """Add and remove a cell repeatedly while the others are in use."""
    outcome = Outcome("a cell added while the others are used")
    known = dict(router.cells)
    with traffic(router, opened) as used:
        for number in range(times):
            name = f"new{number}"
            with cells(folder, {name: server.new_database()}) as [added]:
                router.configure({**known, name: added.address})
                router.reload()
                until(lambda: request(router, added, "GET", "/v1/inboxes").status == 200)
                router.configure(known)
                router.reload()
            outcome.tried += 1
    _count(outcome, used, opened)
    outcome.lost += sum(len(one.refused) for one in used)
    return outcome


def additions(times: int) -> Outcome:
    with (
        postgres.running() as server,
        tempfile.TemporaryDirectory() as name,
        cells(Path(name), {n: server.new_database() for n in ("a", "b")}) as opened,
        routed(Path(name) / "router", opened) as router,
    ):
        return added_cells(times, Path(name), router, opened, server)


def promoted(times: int, every_s: float, processes: int = PROCESSES) -> DrillResult:
    """Promote the standby of a cell's database repeatedly under load."""
    with replicated() as pair:
        pair.primary.copy_template("cell")
        url = pair.url("cell")
        is_first = True

        def fail_over() -> None:
            nonlocal is_first
            if not is_first:
                pair.rebuild()
            is_first = False
            pair.promote()

        return drilled(url, fail_over, times, every_s, processes=processes)


class EventFollower(threading.Thread):
    """Follows the events of a cell, reconnecting with the last id after every few events."""

    def __init__(self, router: Nginx, cell: Cell, wanted: threading.Event) -> None:
        super().__init__(daemon=True)
        self._router, self._cell, self._ended = router, cell, wanted
        self.seen: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            for event_id in self._stream():
                self.seen.append(event_id)
                if len(self.seen) % 7 == 0 or self._ended.is_set():
                    break

    def _stream(self) -> Iterator[str]:
        headers = {"Authorization": f"Bearer {self._cell.key}", "Host": DOMAIN}
        if self.seen:
            headers["Last-Event-ID"] = self.seen[-1]
        path = "/v1/events/stream?types=message.received"
        asked = urllib.request.Request(self._router.url + path, headers=headers)
        context = ssl.create_default_context(cafile=str(self._router.tls.cert))
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S, context=context) as response:
            for line in response:
                if line.startswith(b"id:"):
                    yield line.removeprefix(b"id:").strip().decode()


def followed_events(mails: int, router: Nginx, cell: Cell) -> Outcome:
    """Follow the events of a cell by id while eight clients write."""
    outcome, ended = Outcome("events followed beside eight writers"), threading.Event()
    known = {str(row[0]) for row in cell.rows(RECEIVED)}
    follower = EventFollower(router, cell, ended)
    request(router, cell, "POST", f"/v1/inbound?recipient=bo@{cell.domain}", mail("first"))
    newest = request(router, cell, "GET", "/v1/events?sort=newest&limit=1").body["results"]
    assert isinstance(newest, list)
    follower.seen.append(newest[0]["id"])
    known.add(newest[0]["id"])
    follower.start()

    def write(number: int) -> None:
        for count in range(mails // 8):
            raw = mail(f"e{number}.{count}", message_id=f"<e{number}.{count}@x>")
            said = request(router, cell, "POST", f"/v1/inbound?recipient=bo@{cell.domain}", raw)
            assert said.status == 201, said

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(TIMEOUT_S)
    stored = {str(row[0]) for row in cell.rows(RECEIVED)} - known
    deadline = time.monotonic() + 30
    while stored - set(follower.seen) and time.monotonic() < deadline:
        time.sleep(0.05)
    ended.set()
    outcome.tried, outcome.acknowledged = mails, len(stored)
    outcome.lost = len(stored - set(follower.seen))
    outcome.doubled = count_duplicates(Counter(follower.seen))
    return outcome


def events(mails: int) -> Outcome:
    with (
        postgres.running() as server,
        tempfile.TemporaryDirectory() as name,
        cells(Path(name), {"a": server.new_database()}) as opened,
        routed(Path(name) / "router", opened) as router,
    ):
        return followed_events(mails, router, opened[0])


def main() -> int:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1

    def share(full: int) -> int:
        return max(1, round(full * scale))

    outage = outages(share(20))
    print(outage, flush=True)
    failover = promoted(share(10), 5.0)
    print(failover, flush=True)
    noticed = mail_between_cells(2, "skip_deduplication")
    print(f"a receiver that stores every repeat is noticed: {noticed.doubled > 0}", flush=True)
    in_commits = [kills_in_commits(2, name) for name in ("ack_before_commit", "skip_deduplication")]
    sees = in_commits[0].lost > 0 and in_commits[1].doubled > 0
    print(f"an early 250, and a repeat stored twice, are noticed: {sees}", flush=True)
    outcomes = [
        kills_in_commits(share(100)),
        mail_between_cells(share(200)),
        outage,
        additions(share(20)),
        events(share(8_000)),
    ]
    print(table(outcomes))
    is_clean = failover.is_clean and all(outcome.is_clean for outcome in outcomes)
    return 0 if noticed.doubled and sees and is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
