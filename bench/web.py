"""The overhead of a web page over its operation: `python -m bench.web [--messages N] [--data
FOLDER]`.

Loads the corpus of `bench.search`, with labels, and requests pages in this process. CPU times are
those of all threads, medians of several requests: *between writes*, and *after a write*, which ends
all read caches. Fails if a page costs more than 10 ms above its operation, or if a page with all
its scripts and styles has more than 60 KB compressed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.search import loading
from bench.search.corpus import Mail
from bench.search.measuring import calibration_ms, table
from postroom.app import App, open_app
from postroom.calls.authentication import new_sign_in_link, sign_in_with_link
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.inbox import INBOX
from postroom.model.key import OWNER
from postroom.model.mail.storage import NewMessage
from postroom.operations.mail.messages import get_message, search_messages
from postroom.operations.mail.threads import get_thread
from postroom.surfaces.mcp.server import tool_text
from postroom.surfaces.rest.server import AccessControl
from postroom.surfaces.web.rendering import ASSETS, compressed_asset
from postroom.surfaces.web.server import WebSurface

LABELS = 120
ONE_IN = 3
ALLOWED_MS = 10.0
ALLOWED_BYTES = 60 * 1024
WORD = "ledger"
TIMES = 15

plain_message = loading.new_message


def labelled(mail: Mail) -> NewMessage:
    """A message of the corpus; one in three has a label."""
    message = plain_message(mail)
    if mail.number % ONE_IN:
        return message
    return replace(message, labels=(f"Label {mail.number // ONE_IN % LABELS:03}",))


@dataclass
class Pages:
    """The pages of an app for its owner."""

    app: App
    surface: WebSurface
    secret: str

    @classmethod
    async def of(cls, app: App) -> Pages:
        secret = await sign_in_with_link(app.services, await new_sign_in_link(app.services), "")
        surface = WebSurface(app, AccessControl.of(app, no_auth=False), tool_text)
        return cls(app, surface, secret)

    async def get(self, url: str) -> bytes:
        """The body of a page, compressed."""
        path, _, query = url.partition("?")
        headers = {"host": "127.0.0.1", "cookie": f"postroom={self.secret}",
                   "accept-encoding": "gzip"}  # fmt: skip
        scope = {
            "type": "http", "method": "GET", "scheme": "http", "path": path, "headers": [
                (name.encode(), value.encode()) for name, value in headers.items()],
            "raw_path": path.encode(), "query_string": query.encode(),
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await self.surface(scope, _no_body, send)
        assert 200 == sent[0]["status"], (url, sent[0]["status"])
        return b"".join(message.get("body", b"") for message in sent[1:])

    async def operation(self, operation: Any, **arguments: Any) -> Any:
        return await call(self.app.context(OWNER), operation, arguments)


async def _no_body() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def cpu_ms(work: Callable[[], Awaitable[Any]], before: Callable[[], Awaitable[Any]]) -> float:
    """The median CPU time of some work in this process."""
    took = []
    await work()
    for _ in range(TIMES):
        await before()
        started = time.process_time()
        await work()
        took.append(time.process_time() - started)
    return median(took) * 1_000


async def measure(folder: Path, messages: int) -> bool:
    with patch.object(loading, "new_message", labelled):
        loaded = await loading.load(folder, messages)
    await loaded.store.close()
    settings = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_API_KEY": "k" * 40}
    async with open_app(read_settings(settings).settings) as app:
        pages = await Pages.of(app)
        return await _report(pages, await _walk(pages), messages)


SOURCE = (
    b"""From: Ana Lee <ana@example.com>\r\nSubject: News\r\nMIME-Version: 1.0\r
Content-Type: text/html; charset=utf-8\r\n\r\n<h1>News</h1>"""
    + b"<p>Some <b>words</b>.</p>\r\n" * 200
)


async def give_source(app: App, message_id: str) -> None:
    """Store the source of a message: the corpus has none."""
    [key] = await app.services.blobs.put([SOURCE])
    await app.services.store.engine.write(
        lambda tx: tx.run("UPDATE messages SET raw = :key WHERE id = :id", key=key, id=message_id)
    )


async def _walk(pages: Pages) -> dict[str, tuple[str, Callable[[], Awaitable[Any]]]]:
    """The URL of each page, and its operation alone."""
    found = await pages.operation(search_messages, mailbox=INBOX, limit=50)
    first = found.results[0]
    await give_source(pages.app, first.id)

    async def read() -> None:
        await pages.operation(
            get_message, message_id=first.id, max_chars=100_000, include_html=True
        )
        await pages.operation(get_thread, thread_id=first.thread_id)
        await pages.operation(search_messages, mailbox=INBOX, limit=50)

    return {
        "list": ("/mail", lambda: pages.operation(search_messages, mailbox=INBOX, limit=50)),
        "label": (
            "/mail?label=Label%20007",
            lambda: pages.operation(search_messages, labels=["Label 007"], limit=50),
        ),
        "search": (
            f"/mail?q={WORD}",
            lambda: pages.operation(search_messages, q=WORD, limit=50),
        ),
        "message": (f"/mail/{first.id}", read),
    }


async def _report(pages: Pages, walk: dict[str, Any], messages: int) -> bool:
    async def nothing() -> None:
        pass

    async def write() -> None:
        await pages.app.services.store.engine.write(loading.write_something)

    assets = sum(len(compressed_asset(name)) for name in ASSETS)
    rows, is_good = [], assets < ALLOWED_BYTES
    for name, (url, operation) in walk.items():
        size = len(await pages.get(url)) + assets
        row = [name]
        for before in (nothing, write):
            page_ms = await cpu_ms(partial(pages.get, url), before)
            own_ms = await cpu_ms(operation, before)
            row += [f"{page_ms:.1f}", f"{own_ms:.1f}", f"{page_ms - own_ms:.1f}"]
            is_good = is_good and page_ms - own_ms <= ALLOWED_MS
        rows.append([*row, f"{size / 1024:.1f}"])
        is_good = is_good and size <= ALLOWED_BYTES
    print(f"{messages} messages, {LABELS} labels; calibration loop {calibration_ms():.0f} ms")
    print("ms of CPU; written: after a write, which ends all read caches")
    head = ["page", "page", "operation", "above", "written: page", "operation", "above", "KB"]
    table([head, *rows])
    print(f"scripts and styles: {assets / 1024:.1f} KB compressed")
    print(f"at most {ALLOWED_MS:.0f} ms above and {ALLOWED_BYTES // 1024} KB: {is_good}")
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.web", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--data", type=Path, help="a folder to keep the corpus in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        is_good = asyncio.run(measure(options.data or Path(folder), options.messages))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
