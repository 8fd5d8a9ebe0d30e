"""Waiting for mail: the answer comes the moment it arrives, whichever process took it in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, Unavailable
from postroom.mail.action_links import find_link
from postroom.mail.codes import find_code
from postroom.mail.fold import fold
from postroom.mail.parse import parse_message
from postroom.model.event import FIRST, Event, Waited
from postroom.model.key import Scope
from postroom.model.message import Message
from postroom.operations.context import Context
from postroom.operations.inboxes import inbox_of
from postroom.operations.message_filter import SOUGHT, folded
from postroom.operations.operation import operation
from postroom.operations.reading import read_message
from postroom.operations.request import OptionalId, Request, Together, one_of
from postroom.operations.revoking import unless_revoked
from postroom.operations.threads import thread_of
from postroom.pipeline.watch import Told

REPORT_EVERY_S = 15.0
_SHOWN_CHARS = 12_000


class WaitForMessage(Request):
    """Wait until a mail arrives in an inbox or a thread, and return it.

    Good for replies, one-time codes and confirmation links. A time-out is no error: wait again
    with `since` of the answer, and nothing is missed.
    """

    together: ClassVar[tuple[Together, ...]] = (one_of("place", "inbox_id", "thread_id"),)
    inbox_id: Annotated[
        OptionalId, Field(description="Wait in this inbox.", examples=["inb_7k2m9q"])
    ] = None
    thread_id: Annotated[
        OptionalId, Field(description="Or in this thread.", examples=["thr_9d3f1x"])
    ] = None
    sender: Annotated[
        str | None,
        Field(
            alias="from",
            min_length=1,
            max_length=256,
            description="Only from this address, @domain or name.",
            examples=["@example.com"],
        ),
        SOUGHT,
    ] = None
    subject: Annotated[
        str | None,
        Field(min_length=1, max_length=256, description="Only with this in it.", examples=["code"]),
        SOUGHT,
    ] = None
    q: Annotated[
        str | None,
        Field(
            min_length=1, max_length=256, description="Only with this text.", examples=["invoice"]
        ),
        SOUGHT,
    ] = None
    since: Annotated[
        OptionalId,
        Field(
            description="After this message or event; default: from now on.",
            examples=["msg_4h8t2w"],
        ),
    ] = None
    timeout_s: Annotated[
        int, Field(ge=1, le=300, description="How long, in seconds.", examples=[120])
    ] = 60
    extract: Annotated[
        Literal["code", "link"] | None,
        Field(description="Pick out a one-time code or a link.", examples=["code"]),
    ] = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not self.inbox_id and not self.thread_id:
            raise ValueError("give inbox_id or thread_id: where to wait")
        return self


@operation(Scope.READ, waits=True)
async def wait_for_message(ctx: Context, request: WaitForMessage) -> Waited:
    wanted = _Wanted(
        folded("from", request.sender), folded("subject", request.subject), folded("q", request.q)
    )
    since = None if request.since is None else await _place(ctx, request.since)
    inbox_id, thread_id = await _where(ctx, request)

    def is_wanted(event: Event) -> bool:
        return (
            event.type == "message.received"
            and event.inbox_id == inbox_id
            and thread_id in (None, event.thread_id)
        )

    here = frozenset([inbox_id])
    with ctx.watch.subscribe(ctx.store, is_wanted, here) as subscription:
        start = await ctx.store.newest_event(here) if since is None else since
        arrivals = ctx.watch.after(subscription, start)
        reporting = asyncio.create_task(_report(ctx, request.timeout_s))
        try:
            async with asyncio.timeout(request.timeout_s):
                message = await unless_revoked(ctx, _first_match(arrivals, wanted))
        except TimeoutError:
            seen = await ctx.store.last_event(inbox_id, ctx.watch.looked_up_to(subscription))
            return Waited(None, timed_out=True, since=seen or request.since or FIRST)
        finally:
            reporting.cancel()
    return await _answer(ctx, request, message)


async def _place(ctx: Context, since: str) -> int:
    if not since.startswith(("msg_", "evt_")):
        raise InvalidInput("since: give the id of a message (msg_…) or an event (evt_…)")
    return await ctx.store.event_number(since)


async def _where(ctx: Context, request: WaitForMessage) -> tuple[str, str | None]:
    """The inbox and the thread that we wait in. Raises NotFound when one is not there."""
    if request.thread_id is None:
        return (await inbox_of(ctx, request.inbox_id or "")).id, None
    thread = await thread_of(ctx, request.thread_id)
    if request.inbox_id not in (None, thread.inbox_id):
        raise InvalidInput(f"thread_id: {thread.id} is not in {request.inbox_id}")
    return thread.inbox_id, thread.id


async def _first_match(arrivals: AsyncIterator[Told], wanted: _Wanted) -> Message:
    async for told in arrivals:
        message = await told.message()
        if message is not None and wanted.matches(message):
            return message
    raise Unavailable("this server is stopping; wait again", retry_after=1)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a message must have, folded; as the filters of the same names in a search."""

    sender: str | None
    subject: str | None
    q: str | None

    def matches(self, message: Message) -> bool:
        if not self._is_from(fold(message.from_address), fold(message.from_name)):
            return False
        if self.subject is not None and self.subject not in fold(message.subject):
            return False
        return self.q is None or any(self.q in fold(text) for text in _texts(message))

    def _is_from(self, address: str, name: str) -> bool:
        if self.sender is None:
            return True
        if self.sender.startswith("@"):
            return address.endswith(self.sender)
        if "@" in self.sender and " " not in self.sender:
            return self.sender == address
        return self.sender in address or self.sender in name


def _texts(message: Message) -> list[str]:
    texts = [message.subject, message.text, message.from_address, message.from_name]
    return [*texts, *(attachment.filename for attachment in message.attachments)]


async def _report(ctx: Context, timeout_s: int) -> None:
    """Tell the caller now and then that we are still there."""
    waited = 0.0
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        waited += REPORT_EVERY_S
        await ctx.report(waited, f"waiting for mail, {timeout_s - waited:.0f} s left")


async def _answer(ctx: Context, request: WaitForMessage, message: Message) -> Waited:
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


async def _extracted(ctx: Context, request: WaitForMessage, message: Message) -> str | None:
    if request.extract == "code":
        text = message.new_text or message.text
        return await in_thread(find_code, message.subject, text)
    if request.extract == "link":
        parsed = await in_thread(parse_message, await ctx.blobs.read(message.raw), ctx.limits)
        return await in_thread(find_link, message.text, parsed.links)
    return None
