"""Kill the writer of a cell inside a commit: before PostgreSQL gets it, or after."""

from __future__ import annotations

import asyncio
import re
import smtplib
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.faults.proxies import ThreadedProxy
from tests.faults.server_under_test import TIMEOUT_S, Outcome, count_duplicates
from tests.mails import mail
from tests.servers import postgres
from tests.servers.cells import Cell, cells

_COMMIT = b"COMMIT\0"
_PREPARED = re.compile(rb"(_pg3_\w+\0)COMMIT\0")
_IS_OVER = b"Z\0\0\0\5I"
"""ReadyForQuery, outside of a transaction."""

STORED = "SELECT subject FROM messages"
ANNOUNCED = "SELECT message FROM events WHERE type = 'message.received'"


class CommitStopper(ThreadedProxy):
    """A proxy to PostgreSQL that stops at the commit of one mail: before it, or at its response."""

    def __init__(self, target: int) -> None:
        self._subject, self._passes_commit = b"", False
        self.stopped = threading.Event()
        super().__init__(target)

    def stop_at(self, subject: str, *, passes_commit: bool) -> None:
        """Stop the next transaction that stores this mail; let its commit pass, or not."""
        self.stopped.clear()
        self._passes_commit, self._subject = passes_commit, subject.encode()

    async def relay(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_target: asyncio.StreamReader,
        to_target: asyncio.StreamWriter,
    ) -> None:
        committing = asyncio.Event()
        responses = asyncio.create_task(self._pass_back(from_target, to_client, committing))
        try:
            await self._pass(from_client, to_target, committing)
        finally:
            responses.cancel()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, committing: asyncio.Event
    ) -> None:
        commits, has_mail = [_COMMIT], False
        while data := await reader.read(65_536):
            commits += _PREPARED.findall(data)
            has_mail = has_mail or bool(self._subject and self._subject in data)
            if has_mail and any(word in data for word in commits):
                self._subject = b""
                if not self._passes_commit:
                    self.stopped.set()
                    await reader.read()  # until the killed process has closed the connection
                    return
                committing.set()
            writer.write(data)
            await writer.drain()

    async def _pass_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, committing: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if committing.is_set() and _IS_OVER in data:
                    self.stopped.set()
                    return
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Delivery(threading.Thread):
    """Delivers a mail over SMTP, and repeats it until it is acknowledged."""

    def __init__(self, cell: Cell, subject: str) -> None:
        super().__init__(daemon=True)
        self._cell, self._subject, self.is_acknowledged = cell, subject, False
        self._deadline = time.monotonic() + TIMEOUT_S

    def run(self) -> None:
        raw = mail(self._subject, message_id=f"<{self._subject}@commits>").replace(b"\n", b"\r\n")
        while not self.is_acknowledged and time.monotonic() < self._deadline:
            try:
                with smtplib.SMTP("127.0.0.1", self._cell.smtp, timeout=TIMEOUT_S) as session:
                    session.sendmail("ana@example.com", [f"bo@{self._cell.domain}"], raw)
                    self.is_acknowledged = True
            except (OSError, smtplib.SMTPException):
                time.sleep(0.05)


def kills_in_commits(kills: int, defect: str = "none") -> Outcome:
    """Start a cell, and kill its writer inside a commit so many times."""
    with postgres.running(is_durable=True) as database, tempfile.TemporaryDirectory() as name:
        return killed_in_commits(kills, Path(name), database, defect)


def killed_in_commits(
    kills: int, folder: Path, database: postgres.Postgres, defect: str = "none"
) -> Outcome:
    """Kill a cell while a commit, or the response to it, is being transmitted."""
    outcome = Outcome("the writer killed inside a commit, before and after PostgreSQL has it")
    proxy, url = CommitStopper(database.port), database.new_database()
    through = url.replace(f":{database.port}/", f":{proxy.port}/")
    with cells(folder, {"a": through}, defect) as [cell]:
        for number in range(kills):
            subject, is_stored = f"commit{number}x", number % 2 == 1
            proxy.stop_at(subject, passes_commit=is_stored)
            delivery = Delivery(cell, subject)
            delivery.start()
            assert proxy.stopped.wait(TIMEOUT_S), "no commit was stopped: the drill shows nothing"
            cell.kill()
            stored = [row[0] for row in cell.rows(STORED)]
            assert (subject in stored) == is_stored, "the kill was not inside the commit"
            cell.start()
            delivery.join(TIMEOUT_S)
            outcome.tried += 1
            outcome.acknowledged += delivery.is_acknowledged
        arrived = Counter(str(row[0]) for row in cell.rows(STORED))
        outcome.lost = sum(not arrived[f"commit{number}x"] for number in range(kills))
        announced = Counter(row[0] for row in cell.rows(ANNOUNCED))
        outcome.doubled = count_duplicates(arrived) + count_duplicates(announced)
        outcome.torn = cell.problems()
    return outcome
