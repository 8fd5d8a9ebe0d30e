"""Finding and reading messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from postroom.errors import NotFound, no_such
from postroom.model.key import Scope
from postroom.model.message import Message, MessageRow
from postroom.model.page import Page
from postroom.operations.confidences import recall_beside
from postroom.operations.context import Context
from postroom.operations.id_kinds import READERS, refuse_other_kind
from postroom.operations.message_filter import MessageFilter
from postroom.operations.operation import operation
from postroom.operations.questions import recall_mail
from postroom.operations.reading import read_message
from postroom.operations.request import Id, Request, Together, one_of

MessageId = Annotated[Id, Field(description="The message.", examples=["msg_4h8t2w"])]


class ListMessages(MessageFilter):
    """List messages of an inbox or a thread (give one), newest first; q and filters narrow it."""

    together: ClassVar[tuple[Together, ...]] = (
        *MessageFilter.together,
        one_of("filter", "inbox_id", "thread_id"),
    )

    @model_validator(mode="after")
    def _inbox_or_thread(self) -> Self:
        if not self.inbox_id and not self.thread_id:
            raise ValueError("at least one filter (inbox_id or thread_id) is required")
        return self


@operation(Scope.READ)
async def list_messages(ctx: Context, request: ListMessages) -> Page[MessageRow]:
    found = await ctx.store.messages(request.criteria(ctx))
    return ctx.cursors.page(request, found)


_EXACT = {"properties": {"mode": {"enum": ["exact"]}}}
_QUESTION = one_of("question", "q", "query").schema["anyOf"]


class SearchMessages(MessageFilter):
    """Search messages by text and filters in one inbox, one thread or everywhere, newest first.

    The answer has the exact total; `excerpt` shows the match.
    """

    together: ClassVar[tuple[Together, ...]] = (
        *MessageFilter.together,
        one_of(
            "criteria",
            *("inbox_id", "thread_id", "q", "query", "labels", "from", "to"),
            *("has_attachment", "after_date", "before_date", "mailbox"),
        ),
        Together("question", ("mode", "q", "query"), {"anyOf": [_EXACT, *_QUESTION]}),
    )
    mode: Annotated[
        Literal["exact", "hybrid"],
        Field(description="hybrid ranks by meaning.", examples=["hybrid"]),
    ] = "exact"

    @model_validator(mode="after")
    def _something_to_look_for(self) -> Self:
        if self.model_fields_set <= {"limit", "offset", "cursor", "mode"} or not self._criteria():
            raise ValueError(
                "at least one criterion is required, such as q, from, labels or inbox_id"
            )
        if self.mode == "hybrid" and self.q is None:
            raise ValueError("mode hybrid needs q: the question to answer")
        return self

    def _criteria(self) -> dict[str, Any]:
        pages = {"limit", "offset", "cursor", "mode"}
        return self.model_dump(exclude=pages, exclude_defaults=True, exclude_none=True)


@operation(Scope.READ)
async def search_messages(ctx: Context, request: SearchMessages) -> Page[MessageRow]:
    criteria = request.criteria(ctx)
    if request.mode == "exact":
        found = await ctx.store.messages(criteria)
    else:
        found = await recall_mail(ctx, criteria, request.q or "")
    return ctx.cursors.page(request, found)


IncludeMemories = Annotated[bool, Field(description="Add memories of its people.", examples=[True])]


class GetMessage(Request):
    """Read one message: addresses, text, attachments as metadata. A long text comes in parts."""

    message_id: MessageId
    include_attachments: Annotated[
        bool, Field(description="Add contents as base64, if small.", examples=[True])
    ] = False
    include_html: Annotated[bool, Field(description="Add the sanitised HTML.", examples=[True])] = (
        False
    )
    include_headers: Annotated[
        bool, Field(description="Add all headers in order.", examples=[True])
    ] = False
    include_quoted: Annotated[
        bool, Field(description="Add quoted text and signature apart.", examples=[True])
    ] = False
    include_memories: IncludeMemories = False
    max_chars: Annotated[
        int,
        Field(ge=1, le=100_000, description="Cut each text here.", examples=[4000]),
    ] = 12_000
    text_offset: Annotated[
        int,
        Field(
            ge=0,
            le=2**53,
            description="Read text on from next_offset.",
            examples=[12000],
        ),
    ] = 0


@operation(Scope.READ)
async def get_message(ctx: Context, request: GetMessage) -> Message:
    message = await message_of(ctx, request.message_id)
    if request.include_memories:
        message = replace(message, memories=await recall_beside(ctx, message))
    return await read_message(
        ctx,
        message,
        include_attachments=request.include_attachments,
        include_html=request.include_html,
        include_headers=request.include_headers,
        include_quoted=request.include_quoted,
        max_chars=request.max_chars,
        text_offset=request.text_offset,
    )


async def message_of(ctx: Context, message_id: str) -> Message:
    """The message, if it exists for the caller.

    Raises:
        InvalidInput: the id is one of another kind.
        NotFound: there is no such message.
    """
    refuse_other_kind(message_id, "msg", READERS)
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None:
        raise NotFound(no_such("message", message_id))
    return message
