"""Waiting for mail: returns when it is stored, by whichever process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from postroom.blocking import in_thread
from postroom.calls.authentication import unless_revoked
from postroom.calls.context import RequestContext
from postroom.calls.lookups import inbox_of, thread_of
from postroom.calls.operation import operation
from postroom.calls.request import OptionalId, Request, Together, argument, one_of
from postroom.errors import InvalidInput, Unavailable
from postroom.mail.extraction import find_code, find_link
from postroom.mail.parse import parse_message
from postroom.mail.text.fold import TextFilter
from postroom.model.event import FIRST, Event, Waited
from postroom.model.key import Scope
from postroom.model.message import Message
from postroom.model.view import only
from postroom.operations.messages import SOUGHT, folded, read_message
from postroom.pipeline.event_watch import WatchedEvent

REPORT_EVERY_S = 15.0
_SHOWN_CHARS = 12_000


class WaitForMessage(Request):
    """Wait until a mail arrives in an inbox or a thread, and return it.

    Good for replies, one-time codes and confirmation links. A time-out is no error: wait again
    with `since` of the answer, and nothing is missed.
    """

    together: ClassVar[tuple[Together, ...]] = (one_of("place", "inbox_id", "thread_id"),)
    inbox_id: Annotated[OptionalId, argument("Wait in this inbox.", "inb_7k2m9q")] = None
    thread_id: Annotated[OptionalId, argument("Or in this thread.", "thr_9d3f1x")] = None
    sender: Annotated[
        str | None,
        argument(
            "Only from this address, @domain or name.",
            "@example.com",
            alias="from",
            min_length=1,
            max_length=256,
        ),
        SOUGHT,
    ] = None
    subject: Annotated[
        str | None, argument("Only with this in it.", "code", min_length=1, max_length=256), SOUGHT
    ] = None
    q: Annotated[
        str | None,
        argument("Only with this text.", "invoice", min_length=1, max_length=256),
        SOUGHT,
    ] = None
    since: Annotated[
        OptionalId, argument("After this message or event; default: from now on.", "msg_4h8t2w")
    ] = None
    timeout_s: Annotated[int, argument("How long, in seconds.", 120, ge=1, le=300)] = 60
    extract: Annotated[
        Literal["code", "link"] | None, argument("Pick out a one-time code or a link.", "code")
    ] = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not self.inbox_id and not self.thread_id:
            raise ValueError("give inbox_id or thread_id: where to wait")
        return self


@operation(Scope.READ, waits=True)
async def wait_for_message(ctx: RequestContext, request: WaitForMessage) -> Waited:
    text_filter = TextFilter(
        sender=folded("from", request.sender),
        subject=folded("subject", request.subject),
        q=folded("q", request.q),
    )
    since = None if request.since is None else await _event_number(ctx, request.since)
    inbox_id, thread_id = await _inbox_and_thread(ctx, request)

    def is_arrival_here(event: Event) -> bool:
        return (
            event.type == "message.received"
            and event.inbox_id == inbox_id
            and thread_id in (None, event.thread_id)
        )

    view = only(inbox_id)
    with ctx.watch.subscribe(ctx.store, is_arrival_here, view) as subscription:
        start = await ctx.store.newest_event(view) if since is None else since
        arrivals = ctx.watch.after(subscription, start)
        reporting = asyncio.create_task(_report(ctx, request.timeout_s))
        try:
            async with asyncio.timeout(request.timeout_s):
                message = await unless_revoked(ctx, _first_match(arrivals, text_filter))
        except TimeoutError:
            seen = await ctx.store.last_event(inbox_id, ctx.watch.position_of(subscription))
            return Waited(None, timed_out=True, since=seen or request.since or FIRST)
        finally:
            reporting.cancel()
    return await _answer(ctx, request, message)


async def _event_number(ctx: RequestContext, since: str) -> int:
    if not since.startswith(("msg_", "evt_")):
        raise InvalidInput("since: give the id of a message (msg_…) or an event (evt_…)")
    return await ctx.store.event_number(since, ctx.visible)


async def _inbox_and_thread(ctx: RequestContext, request: WaitForMessage) -> tuple[str, str | None]:
    """The inbox and the thread to wait in. Raises NotFound."""
    if request.thread_id is None:
        return (await inbox_of(ctx, request.inbox_id or "")).id, None
    thread = await thread_of(ctx, request.thread_id)
    if request.inbox_id not in (None, thread.inbox_id):
        raise InvalidInput(f"thread_id: {thread.id} is not in {request.inbox_id}")
    return thread.inbox_id, thread.id


async def _first_match(arrivals: AsyncIterator[WatchedEvent], text_filter: TextFilter) -> Message:
    async for watched in arrivals:
        if await _matches(watched, text_filter):
            message = await watched.message()
            if message is not None:
                return message
    raise Unavailable("the server is stopping; try again", retry_after=1)


async def _matches(watched: WatchedEvent, text_filter: TextFilter) -> bool:
    if text_filter == TextFilter():
        return True
    texts = await watched.texts()
    return texts is not None and text_filter.matches(texts)


async def _report(ctx: RequestContext, timeout_s: int) -> None:
    """Report progress periodically."""
    waited = 0.0
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        waited += REPORT_EVERY_S
        await ctx.report(waited, f"waiting for mail, {timeout_s - waited:.0f} s left")


async def _answer(ctx: RequestContext, request: WaitForMessage, message: Message) -> Waited:
    shown = await read_message(
        ctx,
        message,
        include_attachments=False,
        include_html=False,
        include_headers=False,
        include_quoted=False,
        max_chars=_SHOWN_CHARS,
        text_offset=0,
    )
    return Waited(shown, timed_out=False, extracted=await _extracted(ctx, request, message))


async def _extracted(ctx: RequestContext, request: WaitForMessage, message: Message) -> str | None:
    if request.extract == "code":
        text = message.new_text or message.text
        return await in_thread(find_code, message.subject, text)
    if request.extract == "link":
        parsed = await in_thread(parse_message, await ctx.blobs.read(message.raw), ctx.limits)
        return await in_thread(find_link, message.text, parsed.links)
    return None
