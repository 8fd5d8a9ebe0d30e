"""Free ports on loopback, and waiting until a server answers on one."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for_greeting(
    port: int, process: subprocess.Popen[bytes], log: Path, *, within_s: float = 120
) -> None:
    """Return when the server says `* OK`; raise with its log when it ends or stays silent."""
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
