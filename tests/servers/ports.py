"""Free ports on loopback, and waiting until a server answers on one."""

from __future__ import annotations

import itertools
import os
import random
import socket
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path


class _Ports:
    """Reserves ports for servers that do not listen yet.

    They are below the kernel's ephemeral ports. Each process reserves a block of them by binding a
    socket address, which the kernel frees when the process exits.
    """

    FIRST, BLOCK, BLOCKS = 10_000, 250, 88

    def __init__(self) -> None:
        self._held, number = self._claim()
        first = self.FIRST + number * self.BLOCK
        self._next = itertools.cycle(range(first, first + self.BLOCK))

    def _claim(self) -> tuple[socket.socket, int]:
        held = socket.socket(socket.AF_UNIX)
        for number in random.sample(range(self.BLOCKS), self.BLOCKS):
            with suppress(OSError):
                held.bind(f"\0postroom-tests-ports-{number}")
                return held, number
        held.close()
        raise RuntimeError("no ports are left: other tests have them all")

    def take(self) -> int:
        """The next port of the block that is not in use."""
        for port in itertools.islice(self._next, self.BLOCK):
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
        raise RuntimeError("somebody listens on each of our ports")


@cache
def _ports(pid: int) -> _Ports:
    """The ports of this process: a fork has other ports."""
    return _Ports()


def free_port() -> int:
    """An unused port on loopback that is not given to any other test."""
    return _ports(os.getpid()).take()


def wait_for_greeting(
    port: int, process: subprocess.Popen[bytes], log: Path, *, within_s: float = 120
) -> None:
    """Wait until the server says `* OK`; raises with its log if it exits or times out."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                probe.settimeout(5)
                if probe.recv(200).startswith(b"* OK"):
                    return
        except OSError:
            pass
        time.sleep(0.01)
    said = log.read_text(errors="replace") if log.exists() else "nothing in its log"
    raise RuntimeError(f"the server does not answer: {said[-2000:]}")
