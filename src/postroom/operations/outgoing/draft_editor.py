"""The editor of the web pages: a mail that is being written is stored, complete or not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import Accepts, InboxName, Limit, Request, argument
from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.model.key import Scope
from postroom.model.sending import Draft, StoredDraft
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing.drafts import DraftId, SendAt, public_draft, unsent_draft
from postroom.operations.outgoing.sending import NOT_BOTH, Body, InReplyTo, InThread
from postroom.sending.mail_options import check_send_at
from postroom.sending.outgoing_mail import (
    AttachmentInput,
    AttachmentInputs,
    OutgoingMail,
    check_files,
    collect,
    sending_inbox,
)

_NEW_ID = re.compile(r"drf_[0-9a-z]{6,60}")
_Recipients = Annotated[list[Annotated[str, Field(max_length=20_000)]], Field(max_length=500)]


class SaveDraft(Request):
    """Store a mail as far as it is written; it is checked when it is sent.

    What is given replaces what is stored. A draft with a new id is created. Files are added to
    those of the draft, unless it has them; `remove_file` removes the one with this number, of
    `file_count` files.
    """

    constraints = (NOT_BOTH,)
    draft_id: DraftId
    sender: Annotated[
        str | None,
        argument("The address to send from.", "me@postroom.localhost", alias="from"),
        Field(max_length=320),
    ] = None
    to: Annotated[_Recipients, argument("Recipients.", ["ana@example.com"])] = []
    cc: Annotated[_Recipients, argument("Copies to.", ["bo@example.com"])] = []
    bcc: Annotated[_Recipients, argument("Hidden copies to.", ["cy@example.com"])] = []
    subject: Annotated[
        str, argument("The subject.", "Hello", max_length=998), Accepts({"pattern": request.LINE})
    ] = ""
    body_text: Annotated[Body | None, argument("The text.", "Hi!")] = None
    body_html: Annotated[Body | None, argument("The HTML version.", "<p>Hi!</p>")] = None
    in_reply_to: InReplyTo = None
    thread_id: InThread = None
    send_at: SendAt = None
    add_files: Annotated[AttachmentInputs, Field(description="Files to add.")] = []
    remove_file: Annotated[int | None, argument("The number of a file to remove.", 1, ge=0)] = None
    file_count: Annotated[int | None, argument("How many files it has.", 2, ge=0)] = None


@operation(Scope.WRITE)
async def save_draft(ctx: RequestContext, request: SaveDraft) -> Draft:
    needs_read(ctx, "other recipients would get what the draft says")
    check_files(ctx, request.add_files)
    draft = await _draft_or_new(ctx, request.draft_id)
    if request.send_at != draft.send_at:
        check_send_at(ctx, request.send_at)
    files = await _files_after(ctx, draft, request)
    arguments = _arguments(draft, request, files)
    inbox_id = arguments.get("inbox_id") or draft.inbox_id or None
    mail = OutgoingMail(
        sender=request.sender, inbox_id=None if request.sender else inbox_id, to=[], subject=""
    )
    inbox = await sending_inbox(ctx, mail)
    changed = replace(
        draft,
        inbox_id=inbox.id,
        arguments=arguments,
        send_at=request.send_at,
        updated_at=ctx.clock().replace(microsecond=0),
        authors=tuple(dict.fromkeys((*draft.authors, *ctx.caller.authors))),
    )
    await ctx.store.save_draft(changed)
    return public_draft(changed)


async def _draft_or_new(ctx: RequestContext, draft_id: str) -> StoredDraft:
    """The draft with this id; a new one if there is none. Raises NotFound."""
    if await ctx.store.draft(draft_id, EVERYTHING) is not None:
        return await unsent_draft(ctx, draft_id)
    if not _NEW_ID.fullmatch(draft_id):
        raise NotFound(no_such("draft", draft_id))
    now = ctx.clock().replace(microsecond=0)
    return StoredDraft(draft_id, "", {}, None, now, now)


async def _files_after(
    ctx: RequestContext, draft: StoredDraft, request: SaveDraft
) -> list[dict[str, Any]]:
    """The files of a draft after a change. Raises Conflict, InvalidInput, TooLarge."""
    files = list(draft.arguments.get("attachments", ()))
    if request.remove_file is not None:
        if request.file_count != len(files) or request.remove_file >= len(files):
            raise Conflict("the files of this draft were changed meanwhile; look at them again")
        del files[request.remove_file]
    if request.add_files:
        added = [file.model_dump(mode="json", exclude_none=True) for file in request.add_files]
        files += [file for file in added if file not in files]
        await collect(ctx, [AttachmentInput(**file) for file in files])
    return files


def _arguments(
    draft: StoredDraft, request: SaveDraft, files: list[dict[str, Any]]
) -> dict[str, Any]:
    """The arguments of the mail: what this request names replaces what was stored."""
    given = request.model_dump(
        mode="json",
        by_alias=True,
        exclude={"draft_id", "send_at", "add_files", "remove_file", "file_count"},
    )
    if request.sender:
        given["inbox_id"] = None
    changed = {**draft.arguments, **given, "attachments": files}
    kept = {name: value for name, value in changed.items() if value not in (None, [])}
    return {"to": [], "subject": "", **kept}


class FindContacts(Request):
    """Find people whom an inbox knows by the beginning of their address.

    Known are those whom it wrote to, and those who wrote several times.
    """

    inbox_id: Annotated[InboxName, argument("The inbox.", "inb_7k2m9q")]
    q: Annotated[str, argument("The beginning of the address.", "ana", max_length=254)]
    limit: Limit = 8


@operation(Scope.READ)
async def find_contacts(ctx: RequestContext, request: FindContacts) -> tuple[str, ...]:
    if not request.q.strip():
        raise InvalidInput("q: type the beginning of an address")
    inbox = await inbox_of(ctx, request.inbox_id)
    return await ctx.store.contacts(inbox.id, request.q, request.limit)
