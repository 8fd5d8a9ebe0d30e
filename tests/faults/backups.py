"""Back up an installation repeatedly while it receives mail, and restore every backup.

No mail is sent while a backup is restored and checked. After several backups a new installation is
created, because each backup would take longer than the one before.

    python -m tests.faults.backups [BACKUPS] [MAILS A SECOND] [SECONDS BETWEEN]

prints the result, and exits with 1 if a backup was not a consistent snapshot of the installation,
or if the p99 of deliveries was more than doubled while backups were made.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from tests.faults.server_under_test import (
    FOLDER,
    PYTHONPATH,
    TIMEOUT_S,
    ServerUnderTest,
    count_duplicates,
    server,
)
from tests.mails import mail
from tests.servers.postroom import environment

MAX_SLOWER = 2.0
_SENDERS = 4
_PER_INSTALLATION = 5
_FILES = [("note.txt", "text/plain", b"the same in every mail")]


@dataclass
class BackupOutcome:
    """The results of the backups, and the delivery times during and outside of them."""

    backups: int = 0
    mails: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    refused: int = 0
    quiet_s: list[float] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.backups > 0 and not (self.lost or self.doubled or self.torn or self.refused)

    @property
    def slower(self) -> float:
        """The ratio of the p99 of deliveries during backups to the p99 outside of them."""
        return _p99(self.busy_s) / _p99(self.quiet_s)

    def __str__(self) -> str:
        counts = ("backups", "mails", "lost", "doubled", "torn", "refused")
        told = ", ".join(f"{getattr(self, name)} {name}" for name in counts)
        times = f"{_p99(self.quiet_s) * 1e3:.0f} ms before, {_p99(self.busy_s) * 1e3:.0f} ms during"
        return f"{told}; p99 of a mail {times} ({self.slower:.2f} times)"


def _p99(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


class SteadySender(threading.Thread):
    """Delivers mail at a steady rate and records when each mail was acknowledged."""

    def __init__(
        self, services: ServerUnderTest, name: int, pause_s: float, stop: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._installation, self._name, self._pause_s, self._stopping = (
            services,
            name,
            pause_s,
            stop,
        )
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.acknowledged: list[str] = []
        self.times: list[tuple[float, float]] = []
        self.refused = 0

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self.may_go_on.wait()
            subject = f"{self._name} {len(self.acknowledged)}"
            started = time.monotonic()
            self._send(subject)
            self.times.append((started, time.monotonic()))
            due = max(due + self._pause_s, started)
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def _send(self, subject: str) -> None:
        url = (
            f"http://127.0.0.1:{self._installation.port}/v1/inbound?recipient=bo@postroom.localhost"
        )
        login = {
            "Authorization": f"Bearer {self._installation.key}",
            "Content-Type": "message/rfc822",
        }
        raw = mail(subject, attachments=_FILES)
        try:
            request = urllib.request.Request(url, data=raw, headers=login)
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
            self.acknowledged.append(subject)
        except OSError:
            self.refused += 1


def run_backups(
    backups: int, per_s: float = 20.0, every_s: float = 2.0, defect: str = "none"
) -> BackupOutcome:
    """Back up busy installations, restore each backup, and check all of its data."""
    found = BackupOutcome()
    while found.backups < backups:
        _one_installation(
            found, min(_PER_INSTALLATION, backups - found.backups), per_s, every_s, defect
        )
    return found


def _one_installation(
    found: BackupOutcome, backups: int, per_s: float, every_s: float, defect: str
) -> None:
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as name, server("none") as services:
        services.ask("POST", "/v1/inboxes", {"username": "bo"})
        senders = [SteadySender(services, n, _SENDERS / per_s, stop) for n in range(_SENDERS)]
        for sender in senders:
            sender.start()
        stop.wait(every_s / 2)
        for _ in range(backups):
            began = time.monotonic()
            stop.wait(every_s)
            ended = time.monotonic()
            found.quiet_s += _during(senders, began, ended)
            made = _one_backup(services, Path(name), senders, found, defect)
            found.busy_s += _during(senders, ended, made)
        stop.set()
        for sender in senders:
            sender.join(TIMEOUT_S)
            found.mails += len(sender.acknowledged)
            found.refused += sender.refused


def _during(senders: list[SteadySender], began: float, ended: float) -> list[float]:
    """The durations of the deliveries that overlap an interval."""
    times = [one for sender in senders for one in list(sender.times)]
    return [last - first for first, last in times if first < ended and last > began]


def _one_backup(
    services: ServerUnderTest,
    folder: Path,
    senders: list[SteadySender],
    found: BackupOutcome,
    defect: str,
) -> float:
    """Restore and check one backup; return when it was made."""
    kept, back = folder / "kept", folder / "back"
    least = [subject for sender in senders for subject in list(sender.acknowledged)]
    _postroom(services.data, defect, "backup", str(kept))
    made = time.monotonic()
    for sender in senders:
        sender.may_go_on.clear()
    _postroom(back, "none", "restore", str(kept))
    try:
        verified = json.loads(_postroom(back, "none", "-o", "json", "verify"))
        found.torn += len(verified["problems"])
        database = apsw.Connection(str(back / "postroom.db"))
        stored = Counter(row[0] for row in database.execute("SELECT subject FROM messages"))
    except (ValueError, apsw.Error):
        found.torn, stored = found.torn + 1, Counter()
    found.lost += sum(1 for subject in least if not stored[subject])
    found.doubled += count_duplicates(stored)
    found.backups += 1
    shutil.rmtree(back, ignore_errors=True)
    for sender in senders:
        sender.may_go_on.set()
    return made


def _postroom(data: Path, defect: str, *words: str) -> bytes:
    env = environment(data, {"PYTHONPATH": PYTHONPATH})
    line = [sys.executable, "-m", "tests.faults.defects", defect, *words]
    return subprocess.run(line, env=env, cwd=FOLDER, capture_output=True, check=False).stdout


def main() -> int:
    given = [float(word) for word in sys.argv[1:]]
    backups, per_s, every_s = (*given, *(100.0, 100.0, 10.0)[len(given) :])
    found = run_backups(int(backups), per_s, every_s)
    print(found)
    return 0 if found.is_clean and found.slower <= MAX_SLOWER else 1


if __name__ == "__main__":
    sys.exit(main())
