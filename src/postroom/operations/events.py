"""Events: list and stream them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator

from postroom.calls.authentication import revocation
from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, message_of, operation
from postroom.calls.request import (
    Accepts,
    Id,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
)
from postroom.model.event import Event, EventQuery, EventStream, EventType
from postroom.model.inbox import Visible
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.model.view import only

QUIET_S = 15.0
"""A stream without events sends a keep-alive after this time."""

TYPES: tuple[str, ...] = get_args(EventType)


def _known(name: str) -> str:
    if name not in TYPES:
        raise ValueError(f"there is no event {name}; there are {', '.join(TYPES)}")
    return name


EventName = Annotated[str, AfterValidator(_known), Accepts({"enum": list(TYPES)})]
_Inbox = Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")]
_Types = Annotated[
    list[EventName], argument("Only these types.", ["message.received"], max_length=20)
]


class ListEvents(Paged):
    """List what happened to mail; stream events since the last to read on."""

    inbox_id: _Inbox = None
    message_id: Annotated[OptionalId, argument("Only this message.", "msg_4h8t2w")] = None
    types: _Types = []
    sort: Annotated[Literal["newest", "oldest"], argument("Which first.", "newest")] = "oldest"


@operation(Scope.READ)
async def list_events(ctx: RequestContext, request: ListEvents) -> Page[Event]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    if request.message_id is not None:
        await message_of(ctx, request.message_id)
    query = EventQuery(
        visible=ctx.visible,
        inbox_id=request.inbox_id,
        message_id=request.message_id,
        types=tuple(request.types),
        page=ctx.cursors.slice(request),
        newest_first=request.sort == "newest",
    )
    page = ctx.cursors.page(request, await ctx.store.events(query))
    return replace(page, results=tuple(event.shown_to(ctx.visible) for event in page.results))


class StreamEvents(Request):
    """Be told what happens to mail, as it happens; since an event if one is named.

    Imported mail is no news.
    """

    inbox_id: _Inbox = None
    types: _Types = []
    since: Annotated[Id | None, argument("Begin after this event.", "evt_8c1v6d")] = None


@operation(Scope.READ)
async def stream_events(ctx: RequestContext, request: StreamEvents) -> EventStream:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    visible = ctx.visible if request.inbox_id is None else only(request.inbox_id)
    since = await ctx.store.newest_event(visible)
    if request.since is not None:
        since = await ctx.store.event_number(request.since, ctx.visible)
    return EventStream(_events(ctx, request, visible, since))


async def _events(
    ctx: RequestContext, request: StreamEvents, visible: Visible, since: int
) -> AsyncIterator[Event | None]:
    def matches(event: Event) -> bool:
        is_asked_for = not request.types or event.type in request.types
        return visible.sees(event.inbox_id) and is_asked_for and not event.is_imported

    with ctx.watch.subscribe(ctx.store, matches, visible) as subscription:
        events = aiter(ctx.watch.after(subscription, since))
        async with revocation(ctx) as revoked:
            while True:
                next_event = asyncio.ensure_future(anext(events, None))
                try:
                    while not await _is_done_in_time(next_event, revoked):
                        yield None
                    if revoked.done() or (watched := next_event.result()) is None:
                        return
                    yield watched.event.shown_to(ctx.visible)
                finally:
                    next_event.cancel()


async def _is_done_in_time(*tasks: asyncio.Future[Any]) -> bool:
    """Whether a task is done within `QUIET_S`."""
    first = asyncio.FIRST_COMPLETED
    return bool((await asyncio.wait(tasks, timeout=QUIET_S, return_when=first))[0])
