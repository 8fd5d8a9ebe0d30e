"""Responses that are streamed: files that came with mail, and server-sent events.

No browser shows a file as a page of ours.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec.json import Encoder
from starlette.responses import Response, StreamingResponse

from postroom.mail.mime.attachments import content_disposition
from postroom.mail.text.display import is_inert
from postroom.model.event import EventStream
from postroom.model.message import Download
from postroom.surfaces.to_json import presented, to_json

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}", re.IGNORECASE)


async def download_response(download: Download, *, is_head: bool) -> Response:
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


def safe_media_type(stated: str) -> str:
    """The declared content type if it is valid; it comes from a mail and goes into a header."""
    return stated.lower() if _MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"


_encode = Encoder().encode
_HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


def event_stream_response(lines: AsyncIterator[bytes], *, is_head: bool) -> Response:
    """A response that stays open; HEAD has its headers only."""
    if is_head:
        return Response(headers=_HEADERS)
    return StreamingResponse(lines, headers=_HEADERS)


async def event_lines(stream: EventStream, *, named: bool = True) -> AsyncIterator[bytes]:
    """Server-sent events; a comment opens the stream and keeps it open.

    A browser has to know each name to receive what is `named`; the type is in the data too.
    """
    yield b": open\n\n"
    async for event in stream.events:
        if event is None:
            yield b": quiet\n\n"
        else:
            name = f"event: {event.type}\n" if named else ""
            head = f"id: {event.id}\n{name}".encode()
            yield head + b"data: " + written({"untrusted": True, **to_json(event)}) + b"\n\n"


def written(body: dict[str, Any]) -> bytes:
    """A response as JSON, with text of mail cleaned."""
    try:
        found = _encode(body)
    except UnicodeEncodeError:
        return _encode(presented(body))
    return found if "untrusted" not in body or is_inert(found) else _encode(presented(body))
