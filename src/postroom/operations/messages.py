"""Finding, reading and organising messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.errors import InvalidInput, NotFound, no_such
from postroom.mail.fold import fold
from postroom.model.inbox import TRASH, Label
from postroom.model.key import Scope
from postroom.model.message import ActionResult, FailedAction, Message, MessageRow
from postroom.model.page import Page
from postroom.model.stored import Change, MessageQuery
from postroom.operations import forms
from postroom.operations.confidences import recall_beside
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.questions import recall_mail
from postroom.operations.reading import read_message
from postroom.operations.request import (
    Accepts,
    Id,
    Moment,
    OptionalId,
    Paged,
    Request,
    Together,
    not_both,
    one_of,
)

MessageId = Annotated[Id, Field(description="The message.", examples=["msg_4h8t2w"])]


def _label(name: str) -> str:
    if not re.fullmatch(forms.NAME, name):
        raise ValueError("a label is 1 to 128 characters on one line, not only spaces")
    return name


LabelName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    AfterValidator(_label),
    Accepts({"pattern": forms.NAME}),
]
MailboxName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(str)
]
SOUGHT = Accepts({"pattern": forms.SOUGHT})


class MessageFilter(Paged):
    """The filters that lists and searches share."""

    together: ClassVar[tuple[Together, ...]] = (*Paged.together, not_both("text", "q", "query"))
    inbox_id: Annotated[
        OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])
    ] = None
    thread_id: Annotated[
        OptionalId, Field(description="Only this thread.", examples=["thr_9d3f1x"])
    ] = None
    q: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Literal text, in any case: in subject, body, sender or attachment names.",
            examples=["invoice.pdf"],
        ),
        SOUGHT,
    ] = None
    query: Annotated[
        str | None,
        Field(min_length=1, max_length=256, description="The same as q.", examples=["invoice"]),
        SOUGHT,
    ] = None
    labels: Annotated[
        list[LabelName],
        Field(max_length=50, description="With all of these labels.", examples=[["Work"]]),
    ] = []
    sender: Annotated[
        str | None,
        Field(
            alias="from",
            min_length=1,
            max_length=256,
            description="Sender: address, @domain, or a part of address or name.",
            examples=["@example.com"],
        ),
        SOUGHT,
    ] = None
    recipient: Annotated[
        str | None,
        Field(
            alias="to",
            min_length=1,
            max_length=256,
            description="The same for to, cc and bcc.",
            examples=["ana@example.com"],
        ),
        SOUGHT,
    ] = None
    has_attachment: Annotated[
        bool | None, Field(description="With or without attachments.", examples=[True])
    ] = None
    after_date: Annotated[
        Moment, Field(description="From this time on.", examples=["2026-01-31"])
    ] = None
    before_date: Annotated[
        Moment, Field(description="Before this time.", examples=["2026-02-28T12:00Z"])
    ] = None
    mailbox: Annotated[
        MailboxName | None,
        Field(
            description="Only this mailbox; * is all. Default: all but Trash, Junk.",
            examples=["Archive"],
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _query_is_q(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("query") is None:
            return data
        if data.get("q") not in (None, data["query"]):
            raise ValueError("q and query differ; they mean the same, so give one")
        rest = {name: value for name, value in data.items() if name != "query"}
        return {**rest, "q": data["query"]}

    def criteria(self, ctx: Context) -> MessageQuery:
        """What the store is asked.

        Raises:
            InvalidInput: a text folds to nothing, or an id is of another kind.
        """
        check_kinds(inbox_id=self.inbox_id, thread_id=self.thread_id)
        return MessageQuery(
            visible=ctx.visible,
            inbox_id=self.inbox_id,
            thread_id=self.thread_id,
            q=folded("q", self.q),
            sender=folded("from", self.sender),
            recipient=folded("to", self.recipient),
            labels=tuple(self.labels),
            has_attachment=self.has_attachment,
            after=self.after_date,
            before=self.before_date,
            mailbox=self.mailbox,
            page=ctx.cursors.slice(self),
        )


def folded(name: str, text: str | None) -> str | None:
    """A text in the form in which it is looked for. Raises InvalidInput if nothing is left."""
    if text is None:
        return None
    found = fold(text)
    if not found:
        raise InvalidInput(f"{name}: there is nothing to look for in it but space")
    return found


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
    refuse_other_kind(message_id, "msg", _READERS)
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None:
        raise NotFound(no_such("message", message_id))
    return message


_READERS = {
    "thr": "get_thread",
    "att": "get_attachment_content",
    "inb": "list_messages",
    "imap:": "imap_get_message",
}


_KINDS = {"inbox_id": "inb", "thread_id": "thr", "message_id": "msg"}
_TOOLS = {
    "inb": "list_messages(inbox_id)",
    "thr": "get_thread",
    "msg": "get_message",
    "att": "get_attachment_content",
}


def check_kinds(**ids: str | None) -> None:
    """Refuse an id that is of another kind than its argument wants. Raises InvalidInput."""
    for name, given in ids.items():
        prefix = (given or "").partition("_")[0]
        if given and prefix != _KINDS[name] and prefix in _TOOLS and "_" in given:
            raise InvalidInput(
                f"{name}: {given} is no {_KINDS[name]}_ id; {_TOOLS[prefix]} is for it"
            )


def refuse_other_kind(given: str, wanted: str, readers: dict[str, str]) -> None:
    """Refuse an id of another kind with the name of the tool that takes it."""
    for prefix, tool in readers.items():
        if given.startswith(prefix if prefix.endswith(":") else f"{prefix}_"):
            raise InvalidInput(f"{given} is not a {wanted}_ id; use {tool} for it")


class UpdateMessage(Request):
    """Set the flags or the labels of a message; each list replaces the one before."""

    together: ClassVar[tuple[Together, ...]] = (
        one_of("change", "flags", "labels", may_be_empty=True),
    )
    message_id: MessageId
    flags: Annotated[
        list[Literal["seen", "flagged", "answered", "draft"]] | None,
        Field(max_length=4, description="All flags it shall have.", examples=[["seen"]]),
    ] = None
    labels: Annotated[
        list[LabelName] | None,
        Field(max_length=50, description="All labels it shall have.", examples=[["Work"]]),
    ] = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.flags is None and self.labels is None:
            raise ValueError("give flags or labels, or both")
        return self


@operation(Scope.WRITE)
async def update_message(ctx: Context, request: UpdateMessage) -> ActionResult:
    change = Change(
        flags=None if request.flags is None else tuple(request.flags),
        labels=None if request.labels is None else tuple(request.labels),
    )
    return await _changed(ctx, [request.message_id], change)


async def _changed(ctx: Context, message_ids: Sequence[str], change: Change) -> ActionResult:
    """Change messages. Raises InvalidInput, before anything is changed, for ids of others."""
    for message_id in message_ids:
        refuse_other_kind(message_id, "msg", _READERS)
    return await ctx.store.change_messages(message_ids, change, ctx.visible)


class ApplyLabel(Request):
    """Put a label on messages, or take it off with remove. A new label is made on first use."""

    message_ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]],
        Field(
            min_length=1, max_length=1000, description="The messages.", examples=[["msg_4h8t2w"]]
        ),
    ]
    label: Annotated[LabelName, Field(description="The label.", examples=["Work"])]
    remove: Annotated[bool, Field(description="Take it off instead.", examples=[True])] = False


@operation(Scope.WRITE)
async def apply_label(ctx: Context, request: ApplyLabel) -> ActionResult:
    if request.remove:
        change = Change(remove_labels=(request.label,))
    else:
        change = Change(add_labels=(request.label,))
    ids = list(dict.fromkeys(request.message_ids))
    return await _changed(ctx, ids, change)


class MoveMessage(Request):
    """Move a message to another mailbox, such as Archive or Trash; a new one is made."""

    message_id: MessageId
    destination: Annotated[
        MailboxName,
        Field(description="The mailbox.", examples=["Archive"]),
        Accepts({"not": {"const": "*"}}),
    ]

    @model_validator(mode="after")
    def _one_mailbox(self) -> Self:
        if self.destination == "*":
            raise ValueError("destination: * means every mailbox; name one")
        return self


@operation(Scope.WRITE)
async def move_message(ctx: Context, request: MoveMessage) -> ActionResult:
    return await _changed(ctx, [request.message_id], Change(move_to=request.destination))


class DeleteMessage(Request):
    """Move a message to Trash; with permanent, remove it for good."""

    message_id: MessageId
    permanent: Annotated[bool, Field(description="Remove it for good.", examples=[True])] = False


@operation(Scope.WRITE, destroys=True)
async def delete_message(ctx: Context, request: DeleteMessage) -> ActionResult:
    if not request.permanent:
        return await _changed(ctx, [request.message_id], Change(move_to=TRASH))
    refuse_other_kind(request.message_id, "msg", _READERS)
    unused = await ctx.store.remove_message(request.message_id, ctx.visible)
    if unused is None:
        missing = FailedAction(
            request.message_id, NotFound.code, no_such("message", request.message_id)
        )
        return ActionResult.of((), (missing,))
    await ctx.blobs.discard(unused, ctx.store.used_blobs)
    return ActionResult.of((request.message_id,), ())


class ListLabels(Paged):
    """List the labels in use, by name."""


@operation(Scope.READ)
async def list_labels(ctx: Context, request: ListLabels) -> Page[Label]:
    found = await ctx.store.labels(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)
