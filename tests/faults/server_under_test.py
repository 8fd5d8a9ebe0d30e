"""A server that is killed and restarted by the drills, and the outcome of a drill."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw
import psycopg

from tests.faults.fork_starter import FOLDER, PYTHONPATH, ForkingStarter
from tests.servers.ports import free_port
from tests.servers.postroom import environment

TIMEOUT_S = 300


@dataclass
class Outcome:
    """The result of a drill."""

    name: str
    tried: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0

    @property
    def is_clean(self) -> bool:
        return self.lost == self.doubled == self.torn == 0


class ServerUnderTest:
    """A Postroom in a process of its own that can be killed and started again."""

    def __init__(self, data: Path, defect: str = "none", workers: int = 1, **extra: str) -> None:
        self.data, self.defect, self._workers = data, defect, workers
        self._database = extra.get("POSTROOM_DATABASE_URL")
        self._log = data.parent / f"{data.name}.log"
        self.key = "pk_" + secrets.token_urlsafe(24)
        self.port, self.smtp = free_port(), free_port()
        self._env = environment(
            data,
            {
                "POSTROOM_API_KEY": self.key,
                "POSTROOM_PORT": str(self.port),
                "POSTROOM_SMTP_LISTEN": f"127.0.0.1:{self.smtp}",
                "PYTHONPATH": PYTHONPATH,
                **extra,
            },
        )
        self._starter = ForkingStarter()

    @property
    def env(self) -> dict[str, str]:
        """The environment in which it is started."""
        return dict(self._env)

    def set(self, name: str, value: str) -> None:
        """Change a setting before the next start."""
        self._env[name] = value

    def start(self) -> None:
        words = [self.defect, "serve", "--workers", str(self._workers)]
        self._starter.start("tests.faults.defects:run", words, self._env, self._log)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError, urllib.error.URLError):
                self.ask("GET", "/readyz")
                return
            assert self._starter.is_alive(), f"the server ended: {self._log_end()}"
            time.sleep(0.02)
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1)
        raise RuntimeError(f"the server did not start: {self._log_end()}")

    def _log_end(self) -> str:
        """The end of its log; after SIGUSR1 it shows the stack of each thread."""
        return self._log.read_text("utf-8", "replace")[-6_000:]

    def kill(self) -> None:
        """Kill the server and the worker processes that it has started."""
        workers = _children(self.pid) if self.pid and self._starter.is_alive() else []
        self._starter.end(signal.SIGKILL)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(_is_alive(pid) for pid in workers):
            time.sleep(0.01)

    def stop(self) -> None:
        self._starter.end(signal.SIGTERM)

    def close(self) -> None:
        """Kill the server and end its starter process."""
        self.kill()
        self._starter.close()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            },
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found: dict[str, object] = json.load(response)
            return found

    def status(self, method: str, path: str, body: bytes | None = None) -> int:
        """The status of a response, successful or not."""
        login = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, method=method, data=body, headers=login)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    @property
    def pid(self) -> int:
        return self._starter.pid

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Read rows from the database directly, without the code under test."""
        if self._database is not None:
            with psycopg.connect(self._database) as connection:
                return connection.execute(sql.encode()).fetchall()
        return apsw.Connection(str(self.data / "postroom.db")).execute(sql).fetchall()

    def problems(self) -> int:
        words = [sys.executable, "-m", "postroom", "-o", "json", "verify"]
        done = subprocess.run(words, env=self._env, cwd=FOLDER, capture_output=True, check=False)
        return len(json.loads(done.stdout)["problems"])


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until_traced(pid: int) -> None:
    """Wait until every thread of a process is traced."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        if all("TracerPid:\t0" not in (task / "status").read_text() for task in tasks):
            return
        time.sleep(0.02)
    raise RuntimeError("the process is not traced")


@contextmanager
def server(defect: str, workers: int = 1, **extra: str) -> Iterator[ServerUnderTest]:
    with tempfile.TemporaryDirectory() as name:
        opened = ServerUnderTest(Path(name) / "data", defect, workers, **extra)
        opened.start()
        try:
            yield opened
        finally:
            opened.close()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b"EHLO drill\r\n")
    while (await reader.readline())[3:4] == b"-":
        pass
    return reader, writer


async def send_all(port: int, raws: Sequence[bytes]) -> list[bytes]:
    """Send mails in sequence on one connection; returns the last reply to each."""
    reader, writer = await connect(port)
    replies = []
    for raw in raws:
        reply = b""
        for line in (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA", raw + b"."):
            writer.write(line + b"\r\n")
            reply = await reader.readline()
            if reply[:1] in b"45":
                break
        replies.append(reply)
    writer.close()
    return replies


def count_duplicates(counted: Counter[object]) -> int:
    """The number of surplus copies."""
    return sum(count - 1 for count in counted.values() if count > 1)
