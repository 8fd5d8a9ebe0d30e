"""The body of a request: how it is taken in, and what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode
from starlette.requests import Request

from postroom.errors import Malformed
from postroom.operations.arrivals import Arrivals, Bearer
from postroom.surfaces.rest.route import Route


@asynccontextmanager
async def whole_body(
    request: Request, route: Route, arrivals: Arrivals, bearer: Bearer, most: int
) -> AsyncIterator[bytes]:
    """All of it, for as long as the block lasts.

    Raises:
        Malformed: there is one that nobody would look at; its sender means something by it.
        TooLarge: it is over the limit; the rest was not read.
        TooSlow, RateLimited, Unavailable, StorageFull: it cannot be taken in now.
    """
    stated = request.headers.get("content-length", "0")
    if stated == "0" and "transfer-encoding" not in request.headers:
        yield b""
        return
    if not route.takes_body and stated != "0":
        raise _no_body(request)
    async with arrivals.body(aiter(request.stream()), bearer, most, stated) as body:
        if body and not route.takes_body:
            raise _no_body(request)
        yield body


def _no_body(request: Request) -> Malformed:
    return Malformed(f"{request.method} takes no body; give the arguments in the query")


def read_object(body: bytes, content_type: str) -> dict[str, Any]:
    """Read a JSON object; no body at all is an empty one.

    Raises:
        Malformed: it is not JSON, or not an object.
    """
    if not body:
        return {}
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Malformed("send JSON, and say so: `Content-Type: application/json`")
    try:
        value = decode(body)
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8") from None
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None
    except DecodeError as error:
        raise Malformed(f"the body cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object, such as {}")
    return value
