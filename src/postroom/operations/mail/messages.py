"""Messages: list, search, read and wait for them."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from postroom.blocking import in_thread
from postroom.calls.authentication import unless_revoked
from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, inbox_of, message_of, operation, thread_of
from postroom.calls.request import (
    Constraint,
    OptionalId,
    OptionalInboxName,
    Request,
    Since,
    argument,
    moment_of,
    one_of,
    seconds_back,
)
from postroom.errors import InvalidInput, Unavailable
from postroom.mail.message import ParsedAttachment
from postroom.mail.text.fold import TextFilter
from postroom.model.event import FIRST, Event, Waited
from postroom.model.inbox import Visible
from postroom.model.key import Scope
from postroom.model.mail.message import Attachment, Header, Message, MessageHtml, MessageRow
from postroom.model.page import Page, cut_text
from postroom.model.view import only
from postroom.operations.mail.message_selection import (
    CRITERIA,
    MessageFilter,
    SearchText,
    find_page,
    folded,
    name_and_words,
)
from postroom.operations.memories import memories_about
from postroom.pipeline.event_watch import WatchedEvent

RESULT_CHARS = 80_000
"""The size limit of one message: 20,000 tokens of 4 characters."""


async def _read(ctx: RequestContext, message: Message, request: GetMessage) -> Message:
    """Cut the texts of a message and add the parts that were requested."""
    offset, max_chars = request.text_offset, request.max_chars
    texts: dict[str, str | None] = {"new_text": None if offset else message.new_text}
    extra: dict[str, Any] = {}
    # Imported where they are used, since they are slow to load.
    if request.include_quoted:
        from postroom.mail.quoting import split_reply

        reply = await in_thread(split_reply, message.text)
        texts |= {"quoted_text": reply.quoted_text, "signature": reply.signature}
    if request.include_html or request.include_headers:
        from postroom.mail.html.html import sanitise_html

        (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
        if request.include_html:
            texts["html"] = await in_thread(sanitise_html, parsed.html) if parsed.html else ""
        if request.include_headers:
            extra["headers"] = tuple(Header(name, value) for name, value in parsed.headers)
    read = replace(_cut(message, texts, max_chars, offset), **extra)
    if request.include_attachments:
        read = replace(read, attachments=await _with_content(ctx, read))
    return read


def _cut(
    message: Message, texts: dict[str, str | None], max_chars: int, text_offset: int
) -> Message:
    short = cut_text(message.text, text_offset, max_chars)
    for name, text in texts.items():
        short[name] = text and text[:max_chars]
        if short[name] != text:
            short |= {"truncated": True, "total_chars": len(message.text)}
    return replace(message, **short)


async def _with_content(ctx: RequestContext, message: Message) -> tuple[Attachment, ...]:
    room = RESULT_CHARS - _texts_size(message)
    filled = []
    for attachment in message.attachments:
        needed = (attachment.size + 2) // 3 * 4
        if needed > room:
            filled.append(replace(attachment, content_omitted=True))
            continue
        room -= needed
        content = b64encode(await ctx.blobs.read(attachment.sha256)).decode()
        filled.append(replace(attachment, content=content))
    return tuple(filled)


def _texts_size(message: Message) -> int:
    texts = (message.text, message.new_text, message.quoted_text, message.signature, message.html)
    headers = sum(len(h.name) + len(h.value) for h in message.headers or ())
    return headers + sum(len(text) for text in texts if text)


def fair_max_length(lengths: Sequence[int], budget: int) -> int:
    """The length at which to cut each text so that all of them fit the budget.

    Short texts stay complete; the rest of the budget is divided among the long ones.
    """
    left = budget
    for seen, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - seen)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)


class ListMessages(MessageFilter):
    """List messages of an inbox or a thread (give one), newest first; q and filters narrow it."""

    constraints = (
        *MessageFilter.constraints,
        one_of(
            "filter",
            ("inbox_id", "thread_id"),
            "at least one filter (inbox_id or thread_id) is required",
        ),
    )


@operation(Scope.READ)
async def list_messages(ctx: RequestContext, request: ListMessages) -> Page[MessageRow]:
    return await find_page(ctx, request)


_PAGE = {"limit", "offset", "cursor", "mode", "sort"}


class SearchMessages(MessageFilter):
    """Search messages by text and filters, everywhere or in an inbox or thread."""

    constraints = (*MessageFilter.constraints, one_of("criteria", CRITERIA))

    @model_validator(mode="after")
    def _something_to_look_for(self) -> Self:
        if not self.model_dump(exclude=_PAGE, exclude_defaults=True, exclude_none=True):
            raise ValueError(
                "at least one criterion is required, such as q, from, labels or inbox_id"
            )
        return self


@operation(Scope.READ)
async def search_messages(ctx: RequestContext, request: SearchMessages) -> Page[MessageRow]:
    return await find_page(ctx, request)


IncludeMemories = Annotated[bool, argument("Add memories about participants.", True)]


class GetMessage(OneMessage):
    """Read a message and list its attachments. A long text comes in parts."""

    include_attachments: Annotated[bool, argument("Add contents as base64, if small.", True)] = (
        False
    )
    include_html: Annotated[bool, argument("Add the sanitised HTML.", True)] = False
    include_headers: Annotated[bool, argument("Add all headers in order.", True)] = False
    include_quoted: Annotated[bool, argument("Add quoted text and signature separately.", True)] = (
        False
    )
    include_memories: IncludeMemories = False
    max_chars: Annotated[int, argument("Cut each text here.", 4000, ge=1, le=100_000)] = 12_000
    text_offset: Annotated[
        int, argument("Continue the text from next_offset.", 12000, ge=0, le=2**53)
    ] = 0


@operation(Scope.READ)
async def get_message(ctx: RequestContext, request: GetMessage) -> Message:
    message = await message_of(ctx, request.message_id)
    if request.include_memories:
        message = replace(message, memories=await memories_about(ctx, message))
    return await _read(ctx, message, request)


class GetMessageHtml(OneMessage):
    """Get the sanitised HTML of a message for a browser, with the pictures that came with it."""

    remote_images: Annotated[bool, argument("Keep remote pictures (https).", True)] = False


@operation(Scope.READ)
async def get_message_html(ctx: RequestContext, request: GetMessageHtml) -> MessageHtml:
    from postroom.mail.html.html import html_for_browser, styles_for_browser

    message = await message_of(ctx, request.message_id)
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
    if not parsed.html:
        return MessageHtml("", message.id)
    remote = {"remote_images": request.remote_images}
    pictures = inline_pictures(parsed.attachments)
    html = await in_thread(html_for_browser, parsed.html, pictures, **remote)
    styles = await in_thread(styles_for_browser, parsed.html, **remote)
    return MessageHtml(html, message.id, styles)


PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types of pictures that are shown."""

_PICTURES_BYTES = 8_388_608


def inline_pictures(files: Sequence[ParsedAttachment]) -> dict[str, str]:
    """Data URLs by content id, as far as they are not too large together."""
    found, room = dict[str, str](), _PICTURES_BYTES
    for file in files:
        if not file.content_id or file.detected_type not in PICTURES or file.size > room:
            continue
        room -= file.size
        content = b64encode(file.content).decode()
        found[file.content_id.strip("<>")] = f"data:{file.detected_type};base64,{content}"
    return found


REPORT_EVERY_S = 15.0
EXTRACT_SINCE = "-120"
"""A code or a link may have arrived before it is asked for."""


class WaitForMessage(Request):
    """Wait until a mail arrives in an inbox or a thread, and return it.

    After a time-out, wait again with the returned `since`: nothing is missed.
    """

    constraints: ClassVar[tuple[Constraint, ...]] = (
        one_of("place", ("inbox_id", "thread_id"), "give inbox_id or thread_id: where to wait"),
    )
    splits_names: ClassVar[bool] = False
    inbox_id: Annotated[OptionalInboxName, argument("Wait in this inbox.", "inb_7k2m9q")] = None
    thread_id: Annotated[OptionalId, argument("Or in this thread.", "thr_9d3f1x")] = None
    sender: Annotated[
        SearchText,
        argument("Only from this address, @domain or name.", "@example.com", alias="from"),
    ] = None
    subject: Annotated[SearchText, argument("Text in the subject.", "code")] = None
    q: Annotated[SearchText, argument("Only with this text.", "invoice")] = None
    since: Annotated[
        Since,
        argument("Start after an id, a time, or seconds ago (-120).", "msg_4h8t2w"),
    ] = None
    timeout_s: Annotated[int, argument("How long, in seconds.", 120, ge=1, le=300)] = 60
    extract: Annotated[
        Literal["code", "link"] | None,
        argument("Extract a one-time code or a link; skip other mail.", "code"),
    ] = None


@operation(Scope.READ, waits=True)
async def wait_for_message(ctx: RequestContext, request: WaitForMessage) -> Waited:
    sender, sender_words = name_and_words("from", request.sender, is_split=request.splits_names)
    text_filter = TextFilter(
        sender=sender,
        sender_words=sender_words,
        subject=folded("subject", request.subject),
        q=folded("q", request.q),
    )
    since = await _start(ctx, request)
    inbox_id, thread_id = await _inbox_and_thread(ctx, request)

    def is_arrival_here(event: Event) -> bool:
        return (
            event.type == "message.received"
            and event.inbox_id == inbox_id
            and thread_id in (None, event.thread_id)
            and not event.is_imported
        )

    view = only(inbox_id)
    with ctx.watch.subscribe(ctx.store, is_arrival_here, view) as subscription:
        start = await _number_of(ctx, since, view)
        arrivals = ctx.watch.after(subscription, start)
        reporting = asyncio.create_task(_report(ctx, request.timeout_s))
        try:
            async with asyncio.timeout(request.timeout_s):
                first = _first_match(ctx, request, arrivals, text_filter)
                message, extracted = await unless_revoked(ctx, first)
        except TimeoutError:
            seen = await ctx.store.last_event(inbox_id, ctx.watch.position_of(subscription))
            asked = request.since if isinstance(since, int) else None
            return Waited(None, timed_out=True, since=seen or asked or FIRST)
        finally:
            reporting.cancel()
    shown = await _read(ctx, message, GetMessage(message_id=message.id))
    return Waited(shown, timed_out=False, extracted=extracted)


async def _start(ctx: RequestContext, request: WaitForMessage) -> int | datetime | None:
    """Where to begin: after the event of a number, at a time, or now. Raises InvalidInput."""
    since = request.since or (EXTRACT_SINCE if request.extract else None)
    if since is None:
        return None
    if since.startswith(("msg_", "evt_")):
        return await ctx.store.event_number(since, ctx.visible)
    back = seconds_back(since)
    found = moment_of(since) if back is None else ctx.clock() - timedelta(seconds=back)
    if found is None:
        raise InvalidInput(
            "since: give the id of a message (msg_…) or an event (evt_…), a time such as "
            "2026-01-31T09:30:00Z, or a number of seconds ago such as -120"
        )
    return found


async def _number_of(ctx: RequestContext, since: int | datetime | None, view: Visible) -> int:
    """The number of the last event before the wait."""
    if since is None:
        return await ctx.store.newest_event(view)
    return since if isinstance(since, int) else await ctx.store.last_event_before(since, view)


async def _inbox_and_thread(ctx: RequestContext, request: WaitForMessage) -> tuple[str, str | None]:
    """The inbox and the thread to wait in. Raises NotFound."""
    if request.thread_id is None:
        return (await inbox_of(ctx, request.inbox_id or "")).id, None
    thread = await thread_of(ctx, request.thread_id)
    if request.inbox_id not in (None, thread.inbox_id):
        raise InvalidInput(
            f"thread_id: {thread.id} is not in {request.inbox_id}; leave out inbox_id or thread_id"
        )
    return thread.inbox_id, thread.id


async def _first_match(
    ctx: RequestContext,
    request: WaitForMessage,
    arrivals: AsyncIterator[WatchedEvent],
    text_filter: TextFilter,
) -> tuple[Message, str | None]:
    """The first message that was asked for, with what was to be extracted from it."""
    async for watched in arrivals:
        if text_filter != TextFilter():
            texts = await watched.texts()
            if texts is None or not text_filter.matches(texts):
                continue
        if (message := await watched.message()) is None:
            continue
        extracted = await _extracted(ctx, request, message)
        if extracted is not None or request.extract is None:
            return message, extracted
    raise Unavailable("the server is stopping; try again", retry_after=1)


async def _report(ctx: RequestContext, timeout_s: int) -> None:
    """Report progress periodically."""
    waited = 0.0
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        waited += REPORT_EVERY_S
        await ctx.report(waited, f"waiting for mail, {timeout_s - waited:.0f} s left")


async def _extracted(ctx: RequestContext, request: WaitForMessage, message: Message) -> str | None:
    if request.extract == "code":
        from postroom.mail.extraction import find_code

        text = message.new_text or message.text
        return await in_thread(find_code, message.subject, text)
    if request.extract == "link":
        from postroom.mail.extraction import find_link

        (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
        return await in_thread(find_link, message.text, parsed.links)
    return None
