"""Connections: their number, and cancelling work when a client disconnects."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

MAX_FILES = 65_536
"""More than this is of no use to one process."""

MAX_HTTP = 4_096
MAX_SMTP = 1_000


def allow_files() -> None:
    """Raise the limit of open files to the hard limit; the usual soft limit is 1,024."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _bounded(most)
    if _bounded(now) < wanted:
        # Some systems allow fewer than they say.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def http_connections() -> int:
    return min(MAX_HTTP, _files() // 4)


def smtp_connections() -> int:
    return min(MAX_SMTP, _files() // 8)


def _files() -> int:
    return _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _bounded(limit: int) -> int:
    return MAX_FILES if limit == resource.RLIM_INFINITY else min(limit, MAX_FILES)


T = TypeVar("T")


async def cancel_on_disconnect(receive: Receive, asked: Coroutine[Any, Any, T]) -> T:
    """Run the work of a request, and cancel it when the client disconnects.

    Raises:
        ClientDisconnect: it has gone.
    """

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work, leaving = asyncio.ensure_future(asked), asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        leaving.cancel()
