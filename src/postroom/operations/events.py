"""What happened: listed, and told as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field

from postroom.model.event import Event, EventQuery, EventStream, EventType
from postroom.model.inbox import Visible
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.operations.context import Context
from postroom.operations.inboxes import inbox_of
from postroom.operations.messages import message_of
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Id, OptionalId, Paged, Request
from postroom.operations.revoking import revocation

QUIET_S = 15.0
"""After so long without an event a stream says that it is still there."""

TYPES: tuple[str, ...] = get_args(EventType)


def _known(name: str) -> str:
    if name not in TYPES:
        raise ValueError(f"there is no event {name}; there are {', '.join(TYPES)}")
    return name


EventName = Annotated[str, AfterValidator(_known), Accepts({"enum": list(TYPES)})]
_Inbox = Annotated[OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])]
_Types = Annotated[
    list[EventName],
    Field(max_length=20, description="Only these types.", examples=[["message.received"]]),
]


class ListEvents(Paged):
    """List what happened to mail, oldest first; stream events since the last to read on."""

    inbox_id: _Inbox = None
    message_id: Annotated[
        OptionalId, Field(description="Only this message.", examples=["msg_4h8t2w"])
    ] = None
    types: _Types = []


@operation(Scope.READ)
async def list_events(ctx: Context, request: ListEvents) -> Page[Event]:
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
    )
    return ctx.cursors.page(request, await ctx.store.events(query))


class StreamEvents(Request):
    """Be told what happens to mail, as it happens; since an event if one is named."""

    inbox_id: _Inbox = None
    types: _Types = []
    since: Annotated[
        Id | None, Field(description="Begin after this event.", examples=["evt_8c1v6d"])
    ] = None


@operation(Scope.READ)
async def stream_events(ctx: Context, request: StreamEvents) -> EventStream:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    visible = ctx.visible if request.inbox_id is None else frozenset([request.inbox_id])
    newest = await ctx.store.newest_event(visible)
    since = newest if request.since is None else await ctx.store.event_number(request.since)
    return EventStream(_events(ctx, request, visible, since))


async def _events(
    ctx: Context, request: StreamEvents, visible: Visible, since: int
) -> AsyncIterator[Event | None]:
    def is_wanted(event: Event) -> bool:
        is_seen = visible is None or event.inbox_id in visible
        return is_seen and (not request.types or event.type in request.types)

    with ctx.watch.subscribe(ctx.store, is_wanted, visible) as subscription:
        following = aiter(ctx.watch.after(subscription, since))
        async with revocation(ctx) as revoked:
            while True:
                coming = asyncio.ensure_future(anext(following, None))
                try:
                    while not await _first_of(coming, revoked):
                        yield None
                    if revoked.done() or (told := coming.result()) is None:
                        return
                    yield told.event
                finally:
                    coming.cancel()


async def _first_of(*tasks: asyncio.Future[Any]) -> bool:
    """Whether one of them is done before it has been quiet for too long."""
    first = asyncio.FIRST_COMPLETED
    return bool((await asyncio.wait(tasks, timeout=QUIET_S, return_when=first))[0])
