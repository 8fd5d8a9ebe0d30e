"""Events: what happened to mail, newest first; the stream of events of a live page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from postroom.calls.web_sessions import session_end
from postroom.errors import InvalidInput, NotFound
from postroom.model.event import Event
from postroom.operations.inboxes import list_inboxes
from postroom.operations.webhooks import TYPES, list_events, stream_events
from postroom.surfaces.downloads import event_lines, event_stream_response
from postroom.surfaces.web.page import Link, Page, Section, Values, Visit

_ROWS = 50
TONES = {
    "message.held": "held",
    "message.scheduled": "scheduled",
    "message.deferred": "held",
    "message.failed": "failed",
    "message.bounced": "failed",
    "message.rejected": "failed",
    "message.refused": "failed",
    "message.unknown": "failed",
    "rule.failed": "failed",
    "message.sent": "sent",
    "message.delivered": "sent",
    "message.approved": "sent",
}
"""The look of a type."""

_RECIPIENTS_SHOWN = 3


async def events(visit: Visit) -> Values:
    """One page of events, by type and inbox."""
    asked = {name: visit.query.get(name, "") for name in ("type", "inbox")}
    arguments: dict[str, Any] = {"sort": "newest", "limit": _ROWS}
    arguments |= {"types": [asked["type"]]} if asked["type"] else {}
    arguments |= {"inbox_id": asked["inbox"]} if asked["inbox"] else {}
    cursor = visit.query.get("cursor", "")
    inboxes = (await visit.call(list_inboxes, limit=100)).results
    page = problem = None
    try:
        place = {"cursor": cursor} if cursor else {}
        page = await visit.call(list_events, **arguments, **place)
    except (InvalidInput, NotFound) as error:
        problem = str(error)
    kept = urlencode({name: value for name, value in asked.items() if value})
    return {
        "page": page,
        "problem": problem,
        "asked": asked,
        "kept": kept,
        "is_newest": not cursor,
        "types": TYPES,
        "tones": TONES,
        "addresses": {inbox.id: inbox.address for inbox in inboxes},
        "told": {event.id: told(event) for event in page.results} if page else {},
    }


def told(event: Event) -> str:
    """What an event says, in a line."""
    data = event.data
    if event.type == "message.received":
        sender, subject = data.get("from_address") or "(no sender)", data.get("subject")
        return f"{sender}: {subject or '(no subject)'}"
    if recipients := data.get("recipients"):
        named = ", ".join(one["address"] for one in recipients[:_RECIPIENTS_SHOWN])
        more = len(recipients) - _RECIPIENTS_SHOWN
        detail = next((one["detail"] for one in recipients if one.get("detail")), "")
        return f"{named}{f' and {more} more' if more > 0 else ''}{f': {detail}' if detail else ''}"
    words = [data.get(name) for name in ("rule", "by", "note", "detail", "reason")]
    return ": ".join(str(word) for word in words if word)


SECTION = Section(
    links=(Link("Events", "/events", menu=True),),
    pages=(Page("/events", "activity/events.html", events),),
)


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
