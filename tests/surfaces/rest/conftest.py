"""The REST API as a client sees it: requests and responses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from postroom.surfaces.rest.server import build, listen, serve_on
from tests.mails import deliver, mail, new_inbox

BASE = "http://127.0.0.1:8700"
PROBLEM = {"type", "title", "status", "detail", "instance", "code", "request_id"}


@dataclass(frozen=True)
class RestClient:
    """A client with a key. Responses are parsed; the form of an error is validated."""

    client: httpx2.AsyncClient

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        return await self.ask("POST", path, json=body)

    async def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The body of a successful response."""
        response = await self.send(method, path, **more)
        assert response.status_code < 300, response.text
        return response.json() if response.content else {}

    async def problem(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The body of an error response."""
        response = await self.send(method, path, **more)
        assert "application/problem+json" == response.headers["content-type"], response.text
        body = response.json()
        assert PROBLEM <= body.keys()
        assert response.status_code == body["status"]
        assert response.headers["x-request-id"] == body["request_id"]
        return body

    async def send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self.client.request(method, path, **more)


@asynccontextmanager
async def rest_client(
    app: App, key: str | None, *, asgi: Any = None, **headers: str
) -> AsyncIterator[RestClient]:
    """A client of an application, with this key and these headers."""
    sent = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx2.ASGITransport(app=asgi or build(app))
    async with httpx2.AsyncClient(
        transport=transport, base_url=BASE, headers={**sent, **headers}
    ) as client:
        yield RestClient(client)


@pytest.fixture
async def key(app: App) -> str:
    """The owner's key."""
    return await app.owner_key() or ""


@pytest.fixture
async def rest(app: App, key: str) -> AsyncIterator[RestClient]:
    async with rest_client(app, key) as rest:
        yield rest


@pytest.fixture
async def inbox(ctx: RequestContext) -> Inbox:
    return await new_inbox(ctx)


@pytest.fixture
async def message_id(ctx: RequestContext, inbox: Inbox) -> str:
    """A message with one attachment."""
    raw = mail("Hello", attachments=[("invoice.pdf", "application/pdf", b"%PDF-1.4 ...")])
    return (await deliver(ctx, inbox, raw)).message_id


@pytest.fixture
def serving() -> Callable[..., AbstractAsyncContextManager[int]]:
    """Serve an application on a free port while the block runs.

    With *stopping*, as in `serve`, streams end before the server waits for requests.
    """

    @asynccontextmanager
    async def served(asgi: Any, stopping: Callable[[], None] | None = None) -> AsyncIterator[int]:
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        bound = listen("127.0.0.1", 0)
        task = asyncio.create_task(serve_on(bound, asgi, ready=port.set_result, stopping=stopping))
        try:
            await asyncio.wait_for(asyncio.shield(port), 10)
            yield port.result()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await task

    return served
