"""The overhead of REST over the operation it calls: CPU per request, and the ratio.

    .venv/bin/python -m bench.rest [messages]

Each figure is the best of several batches, which reduces the effect of other load.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.mail import messages
from postroom.surfaces.rest.server import build
from tests.mails import deliver, mail, new_inbox

BATCHES, REQUESTS = 15, 40
UNLIMITED = {
    "POSTROOM_LIMIT_REQUESTS_PER_SECOND": "50000",
    "POSTROOM_LIMIT_REQUESTS_BURST": "200000",
}


async def cpu_us(work: Callable[[], Awaitable[Any]]) -> float:
    """CPU of one call in microseconds, all threads of this process together."""
    await work()
    best = float("inf")
    for _ in range(BATCHES):
        started = time.process_time()
        for _ in range(REQUESTS):
            await work()
        best = min(best, (time.process_time() - started) / REQUESTS)
    return best * 1e6


def requester(asgi: Any, key: str) -> Callable[[str, str], Callable[[], Awaitable[None]]]:
    """Makes requests without a network, so that only our own code is measured."""

    def make(path: str, query: str = "") -> Callable[[], Awaitable[None]]:
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())],
            "client": ("127.0.0.1", 1),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            assert message.get("status", 200) == 200, message

        return lambda: asgi(scope, receive, send)

    return make


async def measure(app: App, count: int) -> None:
    inbox = await new_inbox(app.services)
    for number in range(count):
        added = await deliver(app.services, inbox, mail(f"Invoice {number}", "Good morning. " * 80))
    request = requester(build(app), await app.owner_key() or "")
    ctx = app.context(OWNER)
    cases = [
        (
            "list of 50",
            lambda: call(ctx, messages.list_messages, {"inbox_id": inbox.id}),
            request("/v1/messages", f"inbox_id={inbox.id}"),
        ),
        (
            "one message",
            lambda: call(ctx, messages.get_message, {"message_id": added.message_id}),
            request(f"/v1/messages/{added.message_id}", ""),
        ),
    ]
    print(f"{'':14}{'operation':>12}{'REST':>12}{'above it':>12}{'ratio':>8}")
    for name, bare, over_rest in cases:
        inside, whole = await cpu_us(bare), await cpu_us(over_rest)
        above = whole - inside
        print(f"{name:14}{inside:9.0f} µs{whole:9.0f} µs{above:9.0f} µs{whole / inside:8.2f}")
    print(f"{'access control alone':26}{await cpu_us(request('/healthz', '')):9.0f} µs")


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings({"POSTROOM_DATA_DIR": folder, **UNLIMITED}).settings
        async with open_app(settings) as app:
            await measure(app, count)


asyncio.run(main())
