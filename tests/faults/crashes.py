"""Kill at every system call, and let every sync fail."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import apsw

from tests.faults.drilled import FOLDER, PYTHONPATH, Tally, twice
from tests.servers.postroom import environment

RECEIVE = """
import asyncio, os, sys
from pathlib import Path
from postroom.blobs.files import FileBlobs
from postroom.pipeline.house import House
from postroom.store.sqlite import open_store
from tests.faults.defects import DEFECTS
from tests.mails import deliver, mail, new_inbox

async def main():
    DEFECTS[sys.argv[4]]()
    folder, log = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = await open_store(folder / "postroom.db")
    house = House(store=store, blobs=FileBlobs(folder / "blobs"))
    known = await store.inboxes_at(["bo@postroom.localhost"])
    inbox = known.get("bo@postroom.localhost") or await new_inbox(house)
    os.write(log, b"start\\n")
    for number in range(int(sys.argv[3])):
        try:
            await deliver(house, inbox, mail(f"drill {number}", message_id=f"<{number}@x.org>"))
        except Exception:
            os.write(log, b"refused\\n")
        else:
            os.write(log, f"{number}\\n".encode())
    os._exit(0)

asyncio.run(main())
"""
CALLS = ("pwrite64", "fdatasync", "fsync", "rename", "openat", "unlink", "ftruncate")


def _traced(
    folder: Path, inject: str, count: int, defect: str = "none", *, fresh: bool = True
) -> list[str]:
    """Receive some mails under strace; what was acknowledged."""
    log = folder / "acks"
    if fresh:
        log.unlink(missing_ok=True)
    env = environment(folder, {"PYTHONPATH": PYTHONPATH})
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject] if inject else []
    words = [*strace, sys.executable, "-c", RECEIVE, str(folder), str(log), str(count), defect]
    subprocess.run(words, env=env, cwd=FOLDER, capture_output=True, check=False, timeout=300)
    return log.read_text().split() if log.exists() else []


def _check(folder: Path, words: list[str], mails: int, tally: Tally) -> None:
    """What is there after a fault must be whole; then all is sent again, and nothing is doubled."""
    env = environment(folder, {"PYTHONPATH": str(FOLDER / "src")})
    verify = [sys.executable, "-m", "postroom", "-o", "json", "verify"]
    done = subprocess.run(verify, env=env, cwd=FOLDER, capture_output=True, check=False)
    tally.torn += len(json.loads(done.stdout)["problems"])
    acked = {word for word in words if word.isdigit()}
    tally.lost += _missing(folder, acked)
    again = {word for word in _traced(folder, "", mails, fresh=False) if word.isdigit()}
    tally.lost += _missing(folder, again)
    tally.torn += mails - len(again)
    tally.doubled += twice(_stored(folder))
    tally.acknowledged += len(acked) + len(again)
    tally.tried += 1


def _missing(folder: Path, acked: set[str]) -> int:
    stored = _stored(folder)
    return sum(1 for number in acked if not stored[f"drill {number}"])


def _stored(folder: Path) -> Counter[object]:
    database = apsw.Connection(str(folder / "postroom.db"))
    return Counter(row[0] for row in database.execute("SELECT subject FROM messages"))


def crash_points(most: int, defect: str = "none", *, mails: int = 3) -> Tally:
    """SIGKILL at the first, second, … call of each kind, as far as a clean run has calls."""
    tally = Tally("SIGKILL at every system call")
    for call in CALLS:
        for number in _points(call, mails, most):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                inject = f"inject={call}:signal=SIGKILL:when={number}"
                _check(folder, _traced(folder, inject, mails, defect), mails, tally)
    return tally


def _points(call: str, mails: int, most: int) -> list[int]:
    """Which calls of a clean run to be killed at: all, or *most* of them spread evenly."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace"
        folder = Path(name) / "data"
        folder.mkdir()
        env = environment(folder, {"PYTHONPATH": PYTHONPATH})
        strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"]
        words = [*strace, sys.executable, "-c", RECEIVE, str(folder), str(folder / "acks")]
        words += [str(mails), "none"]
        subprocess.run(words, env=env, cwd=FOLDER, capture_output=True, check=False)
        per_thread = Counter(line.split()[0] for line in trace.read_text().splitlines())
    count = max(per_thread.values(), default=0)
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})


def failing_syncs(most: int, defect: str = "none", *, mails: int = 5) -> Tally:
    """EIO from the k-th sync on: nothing is acknowledged after it, and a restart is clean."""
    tally = Tally("EIO from every sync on")
    for call in ("fdatasync", "fsync"):
        for number in range(1, most + 1):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                inject = f"inject={call}:error=EIO:when={number}+"
                words = _traced(folder, inject, mails, defect)
                refused = "refused" in words
                after = words[words.index("refused") :] if refused else []
                tally.lost += sum(1 for word in after if word.isdigit())
                _check(folder, words, mails, tally)
    return tally
