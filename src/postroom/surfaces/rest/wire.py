"""HTTP as it comes over the wire, where uvicorn would answer in its own words."""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol

from postroom.surfaces.rest.problems import problem
from postroom.surfaces.rest.surface import new_request_id

MOST_HEAD_BYTES = 128 * 1024
"""The longest request line and headers: 50 labels of 128 characters, percent-encoded, fit."""


class Protocol(H11Protocol):
    """Tells a client that does not speak HTTP so as a problem, like every other error."""

    def send_400_response(self, msg: str) -> None:
        if not getattr(self.cycle, "response_started", False):
            self.transport.write(_not_http())
        self.transport.close()


def _not_http() -> bytes:
    request_id = new_request_id()
    detail = "this is not a request in HTTP/1.1, or its head is too long"
    response = problem("malformed", detail, {"path": "/", "request_id": request_id})
    head = [
        b"HTTP/1.1 400 Bad Request",
        b"connection: close",
        b"x-request-id: " + request_id.encode(),
    ]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
