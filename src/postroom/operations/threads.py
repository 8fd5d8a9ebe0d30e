"""Conversations: listed, read, merged and split."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.errors import NotFound, no_such
from postroom.model.key import Scope
from postroom.model.message import ThreadMessage
from postroom.model.page import Page
from postroom.model.stored import ThreadQuery
from postroom.model.thread import Thread, ThreadRow
from postroom.operations.confidences import recall_beside
from postroom.operations.context import Context
from postroom.operations.id_kinds import check_kinds, refuse_other_kind
from postroom.operations.messages import IncludeMemories
from postroom.operations.names import LabelName
from postroom.operations.operation import operation
from postroom.operations.reading import fair_cut
from postroom.operations.request import Id, OptionalId, Paged, Request

THREAD_CHARS, ROW_CHARS = 38_000, 700
"""What a thread may take by default, and what a message in it takes beside its texts."""

ThreadId = Annotated[Id, Field(description="The thread.", examples=["thr_9d3f1x"])]


class ListThreads(Paged):
    """List conversations, the one with the newest message first."""

    inbox_id: Annotated[
        OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])
    ] = None
    label: Annotated[LabelName | None, Field(description="With this label.", examples=["Work"])] = (
        None
    )


@operation(Scope.READ)
async def list_threads(ctx: Context, request: ListThreads) -> Page[ThreadRow]:
    check_kinds(inbox_id=request.inbox_id)
    query = ThreadQuery(ctx.visible, request.inbox_id, request.label, ctx.cursors.slice(request))
    return ctx.cursors.page(request, await ctx.store.threads(query))


class GetThread(Request):
    """Read a conversation: its newest messages, oldest first, each with what it adds."""

    thread_id: ThreadId
    limit: Annotated[int, Field(ge=1, le=100, description="How many messages.", examples=[20])] = 50
    before: Annotated[
        OptionalId,
        Field(description="Only messages before this one: to read back.", examples=["msg_4h8t2w"]),
    ] = None
    include_text: Annotated[
        bool, Field(description="Add the whole texts, quotes included.", examples=[True])
    ] = False
    include_memories: IncludeMemories = False


@operation(Scope.READ)
async def get_thread(ctx: Context, request: GetThread) -> Thread:
    thread = await thread_of(ctx, request.thread_id, limit=request.limit, before=request.before)
    if request.include_memories:
        thread = replace(thread, memories=await recall_beside(ctx, thread))
    return fit_thread(thread, include_text=request.include_text)


async def thread_of(
    ctx: Context, thread_id: str, *, limit: int = 1, before: str | None = None
) -> Thread:
    """The thread, if it exists for the caller, with its newest messages.

    Raises:
        InvalidInput: the id is one of another kind.
        NotFound: there is no such thread.
    """
    refuse_other_kind(thread_id, "thr", _READERS)
    thread = await ctx.store.thread(thread_id, ctx.visible, limit=limit, before=before)
    if thread is None:
        raise NotFound(no_such("thread", thread_id))
    return thread


_READERS = {"msg": "get_message", "inb": "list_messages", "att": "get_attachment_content"}


def fit_thread(thread: Thread, *, include_text: bool) -> Thread:
    """Cut the texts so that the whole fits a model's context; `truncated` marks what was cut."""
    shown = [m if include_text else replace(m, text=None) for m in thread.messages]
    lengths = [len(text) for m in shown for text in (m.new_text, m.text) if text]
    whole = THREAD_CHARS * (2 if include_text else 1)
    cut = fair_cut(lengths, max(whole - ROW_CHARS * len(shown), whole // 8))
    return replace(thread, messages=tuple(_fit_message(m, cut) for m in shown))


def _fit_message(message: ThreadMessage, cut: int) -> ThreadMessage:
    new_text, text = message.new_text[:cut], message.text and message.text[:cut]
    is_cut = (new_text, text) != (message.new_text, message.text)
    return replace(message, new_text=new_text, text=text, truncated=is_cut or None)


class MergeThreads(Request):
    """Put several threads of one inbox together into the first of them."""

    thread_ids: Annotated[
        list[Id],
        Field(
            min_length=2,
            max_length=50,
            description="The threads; the first one stays.",
            examples=[["thr_9d3f1x", "thr_2b5n8c"]],
        ),
    ]


@operation(Scope.WRITE)
async def merge_threads(ctx: Context, request: MergeThreads) -> Thread:
    thread_id = await ctx.store.merge_threads(request.thread_ids, ctx.visible)
    return await get_thread(ctx, GetThread(thread_id=thread_id))


class SplitThread(Request):
    """Take messages out of a thread into a new one of their own."""

    thread_id: ThreadId
    message_ids: Annotated[
        list[Id],
        Field(
            min_length=1,
            max_length=1000,
            description="The messages to take out.",
            examples=[["msg_4h8t2w"]],
        ),
    ]


@operation(Scope.WRITE)
async def split_thread(ctx: Context, request: SplitThread) -> Thread:
    new_id = ctx.new_id("thr")
    ids = list(dict.fromkeys(request.message_ids))
    await ctx.store.split_thread(request.thread_id, ids, new_id, ctx.visible)
    return await get_thread(ctx, GetThread(thread_id=new_id))
