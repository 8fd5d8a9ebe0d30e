"""Changes of messages (flags, labels, mailboxes, deletion); mailboxes and labels themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, operation
from postroom.calls.request import (
    READERS,
    Accepts,
    LabelName,
    MailboxName,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    change_of,
    refuse_other_kind,
)
from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.model.inbox import EVERY_MAILBOX, TRASH, Label, Mailbox
from postroom.model.key import Scope
from postroom.model.mail.message import ActionResult, FailedAction
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.page import Page, Slice
from postroom.pipeline.blobs import discard_unused

_CHANGES = ("flags", "labels", "add_flags", "remove_flags", "add_labels", "remove_labels")
_Flags = list[Literal["seen", "flagged", "answered", "draft"]] | None
_Labels = list[LabelName] | None


class UpdateMessage(OneMessage):
    """Set the flags or the labels of a message; each list replaces the current one.

    Lists to add and to remove change only what they name.
    """

    constraints = (change_of(_CHANGES, f"give something to change: {', '.join(_CHANGES)}"),)
    flags: Annotated[_Flags, argument("The new list of flags.", ["seen"], max_length=4)] = None
    labels: Annotated[_Labels, argument("The new list of labels.", ["Work"], max_length=50)] = None
    add_flags: Annotated[_Flags, argument("Flags to add.", ["seen"], max_length=4)] = None
    remove_flags: Annotated[_Flags, argument("Flags to remove.", ["flagged"], max_length=4)] = None
    add_labels: Annotated[_Labels, argument("Labels to add.", ["Work"], max_length=50)] = None
    remove_labels: Annotated[_Labels, argument("Labels to remove.", ["Todo"], max_length=50)] = None


@operation(Scope.WRITE)
async def update_message(ctx: RequestContext, request: UpdateMessage) -> ActionResult:
    change = Change(
        flags=None if request.flags is None else tuple(request.flags),
        labels=None if request.labels is None else tuple(request.labels),
        add_flags=tuple(request.add_flags or ()),
        remove_flags=tuple(request.remove_flags or ()),
        add_labels=tuple(request.add_labels or ()),
        remove_labels=tuple(request.remove_labels or ()),
    )
    return await _changed(ctx, [request.message_id], change)


class ApplyLabel(Request):
    """Add a label to messages, created on first use, or remove it."""

    message_ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]],
        argument("The messages.", ["msg_4h8t2w"], min_length=1, max_length=1000),
    ]
    label: Annotated[LabelName, argument("The label.", "Work")]
    remove: Annotated[bool, argument("Remove it instead.", True)] = False


@operation(Scope.WRITE)
async def apply_label(ctx: RequestContext, request: ApplyLabel) -> ActionResult:
    labels = (request.label,)
    change = Change(remove_labels=labels) if request.remove else Change(add_labels=labels)
    return await _changed(ctx, list(dict.fromkeys(request.message_ids)), change)


class MoveMessage(OneMessage):
    """Move a message to another mailbox, such as Archive or Trash; a missing mailbox is created."""

    destination: Annotated[
        MailboxName, argument("The mailbox.", "Archive"), Accepts({"not": {"const": "*"}})
    ]

    @model_validator(mode="after")
    def _one_mailbox(self) -> Self:
        if self.destination == "*":
            raise ValueError("destination: * means every mailbox; choose one")
        return self


@operation(Scope.WRITE)
async def move_message(ctx: RequestContext, request: MoveMessage) -> ActionResult:
    return await _changed(ctx, [request.message_id], Change(move_to=request.destination))


class DeleteMessage(OneMessage):
    """Move a message to Trash; permanent=true deletes it."""

    permanent: Annotated[bool, argument("Delete it permanently.", True)] = False


@operation(Scope.WRITE, destroys=True)
async def delete_message(ctx: RequestContext, request: DeleteMessage) -> ActionResult:
    if not request.permanent:
        return await _changed(ctx, [request.message_id], Change(move_to=TRASH))
    refuse_other_kind(request.message_id, "msg", READERS)
    unused = await ctx.store.remove_message(request.message_id, ctx.visible)
    if unused is None:
        missing = FailedAction(
            request.message_id, NotFound.code, no_such("message", request.message_id)
        )
        return ActionResult.of((), (missing,))
    await discard_unused(ctx, unused)
    return ActionResult.of((request.message_id,), ())


async def _changed(ctx: RequestContext, message_ids: Sequence[str], change: Change) -> ActionResult:
    """Change messages. Raises InvalidInput if an id is of another kind."""
    for message_id in message_ids:
        refuse_other_kind(message_id, "msg", READERS)
    return await ctx.store.change_messages(message_ids, change, ctx.visible)


class ListLabels(Paged):
    """List the labels in use, by name."""


@operation(Scope.READ)
async def list_labels(ctx: RequestContext, request: ListLabels) -> Page[Label]:
    found = await ctx.store.labels(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


_AT_ONCE = 100
"""How many messages one transaction changes, so that other writers get their turn."""


class ListMailboxes(Paged):
    """List the mailboxes of an inbox, or of all: messages in total and unread."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None


@operation(Scope.READ)
async def list_mailboxes(ctx: RequestContext, request: ListMailboxes) -> Page[Mailbox]:
    page = ctx.cursors.slice(request)
    return ctx.cursors.page(
        request, await ctx.store.mailboxes(ctx.visible, page, inbox_id=request.inbox_id)
    )


class RenameLabel(Request):
    """Rename a label on all messages you may see; if the new name exists, both are merged."""

    label: Annotated[LabelName, argument("The label.", "Work")]
    name: Annotated[LabelName, argument("Its new name.", "Projects")]


@operation(Scope.WRITE)
async def rename_label(ctx: RequestContext, request: RenameLabel) -> Label:
    if request.name.casefold() == request.label.casefold():
        raise InvalidInput(
            f"name: {request.name} is the same label as {request.label}, because labels are "
            "compared without case; choose another name"
        )
    change = Change(add_labels=(request.name,), remove_labels=(request.label,))
    await _change_labelled(ctx, request.label, change)
    query = MessageQuery(ctx.visible, labels=(request.name,))
    found = await ctx.store.messages(query)
    unread = await ctx.store.messages(replace(query, without_flags=("seen",)))
    return Label(request.name, found.total, unread.total)


class DeleteLabel(Request):
    """Remove a label from all messages you may see; the messages stay."""

    label: Annotated[LabelName, argument("The label.", "Work")]


@operation(Scope.WRITE, destroys=True)
async def delete_label(ctx: RequestContext, request: DeleteLabel) -> None:
    await _change_labelled(ctx, request.label, Change(remove_labels=(request.label,)))


async def _change_labelled(ctx: RequestContext, label: str, change: Change) -> None:
    """Change all visible messages with a label, some in each transaction.

    Interrupted, it is complete after it is called again.

    Raises:
        NotFound: no message has the label.
        Conflict: some messages could not be changed.
    """
    changed, failed = 0, list[FailedAction]()
    while True:
        page = Slice(limit=_AT_ONCE, offset=len(failed))
        found = await ctx.store.messages(
            MessageQuery(ctx.visible, labels=(label,), mailbox=EVERY_MAILBOX, page=page)
        )
        if not found.rows:
            break
        result = await ctx.store.change_messages([m.id for m in found.rows], change, ctx.visible)
        changed += len(result.succeeded)
        failed += result.failed
    if failed:
        raise Conflict(
            f"{len(failed)} messages keep the label {label}, {changed} were changed; the first: "
            f"{failed[0].message_id}: {failed[0].message}"
        )
    if not changed:
        raise NotFound(f"no label {label}; list_labels shows those in use")
