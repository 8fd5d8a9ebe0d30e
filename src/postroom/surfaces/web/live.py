"""Live pages: the stream that tells an open page what happened to mail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from postroom.calls.web_sessions import session_end
from postroom.operations.webhooks import stream_events
from postroom.surfaces.downloads import event_lines, event_stream_response
from postroom.surfaces.web.page import Visit

PATH = "live"
_END = b"event: end\ndata: the session has ended\n\n"


async def live_response(request: Request, visit: Visit, secret: str) -> Response:
    """Events as they happen, until the session ends. Raises MailError.

    It waits most of the time, so it takes no place of the concurrency limit. A browser that
    connects again says in Last-Event-ID what it saw last.
    """
    since = request.headers.get("last-event-id") or visit.query.get("since")
    stream = await visit.call(stream_events, **({"since": since} if since else {}))
    lines = _until_session_ends(visit, secret, event_lines(stream, named=False))
    return event_stream_response(lines, is_head=request.method == "HEAD")


async def _until_session_ends(
    visit: Visit, secret: str, lines: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    async with session_end(visit.app.services, secret) as ended:
        while True:
            line = asyncio.ensure_future(anext(lines, None))
            try:
                await asyncio.wait([line, ended], return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    yield _END
                    return
                if (found := line.result()) is None:
                    return
                yield found
            finally:
                line.cancel()
