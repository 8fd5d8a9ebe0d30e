"""A real Postroom: its own process, a free loopback port, a temporary folder."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from postroom.app import open_app
from postroom.config import read_settings
from tests.servers.fork_server import Forked, shared_fork_server
from tests.servers.ports import free_port

_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Running:
    """A running server and its address."""

    url: str
    key: str
    data: Path
    process: subprocess.Popen[bytes] | Forked
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """Its output so far."""
        return _log_of(self.data).read_text(errors="replace")

    @property
    def env(self) -> dict[str, str]:
        """The environment for other processes on the same data."""
        return environment(self.data, self.extra)


def command(*arguments: str) -> list[str]:
    """The command line of Postroom, for tests of how a process starts, is interrupted or exits."""
    return [sys.executable, "-m", "postroom", *arguments]


def forked_command(*arguments: str) -> list[str]:
    """The same command line without new imports, for tests of what a command does."""
    return shared_fork_server().command(*arguments)


def write_program(folder: Path) -> Path:
    """Write the program `postroom` for callers that look it up in PATH; it runs in a fork."""
    folder.mkdir(exist_ok=True)
    program = folder / "postroom"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(forked_command())} "$@"\n')
    program.chmod(0o755)
    return program


def environment(data: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The current environment without any settings of Postroom."""
    ours = ("POSTROOM_", "MAIL_IMAP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own = {"POSTROOM_DATA_DIR": str(data), "POSTROOM_SMTP_LISTEN": "127.0.0.1:0"}
    return {**kept, **own, **(extra or {})}


def create_store(data: Path) -> None:
    """Create an empty store, in a thread because the test may have an event loop."""
    settings = read_settings({"POSTROOM_DATA_DIR": str(data)}).settings

    async def create() -> None:
        async with open_app(settings):
            pass

    thread = Thread(target=lambda: asyncio.run(create()))
    thread.start()
    thread.join()


@contextmanager
def running(
    data: Path,
    *,
    workers: int = 1,
    options: Sequence[str] = (),
    is_forked: bool = True,
    **extra: str,
) -> Iterator[Running]:
    """Run a server."""
    key = "pk_" + secrets.token_urlsafe(24)
    port = free_port()
    env = environment(data, {"POSTROOM_API_KEY": key, "POSTROOM_PORT": str(port), **extra})
    log = _log_of(data)
    words = ["serve", "--workers", str(workers), *options]
    with log.open("wb") as output:
        process = _start(words, env, output.fileno(), is_forked=is_forked and workers == 1)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, log)
        yield Running(url, key, data, process, extra)
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _start(
    words: list[str], env: Mapping[str, str], output: int, *, is_forked: bool
) -> subprocess.Popen[bytes] | Forked:
    """Start a server; one with several workers manages processes of its own."""
    if not is_forked:
        return subprocess.Popen(command(*words), env=env, stdout=output, stderr=output)
    with Path(os.devnull).open("rb") as nothing:
        return shared_fork_server().start(words, env, nothing.fileno(), output, output)


def _log_of(data: Path) -> Path:
    return data.parent / f"{data.name}.log"


def _wait_for(url: str, process: subprocess.Popen[bytes] | Forked, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=30).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')}")
