"""Kill a server at each system call, and make each sync fail."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from tests.faults.fork_starter import PYTHONPATH, ForkingStarter
from tests.faults.server_under_test import Outcome, count_duplicates
from tests.servers.postroom import environment

CALLS = ("write", "pwrite64", "fdatasync", "fsync", "rename", "openat", "unlink", "ftruncate")


def receive(folder: str, log: str, count: str, defect: str) -> None:
    """Store some mails, and log which of them were acknowledged."""
    Path(folder).mkdir(exist_ok=True)
    asyncio.run(_receive(Path(folder), Path(log), int(count), defect))


async def _receive(folder: Path, log: Path, count: int, defect: str) -> None:
    from postroom import blocking
    from postroom.blobs.files import FileBlobs
    from postroom.pipeline.blobs import claim_blob_store
    from postroom.pipeline.services import Services
    from postroom.store.sqlite import open_store
    from tests.bare_services import NO_PROVIDERS
    from tests.faults.defects import DEFECTS
    from tests.mails import deliver, mail, new_inbox

    DEFECTS[defect]()
    # strace counts the calls of each thread separately. With several threads that write files, none
    # may reach the call that is to fail.
    blocking._MAX_THREADS = 1
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = await open_store(folder / "postroom.db")
    services = Services(**NO_PROVIDERS, store=store, blobs=FileBlobs(folder / "blobs"))
    await claim_blob_store(store, services.blobs)
    known = await store.inboxes_at(["bo@postroom.localhost"])
    inbox = known.get("bo@postroom.localhost") or await new_inbox(services)
    for number in range(count):
        try:
            await deliver(services, inbox, mail(f"drill {number}", message_id=f"<{number}@x.org>"))
        except Exception:  # noqa: BLE001 - whatever it is, the mail was not taken
            os.write(said, b"refused\n")
        else:
            os.write(said, f"{number}\n".encode())
    os._exit(0)


@dataclass
class _StraceRun:
    """Stores mails under strace, each run in a folder of its own."""

    mails: int
    defect: str
    _starter: ForkingStarter = field(default_factory=ForkingStarter)

    def traced(self, folder: Path, strace: Sequence[str]) -> list[str]:
        """Store the mails under strace with these options; return the acknowledged ones."""
        self._start_receiving(folder, self.defect, traced=True)
        words = ["strace", "-f", "-qq", *strace, "-p", str(self._starter.pid)]
        subprocess.run(words, stderr=subprocess.DEVNULL, check=False)
        self._starter.wait()
        return _said(folder)

    def again(self, folder: Path) -> list[str]:
        """Store the same mails without strace; return all that were ever acknowledged."""
        self._start_receiving(folder, "none", traced=False)
        self._starter.wait()
        return _said(folder)

    def _start_receiving(self, folder: Path, defect: str, *, traced: bool) -> None:
        words = [str(folder / "data"), str(folder / "acks"), str(self.mails), defect]
        target, log = "tests.faults.crashes:receive", folder / "log"
        self._starter.start(target, words, _env(folder), log, traced=traced)

    def problems(self, folder: Path) -> int:
        """The number of problems that `postroom verify` finds; 0 if there is no store yet."""
        if not _database(folder).exists():
            return 0
        report = folder / "verified"
        words = ["none", "-o", "json", "verify"]
        self._starter.start("tests.faults.defects:run", words, _env(folder), report)
        self._starter.wait()
        return len(json.loads(report.read_text())["problems"])

    def close(self) -> None:
        self._starter.close()


@contextmanager
def _bench(mails: int, defect: str) -> Iterator[_StraceRun]:
    bench = _StraceRun(mails, defect)
    try:
        yield bench
    finally:
        bench.close()


def _env(folder: Path) -> dict[str, str]:
    return environment(folder / "data", {"PYTHONPATH": PYTHONPATH})


def _said(folder: Path) -> list[str]:
    log = folder / "acks"
    return log.read_text().split() if log.exists() else []


def _check(bench: _StraceRun, folder: Path, words: list[str], outcome: Outcome) -> None:
    """After a fault the store must be consistent; all mail is sent again and stored once."""
    outcome.torn += bench.problems(folder)
    acked = {word for word in words if word.isdigit()}
    outcome.lost += _missing(folder, acked)
    again = {word for word in bench.again(folder) if word.isdigit()}
    outcome.lost += _missing(folder, again)
    outcome.torn += bench.mails - len(again)
    outcome.doubled += count_duplicates(_stored(folder))
    outcome.acknowledged += len(acked) + len(again)
    outcome.tried += 1


def _missing(folder: Path, acked: set[str]) -> int:
    stored = _stored(folder)
    return sum(1 for number in acked if not stored[f"drill {number}"])


def _database(folder: Path) -> Path:
    return folder / "data" / "postroom.db"


def _stored(folder: Path) -> Counter[object]:
    if not _database(folder).exists():
        return Counter()
    database = apsw.Connection(str(_database(folder)))
    return Counter(row[0] for row in database.execute("SELECT subject FROM messages"))


def crash_points(most: int, defect: str = "none", *, mails: int = 20) -> Outcome:
    """Send SIGKILL at the first, second, … call of each kind, up to the calls of a clean run."""
    outcome = Outcome("SIGKILL at every system call")
    with _bench(mails, defect) as bench:
        for call in CALLS:
            for number in _points(bench, call, most):
                with tempfile.TemporaryDirectory() as name:
                    inject = f"inject={call}:signal=SIGKILL:when={number}"
                    words = bench.traced(Path(name), ["-o", "/dev/null", "-e", inject])
                    _check(bench, Path(name), words, outcome)
    return outcome


def _points(bench: _StraceRun, call: str, most: int) -> list[int]:
    """The call numbers at which to fail: all of a clean run, or *most* of them spread evenly."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace"
        bench.traced(Path(name), ["-o", str(trace), "-e", f"trace={call}"])
        # strace counts the calls of each thread separately.
        per_thread = Counter(
            line.split()[0] for line in trace.read_text().splitlines() if f" {call}(" in line
        )
    count = max(per_thread.values(), default=0)
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})


def failing_syncs(most: int, defect: str = "none", *, mails: int = 100) -> Outcome:
    """Return EIO at the k-th sync, or from it on: nothing is acknowledged until a restart.

    A disk that fails once and then works is the harder case: the data it dropped is never written.
    """
    outcome = Outcome("EIO at every sync, or from it on")
    with _bench(mails, defect) as bench:
        for call in ("fdatasync", "fsync"):
            for turn, number in enumerate(_points(bench, call, most)):
                with tempfile.TemporaryDirectory() as name:
                    inject = f"inject={call}:error=EIO:when={number}{'+' if turn % 2 else ''}"
                    words = bench.traced(Path(name), ["-o", "/dev/null", "-e", inject])
                    refused = "refused" in words
                    after = words[words.index("refused") :] if refused else []
                    outcome.lost += sum(1 for word in after if word.isdigit())
                    _check(bench, Path(name), words, outcome)
    return outcome
