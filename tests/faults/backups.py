"""An installation is backed up again and again while mail comes in; each backup is brought back.

No mail comes while one is brought back and looked at, and after some a new installation begins:
else each would take longer than the one before.

    python -m tests.faults.backups [BACKUPS] [MAILS A SECOND] [SECONDS BETWEEN]

ends with what was found, and with 1 if a backup was not one whole moment of the installation, or
if mail came in more than twice as slowly (p99) while backups were made.
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

from tests.faults.drilled import FOLDER, PATIENCE_S, PYTHONPATH, Server, server, twice
from tests.mails import mail
from tests.servers.postroom import environment

MAX_SLOWER = 2.0
_SENDERS = 4
_PER_INSTALLATION = 5
_FILES = [("note.txt", "text/plain", b"the same in every mail")]


@dataclass
class Found:
    """What became of the backups, and how long mail took meanwhile and before."""

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
        """How much longer the slowest hundredth took while backups were made."""
        return _p99(self.busy_s) / _p99(self.quiet_s)

    def __str__(self) -> str:
        counts = ("backups", "mails", "lost", "doubled", "torn", "refused")
        told = ", ".join(f"{getattr(self, name)} {name}" for name in counts)
        times = f"{_p99(self.quiet_s) * 1e3:.0f} ms before, {_p99(self.busy_s) * 1e3:.0f} ms during"
        return f"{told}; p99 of a mail {times} ({self.slower:.2f} times)"


def _p99(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


class Sender(threading.Thread):
    """Brings mail at a steady pace, and remembers when each was acknowledged."""

    def __init__(self, services: Server, name: int, pause_s: float, stop: threading.Event) -> None:
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
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
            self.acknowledged.append(subject)
        except OSError:
            self.refused += 1


def backed_up(
    backups: int, per_s: float = 20.0, every_s: float = 2.0, defect: str = "none"
) -> Found:
    """Make so many backups of busy installations; bring each back, and look at all of it."""
    found = Found()
    while found.backups < backups:
        _one_installation(
            found, min(_PER_INSTALLATION, backups - found.backups), per_s, every_s, defect
        )
    return found


def _one_installation(
    found: Found, backups: int, per_s: float, every_s: float, defect: str
) -> None:
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as name, server("none") as services:
        services.ask("POST", "/v1/inboxes", {"username": "bo"})
        senders = [Sender(services, n, _SENDERS / per_s, stop) for n in range(_SENDERS)]
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
            sender.join(PATIENCE_S)
            found.mails += len(sender.acknowledged)
            found.refused += sender.refused


def _during(senders: list[Sender], began: float, ended: float) -> list[float]:
    """How long the mails took of which a part was between two moments."""
    times = [one for sender in senders for one in list(sender.times)]
    return [last - first for first, last in times if first < ended and last > began]


def _one_backup(
    services: Server, folder: Path, senders: list[Sender], found: Found, defect: str
) -> float:
    """Look at a backup; return when it was made."""
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
    found.doubled += twice(stored)
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
    found = backed_up(int(backups), per_s, every_s)
    print(found)
    return 0 if found.is_clean and found.slower <= MAX_SLOWER else 1


if __name__ == "__main__":
    sys.exit(main())
