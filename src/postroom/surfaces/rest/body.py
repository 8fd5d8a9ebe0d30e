"""The body of a request, read no further than the limit."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError
from msgspec.json import decode
from starlette.requests import Request

from postroom.errors import Malformed, TooLarge


async def read_body(request: Request, most: int) -> bytes:
    """Read all of it.

    Raises:
        TooLarge: it is over the limit; the rest was not read.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body of the request is over the limit of {most} bytes")


async def read_object(request: Request, most: int) -> dict[str, Any]:
    """Read a JSON object; no body at all is an empty one.

    Raises:
        Malformed: it is not JSON, or not an object.
        TooLarge: it is over the limit.
    """
    body = await read_body(request, most)
    if not body:
        return {}
    stated = request.headers.get("content-type", "application/json")
    if stated.partition(";")[0].strip().lower() != "application/json":
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


async def refuse_body(request: Request) -> None:
    """Refuse a body that nobody would look at; its sender means something by it.

    Raises:
        Malformed: there is one.
    """
    stated = request.headers.get("content-length", "0")
    if stated == "0" and "transfer-encoding" not in request.headers:
        return
    async for chunk in request.stream():
        if chunk:
            raise Malformed(f"{request.method} takes no body; give the arguments in the query")
