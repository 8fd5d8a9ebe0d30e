"""A server that receives webhook deliveries, and functions that wait for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_network

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import Webhook
from postroom.operations.webhooks import list_deliveries
from postroom.pipeline.webhooks import Webhooks

LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass
class WebhookReceiver:
    """Gives the configured responses and records the requests."""

    answer: Callable[[int], bytes] = lambda _: b"204 No Content"
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            pairs = (line.split(": ", 1) for line in head.splitlines()[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((headers, body))
            writer.write(b"HTTP/1.1 " + self.answer(len(self.got)) + b"\r\n\r\n")
            await writer.drain()
            self.news.set()
        writer.close()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(50):
            while len(self.got) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def subjects(self) -> list[str]:
        return [json.loads(body)["data"]["data"]["subject"] for _, body in self.got]


@asynccontextmanager
async def receiving() -> AsyncIterator[WebhookReceiver]:
    """Run a receiver on a free port."""
    receiver = WebhookReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


@asynccontextmanager
async def webhook_worker(ctx: RequestContext) -> AsyncIterator[None]:
    task = asyncio.create_task(Webhooks(ctx).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until_deliveries_are(ctx: RequestContext, webhook: Webhook, status: str) -> None:
    """Wait until every delivery of a webhook has this status."""
    notifier = ctx.store.notifier
    async with asyncio.timeout(50):
        position = notifier.position("webhooks")
        while True:
            page = await call(ctx, list_deliveries, {"webhook_id": webhook.id})
            if {delivery.status for delivery in page.results} == {status}:
                return
            position = await notifier.wait("webhooks", position)
