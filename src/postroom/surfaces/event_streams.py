"""Server-sent events: a stream of events as REST and the web pages send it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec.json import Encoder
from starlette.responses import Response, StreamingResponse

from postroom.mail.text.display import is_inert
from postroom.model.event import EventStream
from postroom.surfaces.to_json import presented, to_json

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
