"""Fault drills against a real server: each counts what was tried, lost, doubled and torn.

    python -m tests.faults.drills [SCALE]

ends with the table, and with 1 if anything but `tried` is not zero.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tests.faults.defects import LEASE_S
from tests.mails import mail
from tests.servers.postroom import environment, free_port
from tests.servers.relay import Relay, relaying

PATIENCE_S = 60
FOLDER = Path(__file__).parents[2]


@dataclass
class Tally:
    """What a drill found."""

    name: str
    tried: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0

    @property
    def is_clean(self) -> bool:
        return self.lost == self.doubled == self.torn == 0


class Server:
    """A Postroom in a process of its own that can be killed and started again."""

    def __init__(self, data: Path, defect: str = "none", **extra: str) -> None:
        self.data, self.defect = data, defect
        self.key = "pk_" + secrets.token_urlsafe(24)
        self.port, self.smtp = free_port(), free_port()
        self._env = environment(
            data,
            {
                "POSTROOM_API_KEY": self.key,
                "POSTROOM_PORT": str(self.port),
                "POSTROOM_SMTP_LISTEN": f"127.0.0.1:{self.smtp}",
                "PYTHONPATH": f"{FOLDER / 'src'}{os.pathsep}{FOLDER}",
                **extra,
            },
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.faults.defects", self.defect, "serve"]
        self._process = subprocess.Popen(
            words, env=self._env, cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(OSError, urllib.error.URLError):
                self.ask("GET", "/readyz")
                return
            assert self._process.poll() is None, "the server ended"
            time.sleep(0.02)
        raise RuntimeError("the server did not start")

    def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            found: dict[str, object] = json.load(response)
            return found

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Look into the database, past everything that could hide something."""
        return apsw.Connection(str(self.data / "postroom.db")).execute(sql).fetchall()

    def problems(self) -> int:
        words = [sys.executable, "-m", "postroom", "-o", "json", "verify"]
        done = subprocess.run(words, env=self._env, cwd=FOLDER, capture_output=True, check=False)
        return len(json.loads(done.stdout)["problems"])


@contextmanager
def server(defect: str, **extra: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        opened = Server(Path(name) / "data", defect, **extra)
        opened.start()
        try:
            yield opened
        finally:
            opened.kill()


async def _smtp(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b"EHLO drill\r\n")
    while (await reader.readline())[3:4] == b"-":
        pass
    return reader, writer


async def _send_until_dead(
    port: int, mails: list[bytes], stop_after: int, kill: Callable[[], None]
) -> int:
    """How many of the mails were acknowledged before the server died."""
    acked = 0
    with suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await _smtp(port)
        for raw in mails:
            lines = (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA", raw + b".")
            reply = b""
            for line in lines:
                writer.write(line + b"\r\n")
                reply = await asyncio.wait_for(reader.readline(), PATIENCE_S)
                if not reply:
                    return acked
            if reply.startswith(b"250"):
                acked += 1
            if acked == stop_after:
                kill()
    return acked


def killed_while_receiving(rounds: int, defect: str = "none", seed: int = 1) -> Tally:
    """Kill -9 after a random number of acknowledgements; the sender repeats its last five."""
    tally, chance = Tally("kill -9 while receiving (SMTP)"), random.Random(seed)
    mails = [mail(f"drill {number}").replace(b"\n", b"\r\n") for number in range(rounds * 40)]
    acked = 0
    with server(defect) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        for _ in range(rounds):
            stop_after = chance.randint(1, 30)
            start = max(0, acked - 5)
            count = asyncio.run(
                _send_until_dead(running.smtp, mails[start:], stop_after, running.kill)
            )
            acked = max(acked, start + count)
            running.kill()
            running.start()
            tally.tried += 1
        stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
        events = Counter(
            row[0] for row in running.rows("SELECT message FROM events WHERE type LIKE '%received'")
        )
        tally.acknowledged = acked
        tally.lost = sum(1 for number in range(acked) if not stored[f"drill {number}"])
        tally.doubled = sum(count - 1 for count in (stored + events).values() if count > 1)
        tally.torn = running.problems()
    return tally


STAGES = ("MAIL", "RCPT", "DATA", "DOT", "after")


def killed_while_sending(rounds: int, defect: str = "none") -> Tally:
    """Kill -9 at each stage of handing a mail over; callers repeat with the same key."""
    return asyncio.run(_killed_while_sending(rounds, defect))


async def _killed_while_sending(rounds: int, defect: str) -> Tally:
    tally = Tally("kill -9 while sending, same key again")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            sent: list[str] = []
            for number in range(rounds):
                sent.append(await _one_send(running, relay, number, STAGES[number % len(STAGES)]))
                tally.tried += 1
            await _settle(running, sent)
            statuses = [await asyncio.to_thread(_status, running, one) for one in sent]
            taken = Counter(_subject(m.data) for m in relay.mails)
            tally.acknowledged = len(sent)
            tally.doubled = sum(count - 1 for count in taken.values() if count > 1)
            tally.doubled += len(sent) - len(set(sent))
            tally.lost = sum(
                1
                for number, status in enumerate(statuses)
                if status not in ("sent", "unknown")
                or (status == "sent" and not taken[f"drill {number}"])
            )
            tally.torn = await asyncio.to_thread(running.problems)
    return tally


def _subject(data: bytes) -> str:
    return data.partition(b"Subject: ")[2].partition(b"\r\n")[0].decode()


async def _one_send(running: Server, relay: Relay, number: int, stage: str) -> str:
    """Send, and kill the server when the relay is at a stage; then ask again with the same key."""
    dead = asyncio.Event()

    def at_stage(_line: str) -> bytes:
        if not dead.is_set():
            dead.set()
            running.kill()
        return b"250 2.0.0 ok" if stage != "DATA" else b"354 go ahead"

    relay.script = {} if stage == "after" else {stage: at_stage}
    letter = {
        "to": ["ana@example.com"],
        "subject": f"drill {number}",
        "body_text": "x",
        "idempotency_key": f"key {number}",
    }
    answer: dict[str, object] = {}
    with suppress(OSError, urllib.error.URLError):
        answer = await asyncio.to_thread(running.ask, "POST", "/v1/messages", letter)
    if stage == "after":
        await asyncio.sleep(0.05)
        running.kill()
    else:
        with suppress(TimeoutError):
            await asyncio.wait_for(dead.wait(), 10)
    relay.script = {}
    running.kill()
    await asyncio.to_thread(running.start)
    again = await asyncio.to_thread(running.ask, "POST", "/v1/messages", letter)
    assert not answer or answer["message_id"] == again["message_id"]
    return str(again["message_id"])


async def _settle(running: Server, sent: list[str]) -> None:
    """Wait until the leases of the dead are over and nothing is on its way any more."""
    deadline = time.monotonic() + LEASE_S + PATIENCE_S
    while time.monotonic() < deadline:
        statuses = {await asyncio.to_thread(_status, running, one) for one in sent}
        if statuses <= {"sent", "unknown", "failed", "bounced"}:
            return
        await asyncio.sleep(0.5)


def _status(running: Server, message_id: str) -> str:
    return str(running.ask("GET", f"/v1/messages/{message_id}")["status"])


RECEIVE = """
import asyncio, os, sys
from pathlib import Path
from postroom.blobs.files import FileBlobs
from postroom.pipeline.house import House
from postroom.store.sqlite import open_store
from tests.mails import deliver, mail, new_inbox

async def main():
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


def _traced(folder: Path, inject: str, count: int, *, fresh: bool = True) -> list[str]:
    """Receive some mails under strace; what was acknowledged."""
    log = folder / "acks"
    if fresh:
        log.unlink(missing_ok=True)
    env = environment(folder, {"PYTHONPATH": f"{FOLDER / 'src'}{os.pathsep}{FOLDER}"})
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject] if inject else []
    words = [*strace, sys.executable, "-c", RECEIVE, str(folder), str(log), str(count)]
    subprocess.run(words, env=env, cwd=FOLDER, capture_output=True, check=False, timeout=300)
    return log.read_text().split() if log.exists() else []


def _check(folder: Path, acked: set[str], tally: Tally) -> None:
    env = environment(folder, {"PYTHONPATH": str(FOLDER / "src")})
    words = [sys.executable, "-m", "postroom", "-o", "json", "verify"]
    done = subprocess.run(words, env=env, cwd=FOLDER, capture_output=True, check=False)
    tally.torn += len(json.loads(done.stdout)["problems"])
    database = apsw.Connection(str(folder / "postroom.db"))
    stored = Counter(row[0] for row in database.execute("SELECT subject FROM messages"))
    tally.lost += sum(1 for number in acked if not stored[f"drill {number}"])
    tally.doubled += sum(count - 1 for count in stored.values() if count > 1)
    tally.acknowledged += len(acked)


def crash_points(most: int, mails: int = 3) -> Tally:
    """SIGKILL at the first, second, … call of each kind, as far as a clean run has calls."""
    tally = Tally("SIGKILL at every system call")
    for call in CALLS:
        for number in _points(call, mails, most):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                inject = f"inject={call}:signal=SIGKILL:when={number}"
                acked = _traced(folder, inject, mails)
                again = _traced(folder, "", mails, fresh=False)
                numbers = {word for word in (*acked, *again) if word.isdigit()}
                tally.tried += 1
                _check(folder, numbers, tally)
    return tally


def _points(call: str, mails: int, most: int) -> list[int]:
    """Which calls of a clean run to be killed at: all, or *most* of them spread evenly."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace"
        folder = Path(name) / "data"
        folder.mkdir()
        env = environment(folder, {"PYTHONPATH": f"{FOLDER / 'src'}{os.pathsep}{FOLDER}"})
        strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"]
        words = [*strace, sys.executable, "-c", RECEIVE, str(folder), str(folder / "acks")]
        subprocess.run([*words, str(mails)], env=env, cwd=FOLDER, capture_output=True, check=False)
        per_thread = Counter(line.split()[0] for line in trace.read_text().splitlines())
    count = max(per_thread.values(), default=0)
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})


def failing_syncs(most: int, mails: int = 5) -> Tally:
    """EIO from the k-th sync on: nothing is acknowledged after it, and a restart is clean."""
    tally = Tally("EIO from every sync on")
    for call in ("fdatasync", "fsync"):
        for number in range(1, most + 1):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                inject = f"inject={call}:error=EIO:when={number}+"
                words = _traced(folder, inject, mails)
                refused = "refused" in words
                after = words[words.index("refused") :] if refused else []
                tally.lost += sum(1 for word in after if word.isdigit())
                again = _traced(folder, "", mails, fresh=False)
                tally.tried += 1
                _check(folder, {w for w in (*words, *again) if w.isdigit()}, tally)
    return tally


def full_disk(rounds: int) -> Tally:
    """A full disk: 452, reads go on, and there is room again without a restart. Needs root."""
    tally = Tally("disk full (tmpfs of 24 MB)")
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "drill", name], check=True)
            try:
                _fill(Path(name), tally)
            finally:
                subprocess.run(["umount", "-l", name], check=True)
    return tally


def _fill(folder: Path, tally: Tally) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 8 * 2**20)
    running = Server(folder / "data")
    running.start()
    try:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        raws = [
            mail(f"drill {n}", secrets.token_hex(100_000)).replace(b"\n", b"\r\n")
            for n in range(120)
        ]
        replies = asyncio.run(_flood(running.smtp, raws))
        refused = [n for n, reply in enumerate(replies) if not reply.startswith(b"250")]
        tally.torn += sum(1 for n in refused if not replies[n].startswith(b"452 4.3.1"))
        tally.torn += 0 if refused else 1
        running.ask("GET", "/v1/search/messages?q=drill")
        ballast.unlink()
        again = asyncio.run(_flood(running.smtp, [raws[n] for n in refused[:10]]))
        tally.torn += sum(1 for reply in again if not reply.startswith(b"250"))
        stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
        acked = [n for n in range(len(raws)) if n not in refused] + refused[:10]
        tally.tried += 1
        tally.acknowledged += len(acked)
        tally.lost += sum(1 for n in acked if not stored[f"drill {n}"])
        tally.doubled += sum(count - 1 for count in stored.values() if count > 1)
        tally.torn += running.problems()
    finally:
        running.kill()


async def _flood(port: int, raws: list[bytes]) -> list[bytes]:
    reader, writer = await _smtp(port)
    replies = []
    for raw in raws:
        reply = b""
        for line in (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA", raw + b"."):
            writer.write(line + b"\r\n")
            reply = await reader.readline()
            if reply[:1] in b"45" and not line.startswith(raw[:20]):
                break
        replies.append(reply)
    writer.close()
    return replies


def table(tallies: list[Tally]) -> str:
    rows = [("drill", "tried", "acknowledged", "lost", "doubled", "torn")]
    rows += [
        (t.name, *(str(n) for n in (t.tried, t.acknowledged, t.lost, t.doubled, t.torn)))
        for t in tallies
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|---|---|---|", *lines[1:]])


def main() -> int:
    scale = float(sys.argv[1]) if sys.argv[1:] else 0.1
    share = lambda full: max(2, round(full * scale))  # noqa: E731
    tallies = []
    for drill, count in (
        (killed_while_receiving, share(1_000)),
        (killed_while_sending, share(1_000)),
        (crash_points, share(250)),
        (failing_syncs, share(200)),
        (full_disk, share(10)),
    ):
        tallies.append(drill(count))
        print(tallies[-1], flush=True)
    print(table(tallies))
    return 0 if all(tally.is_clean for tally in tallies) else 1


if __name__ == "__main__":
    sys.exit(main())
