"""What a client waits for is done only for as long as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def while_there(receive: Receive, asked: Coroutine[Any, Any, T]) -> T:
    """Do what a client asked for as long as it waits for the answer.

    Raises:
        ClientDisconnect: it has gone.
    """
    doing = asyncio.ensure_future(asked)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
