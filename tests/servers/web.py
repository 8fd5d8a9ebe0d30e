"""A small HTTP server in a thread, for providers without a server or emulator."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(slots=True)
class HttpRequest:
    """A request as received by the server."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass(slots=True)
class HttpResponse:
    """The response; a stream of pieces stays open until it ends."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Any = None


class WebServer:
    """Listens on loopback while its `with` block does; *answer* runs in a thread of its own.

    *answer* may be replaced while it runs.
    """

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse]) -> None:
        self.answer = answer
        self.requests: list[HttpRequest] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one piece: the kernel holds back a second one for 40 ms.
            wbufsize = -1
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                request = HttpRequest(
                    self.command,
                    parts.path,
                    {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()},
                    {k.lower(): v for k, v in self.headers.items()},
                    self.rfile.read(length),
                )
                outer.requests.append(request)
                try:
                    self._send(outer.answer(request))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _send(self, given: HttpResponse) -> None:
                self.send_response(given.status)
                for name, value in given.headers.items():
                    self.send_header(name, value)
                if given.pieces is not None:
                    self.send_header("Connection", "close")
                    self.end_headers()
                    for piece in given.pieces:
                        self.wfile.write(piece)
                        self.wfile.flush()
                    self.close_connection = True
                    return
                body = given.body
                if body is None:
                    data = b""
                elif isinstance(body, bytes):
                    data = body
                else:
                    data = json.dumps(body).encode()
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Do not log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        # How often it checks whether to stop.
        serve = partial(self._server.serve_forever, poll_interval=0.02)
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
