"""Runs commands of Postroom in forks of a process that has imported it already.

A command line starts without importing everything anew. It is used where a test is about what a
command does; tests of how a process starts, is interrupted or ends start one of their own.

    python -m tests.servers.fork_server

reads a line of JSON for each command, `[words, environment, working folder, stdin, stdout,
stderr]`, the last three as paths, and answers with its process id and then with its exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MODULES = (
    "postroom.app",
    "postroom.store.postgres",
    "postroom.store.sqlite",
    "postroom.surfaces.cli.program",
    "postroom.surfaces.cli.commands.serve",
    "postroom.surfaces.mcp.server",
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: bytes
    err: bytes


class ForkServer:
    """Runs one command at a time, each in a session of its own: a terminal as stdin controls it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.fork_server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, words: list[str], env: Mapping[str, str], stdin: bytes = b"") -> Ended:
        with self.lock, tempfile.TemporaryDirectory() as name:
            files = [Path(name) / stream for stream in ("in", "out", "err")]
            files[0].write_bytes(stdin)
            self.start(words, env, *map(str, files))
            return Ended(self.wait(), files[1].read_bytes(), files[2].read_bytes())

    def start(self, words: list[str], env: Mapping[str, str], *streams: str) -> int:
        """Start a command with these files as its streams; its process id."""
        assert self._process.stdin is not None
        wish = [words, dict(env), str(Path.cwd()), *streams]
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """The exit code of the command that was started."""
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@cache
def shared_fork_server() -> ForkServer:
    """The one of this process. It ends when nobody can write to it any more."""
    return ForkServer()


def _become(words: list[str], env: dict[str, str], folder: str, *streams: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(folder)
    for number, path in enumerate(streams):
        flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o600), number)
    sys.argv = ["postroom", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False)  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )
    import_module("postroom.__main__").main()


def main() -> None:
    for name in _MODULES:
        import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _become(*json.loads(line))
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
