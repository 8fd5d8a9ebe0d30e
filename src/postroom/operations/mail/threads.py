"""Threads: list, read, merge and split them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation, thread_of
from postroom.calls.request import (
    Id,
    LabelName,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    check_kinds,
)
from postroom.model.key import Scope
from postroom.model.mail.message import Thread, ThreadMessage, ThreadRow
from postroom.model.mail.storage import ThreadQuery
from postroom.model.page import Page
from postroom.operations.mail.messages import IncludeMemories, fair_max_length
from postroom.operations.memories import memories_about

THREAD_CHARS, ROW_CHARS = 38_000, 700
"""The size limit of a thread, and the size of a message in it without its texts."""

ThreadId = Annotated[Id, argument("The thread.", "thr_9d3f1x")]


class ListThreads(Paged):
    """List threads, the one with the newest message first."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None
    label: Annotated[LabelName | None, argument("With this label.", "Work")] = None


@operation(Scope.READ)
async def list_threads(ctx: RequestContext, request: ListThreads) -> Page[ThreadRow]:
    check_kinds(inbox_id=request.inbox_id)
    query = ThreadQuery(ctx.visible, request.inbox_id, request.label, ctx.cursors.slice(request))
    return ctx.cursors.page(request, await ctx.store.threads(query))


class GetThread(Request):
    """Read a thread: its newest messages, oldest first, each with its new text."""

    thread_id: ThreadId
    limit: Annotated[int, argument("How many messages.", 20, ge=1, le=100)] = 50
    before: Annotated[OptionalId, argument("Only messages before this one.", "msg_4h8t2w")] = None
    include_text: Annotated[bool, argument("Add the whole texts, including quotes.", True)] = False
    include_memories: IncludeMemories = False


@operation(Scope.READ)
async def get_thread(ctx: RequestContext, request: GetThread) -> Thread:
    thread = await thread_of(ctx, request.thread_id, limit=request.limit, before=request.before)
    if request.include_memories:
        thread = replace(thread, memories=await memories_about(ctx, thread))
    return fit_thread(thread, include_text=request.include_text)


def fit_thread(thread: Thread, *, include_text: bool) -> Thread:
    """Cut the texts so that the thread fits a model's context; `truncated` marks cut messages."""
    shown = [m if include_text else replace(m, text=None) for m in thread.messages]
    lengths = [len(text) for m in shown for text in (m.new_text, m.text) if text]
    whole = THREAD_CHARS * (2 if include_text else 1)
    cut = fair_max_length(lengths, max(whole - ROW_CHARS * len(shown), whole // 8))
    return replace(thread, messages=tuple(_fit_message(m, cut) for m in shown))


def _fit_message(message: ThreadMessage, cut: int) -> ThreadMessage:
    new_text, text = message.new_text[:cut], message.text and message.text[:cut]
    is_cut = (new_text, text) != (message.new_text, message.text)
    return replace(message, new_text=new_text, text=text, truncated=is_cut or None)


class MergeThreads(Request):
    """Merge several threads of one inbox into the first of them."""

    thread_ids: Annotated[
        list[Id],
        argument(
            "The threads; merged into the first.",
            ["thr_9d3f1x", "thr_2b5n8c"],
            min_length=2,
            max_length=50,
        ),
    ]


@operation(Scope.WRITE)
async def merge_threads(ctx: RequestContext, request: MergeThreads) -> Thread:
    thread_id = await ctx.store.merge_threads(request.thread_ids, ctx.visible)
    return await get_thread(ctx, GetThread(thread_id=thread_id))


class SplitThread(Request):
    """Move messages from a thread into a new one."""

    thread_id: ThreadId
    message_ids: Annotated[
        list[Id],
        argument("The messages to move.", ["msg_4h8t2w"], min_length=1, max_length=1000),
    ]


@operation(Scope.WRITE)
async def split_thread(ctx: RequestContext, request: SplitThread) -> Thread:
    new_id = ctx.new_id("thr")
    ids = list(dict.fromkeys(request.message_ids))
    await ctx.store.split_thread(request.thread_id, ids, new_id, ctx.visible)
    return await get_thread(ctx, GetThread(thread_id=new_id))
