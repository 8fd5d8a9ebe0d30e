"""From the result of an operation to an answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec.json import Encoder
from starlette.responses import Response, StreamingResponse

from postroom.errors import MailError
from postroom.mail.filenames import content_disposition
from postroom.model.attachment import Download
from postroom.model.event import EventStream
from postroom.model.message import ActionResult, FailedAction
from postroom.surfaces.rest.route import Route
from postroom.surfaces.shapes import answer, to_json

JSON = "application/json"
_encode = Encoder().encode
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}", re.IGNORECASE)


async def respond(route: Route, result: Any, *, is_head: bool) -> Response:
    """Write down the result of an operation. Raises what failed, if all of a single action did."""
    if isinstance(result, Download):
        return await _download(result, is_head=is_head)
    if isinstance(result, EventStream):
        return _events(result, is_head=is_head)
    if route.status == 204:
        return Response(status_code=204)
    if route.single:
        _raise_failure(result)
    status = route.statuses.get(getattr(result, "status", ""), route.status)
    return Response(_encode(answer(route.operation, result)), status, media_type=JSON)


async def _download(download: Download, *, is_head: bool) -> Response:
    """The first piece is read before the status is sent: until then we can still say no."""
    headers = {
        "Content-Disposition": content_disposition(download.filename),
        "Content-Length": str(download.size),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Type": safe_media_type(download.content_type),
    }
    if is_head:
        return Response(headers=headers)
    first = await anext(aiter(download.chunks), b"")
    return StreamingResponse(_continued(first, download.chunks), headers=headers)


async def _continued(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def _events(stream: EventStream, *, is_head: bool) -> Response:
    headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    return (
        Response(headers=headers) if is_head else StreamingResponse(_lines(stream), headers=headers)
    )


async def _lines(stream: EventStream) -> AsyncIterator[bytes]:
    """Server-sent events; a comment opens the stream and keeps it open."""
    yield b": open\n\n"
    async for event in stream.events:
        if event is None:
            yield b": quiet\n\n"
        else:
            head = f"id: {event.id}\nevent: {event.type}\n".encode()
            yield head + b"data: " + _encode({"untrusted": True, **to_json(event)}) + b"\n\n"


def safe_media_type(stated: str) -> str:
    """The type that a mail states, if it is one; it is a stranger's word in a header."""
    return stated.lower() if _MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"


def _raise_failure(result: ActionResult) -> None:
    if result.status == "failed":
        raise as_error(result.failed[0])


def as_error(failure: FailedAction) -> MailError:
    """The error that a failure in a result stands for."""
    kind = next((k for k in _kinds(MailError) if k.code == failure.code), MailError)
    return kind(failure.message)


def _kinds(root: type[MailError]) -> Iterator[type[MailError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)
