"""A drill on PostgreSQL: it is killed and started again while mail comes in.

    python -m tests.faults.database [RESTARTS] [SECONDS BETWEEN]

ends with what was found, and with 1 if anything was lost, doubled, torn or not explained.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.mails import mail
from tests.servers import postgres
from tests.servers.postroom import Running, command, running

PATIENCE_S = 120
_SENDERS = 4


@dataclass
class Found:
    """What the drill found; `unexplained` are answers that say neither yes nor when."""

    acknowledged: int = 0
    stored: int = 0
    refused: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    unexplained: list[int] = field(default_factory=list)
    back_after_s: list[float] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.torn or self.unexplained)


class Sender(threading.Thread):
    """Sends mail after mail, each until it is acknowledged, over connections of its own."""

    def __init__(self, server: Running, name: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server, self._name, self._stop_at = server, name, stop
        self.acknowledged: list[str] = []
        self.acknowledged_at: list[float] = []
        self.refused = 0
        self.unexplained: list[int] = []

    def run(self) -> None:
        number = 0
        while not self._stop_at.is_set():
            subject = f"{self._name} {number}"
            if self._send(mail(subject, message_id=f"<{self._name}.{number}@drill>")):
                self.acknowledged.append(subject)
                number += 1

    def _send(self, raw: bytes) -> bool:
        request = urllib.request.Request(
            f"{self._server.url}/v1/inbound?recipient=bo@postroom.localhost",
            data=raw,
            headers={
                "Authorization": f"Bearer {self._server.key}",
                "Content-Type": "message/rfc822",
            },
        )
        try:
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        except urllib.error.HTTPError as error:
            self.refused += 1
            if error.code not in (429, 503) or "Retry-After" not in error.headers:
                self.unexplained.append(error.code)
            self._stop_at.wait(float(error.headers.get("Retry-After", 1)))
            return False
        except OSError:
            return False
        self.acknowledged_at.append(time.monotonic())
        return True


def restarted(restarts: int, every_s: float, workers: int = 2) -> Found:
    """Kill the database so many times, and count what became of every mail."""
    found = Found()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres.running(is_durable=True) as database,
    ):
        url = database.new_database()
        extra = {"POSTROOM_DATABASE_URL": url}
        with running(Path(folder) / "data", workers=workers, **extra) as server:
            subprocess.run(
                command("inbox", "create", "--username", "bo"),
                env=server.env, check=True, capture_output=True,
            )  # fmt: skip
            stop = threading.Event()
            senders = [Sender(server, f"sender{n}", stop) for n in range(_SENDERS)]
            for sender in senders:
                sender.start()
            for _ in range(restarts):
                stop.wait(every_s)
                database.control("restart", "-m", "immediate")
                found.back_after_s.append(_first_success(senders, time.monotonic()))
            stop.wait(every_s)
            stop.set()
            for sender in senders:
                sender.join(PATIENCE_S)
            _count(found, senders, url, server)
    return found


def _first_success(senders: list[Sender], ready_at: float) -> float:
    """How long after the database was back a mail was acknowledged again."""
    deadline = ready_at + PATIENCE_S
    while time.monotonic() < deadline:
        later = [at for s in senders for at in s.acknowledged_at[-3:] if at > ready_at]
        if later:
            return min(later) - ready_at
        time.sleep(0.01)
    return float("inf")


def _count(found: Found, senders: list[Sender], url: str, server: Running) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        subjects = connection.execute("SELECT subject FROM messages").fetchall()
        events = connection.execute("SELECT message FROM events").fetchall()
    stored = Counter(row[0] for row in subjects)
    acknowledged = [subject for sender in senders for subject in sender.acknowledged]
    found.acknowledged, found.stored = len(acknowledged), sum(stored.values())
    found.refused = sum(sender.refused for sender in senders)
    found.unexplained = [code for sender in senders for code in sender.unexplained]
    found.lost = sum(1 for subject in acknowledged if not stored[subject])
    told = Counter(row[0] for row in events)
    found.doubled = sum(count - 1 for count in (stored + told).values() if count > 1)
    done = subprocess.run(
        command("-o", "json", "verify"), env=server.env, capture_output=True, check=False
    )
    with suppress(ValueError):
        found.torn = len(json.loads(done.stdout)["problems"])
        return
    found.torn = 1


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    result = restarted(int(given[0]) if given else 3, given[1] if given[1:] else 20.0)
    print(result)
    sys.exit(0 if result.is_clean else 1)
