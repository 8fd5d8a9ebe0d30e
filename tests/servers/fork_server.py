"""Runs Postroom commands in forks of a process that has already imported it.

A command starts without imports, which take longer than most commands. It is used by tests of what
a command or a server does; tests of how a process starts, is interrupted or ends use a new process.

    python -m tests.servers.fork_server SOCKET

answers each connection to SOCKET: it takes a line of JSON, `[words, environment, working folder]`,
with the three standard streams as file descriptors, and says the process id and then the exit code.
If the connection is closed earlier, it kills the process. It exits at the end of its standard
input.
"""

from __future__ import annotations

import array
import fcntl
import gc
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(__file__).with_name("launcher.py")
_MODULES = (
    "postroom.app",
    "postroom.blobs.files",
    "postroom.pipeline.outbox",
    "postroom.providers.accounts",
    "postroom.store.postgres",
    "postroom.store.sqlite",
    "postroom.surfaces.cli.program",
    "postroom.surfaces.cli.commands.serve",
    "postroom.surfaces.mcp.http",
    "postroom.surfaces.mcp.server",
    "postroom.surfaces.mcp.toolsets",
    "postroom.surfaces.oauth",
    "postroom.surfaces.rest.server",
    "postroom.surfaces.smtp.server",
    "postroom.surfaces.web.server",
    "uvicorn.server",
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: bytes


class Forked:
    """A command that runs in a fork, with the methods of `subprocess.Popen` that are used."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises TimeoutExpired."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts commands, each in a session of its own, so that stdin can be its terminal."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="postroom-fork-")
        self.path = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.fork_server", self.path],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self, words: list[str], env: Mapping[str, str], stdin: bytes = b"") -> CommandResult:
        """Run a command until it exits."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            code = self.start(words, env, given.fileno(), out.fileno(), err.fileno()).wait()
            out.seek(0)
            err.seek(0)
            return CommandResult(code, out.read(), err.read())

    def start(self, words: list[str], env: Mapping[str, str], *streams: int) -> Forked:
        """Start a command with these file descriptors as its streams."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path)
        wish = json.dumps([words, dict(env), str(Path.cwd())]) + "\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        sent = connection.sendmsg([wish.encode()], rights)
        connection.sendall(wish.encode()[sent:])
        return Forked(connection)

    def command(self, *words: str) -> list[str]:
        """A command line that starts a command, for programs that start processes themselves."""
        return [sys.executable, "-I", "-S", str(LAUNCHER), self.path, *words]


@cache
def shared_fork_server() -> ForkServer:
    """The fork server of this process. It exits when its socket has no writer left."""
    return ForkServer()


class _Server:
    """Forks for each connection and reports how the fork exited."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(100)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._end)
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._selector.get_map():
                    key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, 65_536, 3)
        while not data.endswith(b"\n"):
            data += connection.recv(65_536)
        pid = os.fork()
        if pid == 0:
            self._forget_others(connection)
            _become(*json.loads(data), streams=streams)
        for stream in streams:
            os.close(stream)
        connection.sendall(b"%d\n" % pid)
        ended = os.pidfd_open(pid)
        self._running[pid] = connection
        self._selector.register(ended, selectors.EVENT_READ, lambda: self._report(pid, ended))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._kill(pid))

    def _report(self, pid: int, ended: int) -> None:
        _, status = os.waitpid(pid, 0)
        connection = self._running.pop(pid)
        with suppress(KeyError):
            self._selector.unregister(connection)
        self._selector.unregister(ended)
        os.close(ended)
        with suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        connection.close()

    def _kill(self, pid: int) -> None:
        """Kill a process that nobody waits for any more."""
        self._selector.unregister(self._running[pid])
        os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        sys.exit()

    def _forget_others(self, connection: socket.socket) -> None:
        self._selector.close()
        for other in (connection, self._listener, *self._running.values()):
            other.close()


def _become(words: list[str], env: dict[str, str], folder: str, *, streams: list[int]) -> None:
    """Run a command in this process, and exit."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        random.seed()
        os.chdir(folder)
        sys.argv = ["postroom", *words]
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115
            for number, mode in enumerate(("r", "w", "w"))
        )
        import_module("postroom.__main__").main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def main() -> None:
    for name in _MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    server = _Server(sys.argv[1])
    print("ready", flush=True)
    server.serve()


if __name__ == "__main__":
    main()
