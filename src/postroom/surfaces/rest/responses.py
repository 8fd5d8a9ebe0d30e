"""From the result of an operation to an HTTP response."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec.json import Encoder
from starlette.responses import Response, StreamingResponse

from postroom.errors import MailError
from postroom.mail.mime.attachments import content_disposition
from postroom.mail.text.display import is_inert
from postroom.model.event import EventStream
from postroom.model.message import Download, FailedAction
from postroom.surfaces.rest.routing import Route
from postroom.surfaces.to_json import answer, presented, to_json

JSON = "application/json"
_encode = Encoder().encode
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}", re.IGNORECASE)


async def respond(route: Route, result: Any, *, is_head: bool) -> Response:
    """The response for a result. Raises the failure of an action on a single message."""
    if isinstance(result, Download):
        return await _download(result, is_head=is_head)
    if isinstance(result, EventStream):
        return _events(result, is_head=is_head)
    if route.status == 204:
        return Response(status_code=204)
    if route.single and result.status == "failed":
        raise as_error(result.failed[0])
    status = route.statuses.get(getattr(result, "status", ""), route.status)
    return Response(_written(answer(route.operation, result)), status, media_type=JSON)


def _written(body: dict[str, Any]) -> bytes:
    """A response as JSON, with text of mail cleaned."""
    try:
        written = _encode(body)
    except UnicodeEncodeError:
        return _encode(presented(body))
    return written if "untrusted" not in body or is_inert(written) else _encode(presented(body))


async def _download(download: Download, *, is_head: bool) -> Response:
    """The first chunk is read before the status is sent, so that an error can still be reported."""
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
    if is_head:
        return Response(headers=headers)
    return StreamingResponse(_lines(stream), headers=headers)


async def _lines(stream: EventStream) -> AsyncIterator[bytes]:
    """Server-sent events; a comment opens the stream and keeps it open."""
    yield b": open\n\n"
    async for event in stream.events:
        if event is None:
            yield b": quiet\n\n"
        else:
            head = f"id: {event.id}\nevent: {event.type}\n".encode()
            yield head + b"data: " + _written({"untrusted": True, **to_json(event)}) + b"\n\n"


def safe_media_type(stated: str) -> str:
    """The declared content type if it is valid; it comes from a mail and goes into a header."""
    return stated.lower() if _MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"


def as_error(failure: FailedAction) -> MailError:
    """The error of a failed item in a result."""
    kind = next((k for k in _kinds(MailError) if k.code == failure.code), MailError)
    return kind(failure.message)


def _kinds(root: type[MailError]) -> Iterator[type[MailError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)
