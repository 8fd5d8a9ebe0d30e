"""A client of `postroom mcp` that reads and writes single lines, valid or not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.servers.postroom import forked_command

TIMEOUT_S = 50
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "postroom", "mcp", "--data", str(folder), *options]


class StdioClient:
    """The client's end of stdin and stdout."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert "2.0" == answer["jsonrpc"]
        return answer

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and skip other messages until its response."""
        self._number += 1
        question = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.write(json.dumps(question).encode())
        while True:
            answer = self.read()
            if answer.get("id") == self._number:
                return answer

    def hello(self) -> Self:
        self.ask("initialize", **HELLO)
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=name, arguments=arguments)["result"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def started(
    folder: Path, *options: str, is_forked: bool = True, **given: Any
) -> Iterator[StdioClient]:
    """Start `postroom mcp`: in a fork if the test is about its answers, not about its process."""
    line = command(folder, *options)
    if is_forked:
        line = forked_command(*line[3:])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, **(pipes | given)) as process:
        try:
            yield StdioClient(process)
        finally:
            process.kill()
