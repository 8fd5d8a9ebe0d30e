"""Functions to run in a worker process; each misbehaves in one way that must be contained."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path


def uppercase(data: bytes, argument: int) -> str:
    return data.decode().upper() * argument


def raise_error(data: bytes, argument: int) -> str:
    raise ValueError("I would rather\nnot")


def loop_forever(data: bytes, argument: int) -> str:
    while True:
        pass


def allocate(data: bytes, argument: int) -> str:
    return str(len([bytes(argument) for _ in range(1_000)]))


def print_garbage(data: bytes, argument: int) -> str:
    return "x" * argument


def crash(data: bytes, argument: int) -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    return "still here"


def write_file(data: bytes, argument: int) -> str:
    Path(data.decode()).write_bytes(b"x")
    return "written"


def connect(data: bytes, argument: int) -> str:
    socket.create_connection(("127.0.0.1", argument), 5).close()
    return "connected"


def environment(data: bytes, argument: int) -> str:
    return " ".join(sorted(os.environ))


def read_file(data: bytes, argument: int) -> str:
    return Path(data.decode()).read_text()


def find_module(data: bytes, argument: int) -> str:
    return "found" if data.decode() in sys.modules else "missing"
