"""Starts processes quickly: imports are loaded once, and each process is a fork.

    python -m tests.faults.fork_starter

reads a line of JSON for each command: `["start", "module:function", [argument…], environment, log,
traced]` is answered with the process id, `["wait"]` and `["poll"]` with the exit status of the last
process (`null`: still running). At the end of its input it exits and kills the last process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import ClassVar

FOLDER = Path(__file__).parents[2]
PYTHONPATH = f"{FOLDER / 'src'}{os.pathsep}{FOLDER}"
_MODULES = (
    "postroom.app", "postroom.blobs.files", "postroom.providers.smtp_relay",
    "postroom.providers.imap.provider", "postroom.store.postgres",
    "postroom.store.sqlite", "postroom.surfaces.cli.commands.serve",
    "postroom.surfaces.cli.commands.files",
    "postroom.surfaces.cli.commands.administration",
    "postroom.surfaces.mcp.server", "postroom.surfaces.rest.server",
    "postroom.surfaces.smtp.server", "tests.faults.defects", "tests.faults.crashes",
)  # fmt: skip


class ForkingStarter:
    """Runs one process at a time; the first start imports everything, the others are forks.

    Modules that one process has imported are available to the next.
    """

    _idle: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(
        self,
        target: str,
        words: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        traced: bool = False,
    ) -> None:
        """Call a function in a new process, with its output in a file.

        A process that is to be traced waits until the tracer is attached.
        """
        self.pid = int(str(self._ask("start", target, words, dict(env), str(log), traced)))

    def is_alive(self) -> bool:
        return self._ask("poll") is None

    def wait(self) -> None:
        """Wait until the process has exited."""
        self._ask("wait")

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait until the process has exited."""
        if self._process is None or not self.pid or not self.is_alive():
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        self.wait()

    def close(self) -> None:
        """End the last process."""
        if self._process is not None:
            self.end(signal.SIGKILL)
            self._idle.append(self._process)
            self._process, self.pid = None, 0

    def _ask(self, *wish: object) -> object:
        if self._process is None:
            self._process = self._idle.pop() if self._idle else _open()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wish) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())


def _open() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.fork_starter"],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _become(
    target: str, words: Sequence[str], env: Mapping[str, str], log: str, traced: bool
) -> None:
    os.environ.clear()
    os.environ.update(env)
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, file in enumerate((nothing, said, said)):
        os.dup2(file, number)
    # The stream objects of the starter have cached whether they are a file or a pipe.
    sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))  # noqa: SIM115
    if traced:
        while "TracerPid:\t0" in Path("/proc/self/status").read_text():
            time.sleep(0.005)
        time.sleep(0.02)
    module, _, function = target.partition(":")
    getattr(import_module(module), function)(*words)


def _started(arguments: Sequence[object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _become(*arguments)  # type: ignore[arg-type]
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def main() -> None:
    for name in _MODULES:
        import_module(name)
    pid, ended = 0, None
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        answer: int | None = ended
        if word == "start":
            answer = pid = _started(arguments)
            ended = None
        elif ended is None:
            found, status = os.waitpid(pid, 0 if word == "wait" else os.WNOHANG)
            answer = ended = os.waitstatus_to_exitcode(status) if found else None
        print(json.dumps(answer), flush=True)
    if pid and ended is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
