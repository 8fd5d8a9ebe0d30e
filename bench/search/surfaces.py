"""The cost of REST and MCP over HTTP compared with the store, without a network."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.search.questions import Question
from postroom.app import open_app
from postroom.config import read_settings
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build

_BATCHES, _REQUESTS = 8, 8
_UNLIMITED = {
    "POSTROOM_LIMIT_REQUESTS_PER_SECOND": "50000",
    "POSTROOM_LIMIT_REQUESTS_BURST": "200000",
}


async def overheads(
    folder: Path, inbox_id: str, questions: Sequence[Question]
) -> AsyncIterator[tuple[Question, dict[str, float]]]:
    """CPU in milliseconds of each search: in the store, through REST, and through MCP."""
    settings = read_settings({**_UNLIMITED, "POSTROOM_DATA_DIR": str(folder)}).settings
    async with open_app(settings) as app:
        key = await app.reset_owner_key()
        access = AccessControl.of(app, no_auth=False)
        mcp = http_app(app, access, toolsets=settings.toolsets, read_only=False)
        asgi = build(app, mounts={"/mcp": mcp}, lifespans=[mcp.lifespan])
        async with mcp.lifespan():
            for question in questions:
                arguments = {"inbox_id": inbox_id, "q": question.q, "limit": 50}
                query = MessageQuery(
                    visible=EVERYTHING, inbox_id=inbox_id, q=question.q, page=Slice(50)
                )
                call = {"name": "search_messages", "arguments": arguments}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                works = {
                    "store": partial(app.services.store.messages, query),
                    "REST": _request(asgi, key, "GET", "/v1/search/messages", urlencode(arguments)),
                    "MCP": _request(asgi, key, "POST", "/mcp", body=json.dumps(body)),
                }
                yield question, await _cpu_ms(works)


async def _cpu_ms(works: Mapping[str, Callable[[], Awaitable[Any]]]) -> dict[str, float]:
    """The lowest CPU time of each; they alternate, so that other load affects all of them."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(_BATCHES):
        for name, work in works.items():
            await work()
            started = time.process_time()
            for _ in range(_REQUESTS):
                await work()
            took = (time.process_time() - started) / _REQUESTS
            best[name] = min(best[name], took * 1_000)
    return best


def _request(
    asgi: Any, key: str, method: str, path: str, query: str = "", body: str = ""
) -> Callable[[], Awaitable[None]]:
    headers = {
        "host": "127.0.0.1",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
    }
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8700),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200, message
        assert b'"isError":true' not in message.get("body", b""), message

    return lambda: asgi(scope, receive, send)
