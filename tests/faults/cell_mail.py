"""Mail between two cells: both are killed repeatedly, and some SMTP replies are lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.proxies import ThreadedProxy
from tests.faults.server_under_test import TIMEOUT_S, Outcome, count_duplicates
from tests.servers import postgres
from tests.servers.cells import Cell, cells

SENDERS = 3
DROP_EVERY = 4
"""One in this many confirmations is lost."""

_STORED = b"250 2.0.0 stored"
STATUSES = "SELECT m.subject, o.status FROM messages m JOIN outbox o ON o.message = m.number"


class LossyProxy(ThreadedProxy):
    """A proxy that drops the connection instead of passing on some replies "250 stored"."""

    def __init__(self, target: int) -> None:
        self.dropped, self._seen = 0, 0
        super().__init__(target)

    async def relay(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_target: asyncio.StreamReader,
        to_target: asyncio.StreamWriter,
    ) -> None:
        requests = asyncio.create_task(self._pass(from_client, to_target))
        try:
            while (line := await from_target.readline()) and not self._drops(line):
                to_client.write(line)
                await to_client.drain()
        finally:
            requests.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def _drops(self, line: bytes) -> bool:
        if not line.startswith(_STORED):
            return False
        self._seen += 1
        is_lost = self._seen % DROP_EVERY == 0
        self.dropped += is_lost
        return is_lost


class CellSender(threading.Thread):
    """Sends mails to another cell, each repeatedly until it is acknowledged."""

    def __init__(self, cell: Cell, to: str, name: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._cell, self._to, self._name, self._stop_it = cell, to, name, stop
        self.acknowledged: list[str] = []

    def run(self) -> None:
        while not self._stop_it.is_set():
            subject = f"drill {self._name}.{len(self.acknowledged)}"
            outgoing_mail = {
                "to": [self._to],
                "subject": subject,
                "body_text": "x",
                "idempotency_key": subject,
            }
            try:
                self._cell.ask("POST", "/v1/messages", outgoing_mail)
                self.acknowledged.append(subject)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.05)


def mail_between_cells(kills: int, defect: str = "none") -> Outcome:
    """Kill the cells in turn with SIGKILL while one sends mail to the other."""
    with postgres.running() as database, tempfile.TemporaryDirectory() as name:
        databases = {cell: database.new_database() for cell in ("a", "b")}
        with cells(Path(name), databases, defect) as (sender, receiver):
            return killed_by_turns(kills, sender, receiver)


def killed_by_turns(kills: int, sender: Cell, receiver: Cell) -> Outcome:
    """Send from one cell to the other while they are killed in turn."""
    with _lossy(sender, receiver):
        return _drilled(kills, sender, receiver)


@contextmanager
def _lossy(sender: Cell, receiver: Cell) -> Iterator[None]:
    """Connect the sender to the receiver through a LossyProxy, and sign its mail."""
    proxy = LossyProxy(receiver.smtp)
    key = sender.data.parent / "dkim.pem"
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)],
        check=True,
        capture_output=True,
    )
    sender.set("POSTROOM_DKIM_KEY", str(key))
    sender.set("POSTROOM_CELL_RELAYS", f"{receiver.domain}=smtp://127.0.0.1:{proxy.port}")
    sender.kill()
    sender.start()
    yield
    assert proxy.dropped, "no confirmation was lost: the drill shows nothing"


def _drilled(kills: int, sender: Cell, receiver: Cell) -> Outcome:
    outcome, stop = Outcome("mail between two cells, both killed by turns"), threading.Event()
    to = f"bo@{receiver.domain}"
    senders = [CellSender(sender, to, number, stop) for number in range(SENDERS)]
    for one in senders:
        one.start()
    for number in range(kills):
        time.sleep(random.uniform(0.2, 0.8))
        killed = (sender, receiver)[number % 2]
        killed.kill()
        killed.start()
        outcome.tried += 1
    deadline = time.monotonic() + TIMEOUT_S
    while sum(len(one.acknowledged) for one in senders) < 4 * DROP_EVERY:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stop.set()
    for one in senders:
        one.join(TIMEOUT_S)
    acknowledged = [subject for one in senders for subject in one.acknowledged]
    _settle(sender, acknowledged)
    arrived = Counter(row[0] for row in receiver.rows("SELECT subject FROM messages"))
    told = Counter(
        row[0] for row in receiver.rows("SELECT message FROM events WHERE type LIKE '%received'")
    )
    outcome.acknowledged = len(acknowledged)
    outcome.lost = sum(not arrived[subject] for subject in acknowledged)
    outcome.doubled = count_duplicates(arrived) + count_duplicates(told)
    outcome.torn = sender.problems() + receiver.problems()
    return outcome


def _settle(sender: Cell, acknowledged: list[str]) -> None:
    """Wait until every mail is sent; none may have another final status."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        statuses = {str(subject): status for subject, status in sender.rows(STATUSES)}
        if all(statuses.get(subject) == "sent" for subject in acknowledged):
            return
        time.sleep(0.2)
    counted = Counter(statuses.get(subject) for subject in acknowledged)
    raise AssertionError(f"mail is not out: {counted}")
