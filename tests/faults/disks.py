"""Drills with a full disk and with a disk that fails."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.server_under_test import (
    Outcome,
    ServerUnderTest,
    count_duplicates,
    send_all,
    server,
    until_traced,
)
from tests.mails import mail


def full_disk(rounds: int, defect: str = "none") -> Outcome:
    """A full disk: SMTP replies 452, reads work, and mail is accepted again without a restart.

    Needs root. First one disk has all files; then the disk with the blobs alone is full.
    """
    outcome = Outcome("disk full (tmpfs of 24 MB)")
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            data = Path(name) / "data"
            disk = data if number % 2 == 0 else data / "blobs"
            disk.mkdir(parents=True)
            words = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "drill", str(disk)]
            subprocess.run(words, check=True)
            try:
                _fill(data, disk / "ballast", outcome, defect)
            finally:
                subprocess.run(["umount", "-l", str(disk)], check=True)
    return outcome


def _fill(data: Path, ballast: Path, outcome: Outcome, defect: str) -> None:
    ballast.write_bytes(b"x" * 8 * 2**20)
    running = ServerUnderTest(data, defect)
    try:
        running.start()
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        raws = _large_mails(120)
        replies = asyncio.run(send_all(running.smtp, raws))
        refused = [n for n, reply in enumerate(replies) if not reply.startswith(b"250")]
        outcome.torn += sum(1 for n in refused if not replies[n].startswith(b"452 4.3.1"))
        outcome.torn += 0 if refused else 1
        outcome.torn += _says(running, ready=503, receive=507)
        outcome.torn += _tool_says(running) != "storage_full"
        outcome.torn += running.ask("GET", "/v1/search/messages?q=drill")["total"] == 0
        ballast.unlink()
        again = asyncio.run(send_all(running.smtp, [raws[n] for n in refused[:5]]))
        outcome.torn += sum(1 for reply in again if not reply.startswith(b"250"))
        outcome.torn += _says(running, ready=200, receive=201)
        acked = [n for n in range(len(raws)) if n not in refused] + refused[:5]
        _compare(running, outcome, acked)
    finally:
        running.close()


def _large_mails(count: int) -> list[bytes]:
    texts = (_text(100_000) for _ in range(count))
    return [mail(f"drill {n}", text).replace(b"\n", b"\r\n") for n, text in enumerate(texts)]


def _says(running: ServerUnderTest, *, ready: int, receive: int, within_s: float = 60) -> int:
    """The number of responses that differ from the documented ones."""
    _until_looked(running, ready, within_s)
    probe = mail("probe", _text(100_000))
    answers = [
        running.status("GET", "/healthz") == 200,
        running.status("GET", "/readyz") == ready,
        running.status("POST", "/v1/inbound?recipient=bo@postroom.localhost", probe) == receive,
    ]
    return answers.count(False)


def _until_looked(running: ServerUnderTest, ready: int, within_s: float) -> None:
    """Wait for the response of `/readyz`, with a limit: it checks at most once a second."""
    deadline = time.monotonic() + within_s
    while running.status("GET", "/readyz") != ready and time.monotonic() < deadline:
        time.sleep(0.05)


def _tool_says(running: ServerUnderTest) -> str | None:
    """The kind of error that an MCP client gets for a send; none if the mail is sent."""
    outgoing_mail = {
        "to": ["bo@postroom.localhost"],
        "subject": "probe",
        "body_text": _text(100_000),
    }
    asked = {"name": "send_message", "arguments": outgoing_mail}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    result: Any = running.ask("POST", "/mcp", call)["result"]
    return result["structuredContent"]["error"]["details"]["kind"] if result["isError"] else None


def _text(count: int) -> str:
    return secrets.token_hex(count)


def _compare(running: ServerUnderTest, outcome: Outcome, acked: list[int]) -> None:
    stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
    outcome.tried += 1
    outcome.acknowledged += len(acked)
    outcome.lost += sum(1 for n in acked if not stored[f"drill {n}"])
    outcome.doubled += count_duplicates(Counter({k: v for k, v in stored.items() if k != "probe"}))
    outcome.torn += running.problems()


def broken_disk(rounds: int, defect: str = "none") -> Outcome:
    """Every sync fails from some moment on: nothing is acknowledged until a restart."""
    outcome = Outcome("disk broken under a running server")
    for number in range(rounds):
        with server(defect) as running:
            running.ask("POST", "/v1/inboxes", {"username": "bo"})
            raws = [mail(f"drill {n}").replace(b"\n", b"\r\n") for n in range(10 + number % 10)]
            before = asyncio.run(send_all(running.smtp, raws[:5]))
            with _failing(running):
                during = asyncio.run(send_all(running.smtp, raws[5:]))
                within_s = 60 if defect == "none" else 3  # a defect hides the failure
                outcome.torn += _says(running, ready=503, receive=500, within_s=within_s)
            outcome.lost += sum(1 for reply in during if reply.startswith(b"250"))
            outcome.torn += sum(1 for reply in during if not reply.startswith(b"451 4.3.0"))
            running.kill()
            running.start()
            again = asyncio.run(send_all(running.smtp, raws))
            outcome.torn += sum(1 for reply in (*before, *again) if not reply.startswith(b"250"))
            _compare(running, outcome, list(range(len(raws))))
    return outcome


@contextmanager
def _failing(running: ServerUnderTest) -> Iterator[None]:
    """Make every sync of a server fail from now on."""
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(running.pid), "-e"]
    inject = "inject=fsync,fdatasync,syncfs:error=EIO"
    strace = subprocess.Popen([*words, inject], stderr=subprocess.PIPE)
    try:
        until_traced(running.pid)
        yield
    finally:
        strace.terminate()
        strace.wait()
