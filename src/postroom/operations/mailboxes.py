"""Mailboxes with their counts; renaming and removing labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import LabelName, OptionalInboxName, Paged, Request, argument
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.model.inbox import EVERY_MAILBOX, Label, Mailbox
from postroom.model.key import Scope
from postroom.model.message import FailedAction
from postroom.model.page import Page, Slice
from postroom.model.storage import Change, MessageQuery

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
    """Rename a label on all messages you may see; a label of the new name takes them in."""

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
    """Take a label off all messages you may see; the messages stay."""

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
