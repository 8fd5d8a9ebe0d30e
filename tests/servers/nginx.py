"""A real nginx on loopback with the shipped configuration for cells; only ports and
files differ.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.certificates import Certificate, certificate
from tests.servers.ports import free_port

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx-cells.conf"
DOMAIN = "mail.example.com"
TIMEOUT_S = 60
_MAIN = """
{user}
worker_processes 2;
daemon off;
pid {home}/nginx.pid;
error_log {home}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    include {home}/cells.conf;
}}
"""
_UPSTREAM = re.compile(r"^upstream cell_\w+ .*\n", re.MULTILINE)
_ROW = re.compile(r"^    \w+ +cell_\w+;\n", re.MULTILINE)


@dataclass(eq=False)
class Nginx:
    """A running router."""

    home: Path
    port: int
    tls: Certificate
    process: subprocess.Popen[bytes] | None = None
    cells: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def configure(self, cells: Mapping[str, str]) -> None:
        """Write the shipped configuration with the addresses of these cells."""
        self.cells = dict(cells)
        text = SHIPPED.read_text()
        upstreams = "".join(
            f"upstream cell_{name} {{ server {at}; keepalive 32; }}\n" for name, at in cells.items()
        )
        rows = "".join(f"    {name} cell_{name};\n" for name in cells)
        text = _once(_UPSTREAM, upstreams, text)
        text = _once(_ROW, rows, text)
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;")
        folder = f"/etc/letsencrypt/live/{DOMAIN}"
        text = text.replace(f"{folder}/fullchain.pem", str(self.tls.cert))
        text = text.replace(f"{folder}/privkey.pem", str(self.tls.key))
        (self.home / "cells.conf").write_text(text)
        user = "user root;" if os.geteuid() == 0 else ""  # its folder is private
        (self.home / "nginx.conf").write_text(_MAIN.format(home=self.home, user=user))
        subprocess.run(self._arguments("-t", "-q"), check=True)

    def start(self) -> None:
        self.process = subprocess.Popen(self._arguments())
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise RuntimeError(f"nginx did not start: {(self.home / 'error.log').read_text()}")

    def reload(self) -> None:
        """Reload the configuration, and wait for the new workers."""
        assert self.process is not None
        before = self._workers()
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._workers() - before:
            assert time.monotonic() < deadline, (self.home / "error.log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(TIMEOUT_S)

    def _workers(self) -> set[int]:
        assert self.process is not None
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def _arguments(self, *more: str) -> list[str]:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
        return [program, "-p", str(self.home), "-c", str(self.home / "nginx.conf"), *more]


def _once(pattern: re.Pattern[str], new: str, text: str) -> str:
    """Replace the first match, and remove the others."""
    first = pattern.search(text)
    assert first is not None, pattern
    text = text[: first.start()] + "\0\n" + text[first.end() :]
    return pattern.sub("", text).replace("\0\n", new)


@contextmanager
def nginx(folder: Path, cells: Mapping[str, str]) -> Iterator[Nginx]:
    """Run a router in front of these cells."""
    folder.mkdir(parents=True, exist_ok=True)
    tls = certificate(folder / "tls", "localhost", DOMAIN, f"*.{DOMAIN}")
    router = Nginx(folder, free_port(), tls)
    router.configure(cells)
    router.start()
    try:
        yield router
    finally:
        router.stop()
