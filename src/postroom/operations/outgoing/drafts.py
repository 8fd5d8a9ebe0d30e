"""Drafts: create, list, read, change, delete and send them; the editor of the web pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import inbox_of, message_of, operation, require
from postroom.calls.receipts import needs_read
from postroom.calls.request import (
    Accepts,
    Id,
    Limit,
    Moment,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    one_of,
    refuse_other_kind,
)
from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.mail.addresses import format_address
from postroom.mail.compose import reply_subject
from postroom.model.key import Scope
from postroom.model.mail.message import Header, Message
from postroom.model.mail.sending import Draft, DraftFile, Sent, StoredDraft
from postroom.model.page import Found, Page
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import OneInbox
from postroom.operations.outgoing.outbox import sent_of
from postroom.operations.outgoing.sending import (
    NOT_BOTH,
    SOME_BODY,
    Body,
    InReplyTo,
    InThread,
    MailArguments,
    Subject,
    outgoing_mail_of,
)
from postroom.sending.mail_options import Addresses, Headers, add_options, check_send_at
from postroom.sending.outgoing_mail import (
    AttachmentInput,
    AttachmentInputs,
    OutgoingMail,
    check_files,
    collect,
    inbox_and_parent,
    sending_inbox,
)
from postroom.sending.replies import reply_mail_of
from postroom.sending.submission import IdempotencyKey, check_mail, send_draft_once, sent_with_key

_NO_RECIPIENT = "to: give at least one recipient, or in_reply_to or thread_id for a reply"
_NO_SUBJECT = "subject: is required, unless in_reply_to or thread_id makes the draft a reply"

SendAt = Annotated[Moment, argument("Time at which send_draft delivers it.", "2027-01-31T09:00Z")]


class CreateDraft(MailArguments):
    """Write a mail without sending it; send_draft sends it, at send_at if given.

    With in_reply_to or thread_id, to and subject are optional: they are taken from the mail that it
    answers.
    """

    constraints = (
        one_of("recipients", ("to", "cc", "bcc", "in_reply_to", "thread_id"), _NO_RECIPIENT),
        one_of("about", ("subject", "in_reply_to", "thread_id"), _NO_SUBJECT, may_be_empty=True),
        SOME_BODY,
        NOT_BOTH,
    )
    to: Annotated[Addresses, argument("Recipients.", ["ana@example.com"])] = []
    subject: Annotated[Subject | None, argument("The subject.", "Hello")] = None  # type: ignore[assignment]
    send_at: SendAt = None


@operation(Scope.WRITE)
async def create_draft(ctx: RequestContext, request: CreateDraft) -> Draft:
    check_send_at(ctx, request.send_at)
    check_files(ctx, request.attachments)
    now = ctx.clock().replace(microsecond=0)
    arguments = request.model_dump(
        mode="json", by_alias=True, exclude={"send_at"}, exclude_defaults=True
    )
    draft = StoredDraft(ctx.new_id("drf"), "", arguments, request.send_at, now, now)
    return await _save(ctx, draft)


async def _save(ctx: RequestContext, unsaved: StoredDraft) -> Draft:
    """Check a draft as if it were sent now, and store it."""
    arguments = await _with_parent(ctx, unsaved.arguments)
    inbox = await check_mail(ctx, await _mail_of(ctx, arguments))
    return await _store(ctx, replace(unsaved, inbox_id=inbox.id, arguments=arguments))


async def _store(ctx: RequestContext, unsaved: StoredDraft) -> Draft:
    """Store a draft; the caller is one of its authors now."""
    authors = tuple(dict.fromkeys((*unsaved.authors, *ctx.caller.authors)))
    now = ctx.clock().replace(microsecond=0)
    draft = replace(unsaved, updated_at=now, authors=authors)
    await ctx.store.save_draft(draft)
    return public_draft(draft)


async def _mail_of(ctx: RequestContext, arguments: dict[str, Any]) -> OutgoingMail:
    composed = parse_request(MailArguments, arguments)
    return add_options(await outgoing_mail_of(ctx, composed), composed)


async def _with_parent(ctx: RequestContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a draft, with the recipients and subject of a reply if it has none.

    Raises:
        NotFound: the message or thread that it answers is not here.
    """
    has_recipients = any(arguments.get(name) for name in ("to", "cc", "bcc"))
    if has_recipients and "subject" in arguments:
        return arguments
    reply = await reply_mail_of(ctx, await _answered(ctx, arguments), "")
    filled = {**arguments, "subject": arguments.get("subject", reply_subject(reply.subject))}
    if not has_recipients:
        filled["to"] = [format_address(name, address) for name, address in reply.to]
    return filled


async def _answered(ctx: RequestContext, arguments: dict[str, Any]) -> Message:
    """The message that a draft answers. Raises NotFound, InvalidInput."""
    answered, thread_id = arguments.get("in_reply_to"), arguments.get("thread_id")
    if thread_id:
        newest = await ctx.store.newest_message(thread_id, ctx.visible)
        return require(newest, no_such("thread", thread_id))
    if not answered:
        raise InvalidInput(_NO_SUBJECT if arguments.get("to") else _NO_RECIPIENT)
    if answered.startswith("msg_"):
        return await message_of(ctx, answered)
    composed = {"to": [], "subject": "", **arguments}
    inbox, parent = await inbox_and_parent(ctx, await _mail_of(ctx, composed))
    if parent.message_id is None:
        raise NotFound(f"no message {answered} in the inbox {inbox.id}; give to and subject")
    return await message_of(ctx, parent.message_id)


def public_draft(draft: StoredDraft) -> Draft:
    """A draft without the content of its files."""
    given = draft.arguments
    return Draft(
        id=draft.id,
        inbox_id=draft.inbox_id,
        to=tuple(given.get("to", ())),
        cc=tuple(given.get("cc", ())),
        bcc=tuple(given.get("bcc", ())),
        subject=given.get("subject", ""),
        body_text=given.get("body_text"),
        body_html=given.get("body_html"),
        in_reply_to=given.get("in_reply_to"),
        thread_id=given.get("thread_id"),
        attachments=tuple(_file(file.get) for file in given.get("attachments", ())),
        send_at=draft.send_at,
        created_at=draft.created_at,
        updated_at=draft.updated_at,
        reply_to=tuple(given.get("reply_to", ())),
        headers=tuple(Header(**header) for header in given.get("headers", ())),
        from_=given.get("from"),
    )


def _file(given: Callable[[str], Any]) -> DraftFile:
    content = given("content")
    size = None if content is None else len(content) * 3 // 4 - content[-2:].count("=")
    return DraftFile(given("filename"), given("content_type"), size, given("attachment_id"))


class ListDrafts(Paged):
    """List drafts that have not been sent, newest first."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None


@operation(Scope.READ)
async def list_drafts(ctx: RequestContext, request: ListDrafts) -> Page[Draft]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    found = await ctx.store.drafts(ctx.visible, request.inbox_id, ctx.cursors.slice(request))
    shown = Found(tuple(map(public_draft, found.rows)), found.total, found.offset, found.next)
    return ctx.cursors.page(request, shown)


class OneDraft(Request):
    """A request about one draft."""

    draft_id: Annotated[Id, argument("The draft.", "drf_5t2k8n")]


class GetDraft(OneDraft):
    """Read a draft."""


@operation(Scope.READ)
async def get_draft(ctx: RequestContext, request: GetDraft) -> Draft:
    return public_draft(await unsent_draft(ctx, request.draft_id))


async def draft_of(ctx: RequestContext, draft_id: str) -> StoredDraft:
    refuse_other_kind(draft_id, "drf", {"msg": "get_message", "thr": "get_thread"})
    return require(await ctx.store.draft(draft_id, ctx.visible), no_such("draft", draft_id))


async def unsent_draft(ctx: RequestContext, draft_id: str) -> StoredDraft:
    """A draft that can be changed. Raises NotFound."""
    draft = await draft_of(ctx, draft_id)
    if draft.message_id is not None:
        raise NotFound(
            f"no draft {draft_id}: it was sent as {draft.message_id}; cancel_message makes it a "
            "draft again while it is queued or scheduled"
        )
    return draft


class UpdateDraft(OneDraft):
    """Change a draft; omitted fields stay, and null clears a field."""

    constraints = (NOT_BOTH,)
    to: Annotated[Addresses | None, argument("Recipients.", ["ana@example.com"])] = None
    cc: Annotated[Addresses | None, argument("Copies to.", ["bo@example.com"])] = None
    bcc: Annotated[Addresses | None, argument("Hidden copies to.", ["cy@example.com"])] = None
    subject: Annotated[Subject | None, argument("The subject.", "Hello")] = None
    body_text: Annotated[Body | None, argument("The text.", "Hi!")] = None
    body_html: Annotated[Body | None, argument("The HTML version.", "<p>Hi!</p>")] = None
    attachments: Annotated[
        AttachmentInputs | None, argument("All files.", [{"attachment_id": "att_6p1r4z"}])
    ] = None
    in_reply_to: InReplyTo = None
    thread_id: InThread = None
    send_at: SendAt = None
    reply_to: Annotated[Addresses | None, argument("Reply-To.", ["team@example.com"])] = None
    headers: Annotated[
        Headers | None, argument("All extra headers.", [{"name": "X-Campaign", "value": "spring"}])
    ] = None


@operation(Scope.WRITE)
async def update_draft(ctx: RequestContext, request: UpdateDraft) -> Draft:
    if not request.model_fields_set.isdisjoint(("to", "cc", "bcc")):
        needs_read(ctx, "new recipients would get the content of the draft")
    check_send_at(ctx, request.send_at)
    check_files(ctx, request.attachments)
    draft = await unsent_draft(ctx, request.draft_id)
    changes = request.model_dump(mode="json", exclude={"draft_id", "send_at"}, exclude_unset=True)
    send_at = request.send_at if "send_at" in request.model_fields_set else draft.send_at
    changed = replace(draft, arguments=_changed(draft, changes), send_at=send_at)
    await _refuse_missing_parent(ctx, changed)
    return await _save(ctx, changed)


def _changed(draft: StoredDraft, changes: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a draft after a change; it stays in its inbox."""
    arguments = {**draft.arguments, **changes}
    for named, other in (("in_reply_to", "thread_id"), ("thread_id", "in_reply_to")):
        if changes.get(named) and other not in changes:
            arguments[other] = None
    if "from" not in arguments:
        arguments["inbox_id"] = arguments.get("inbox_id") or draft.inbox_id
    return {name: value for name, value in arguments.items() if value is not None}


async def _refuse_missing_parent(ctx: RequestContext, draft: StoredDraft) -> None:
    """Refuse a draft that answers a removed message or thread. Raises NotFound."""
    message_id, thread_id = (draft.arguments.get(n) for n in ("in_reply_to", "thread_id"))
    if message_id and message_id.startswith("msg_"):
        answered, parent = message_id, await ctx.store.message(message_id, ctx.visible)
    elif thread_id:
        answered, parent = thread_id, await ctx.store.newest_message(thread_id, ctx.visible)
    else:
        return
    if parent is None:
        raise NotFound(
            f"{answered}, which the draft {draft.id} answers, was removed; change the draft: set "
            "in_reply_to to another message or a Message-ID, or set in_reply_to and thread_id to "
            "null for a new mail"
        )


class DeleteDraft(OneDraft):
    """Delete a draft."""


@operation(Scope.WRITE, destroys=True)
async def delete_draft(ctx: RequestContext, request: DeleteDraft) -> None:
    draft = await unsent_draft(ctx, request.draft_id)
    if not await ctx.store.remove_draft(draft.id, ctx.visible):
        raise NotFound(no_such("draft", draft.id))


class SendDraft(OneDraft):
    """Send a draft, at its send_at if that is in the future. A repeated request sends it once."""

    idempotency_key: IdempotencyKey = None


@operation(Scope.SEND)
async def send_draft(ctx: RequestContext, request: SendDraft) -> Sent:
    draft = await draft_of(ctx, request.draft_id)
    key = request.idempotency_key
    if key is not None and (earlier := await sent_with_key(ctx, draft.id, key)):
        return earlier
    if draft.message_id is not None:
        message = await ctx.store.message(draft.message_id, ctx.visible)
        if message is None:
            raise Conflict(
                f"the draft {draft.id} was sent as {draft.message_id}, which was removed; write a "
                "new draft to send it again"
            )
        return sent_of(message)
    await _refuse_missing_parent(ctx, draft)
    outgoing_mail = await _mail_of(ctx, draft.arguments)
    if draft.send_at is not None and draft.send_at > ctx.clock():
        outgoing_mail.send_at = draft.send_at
    return await send_draft_once(ctx, outgoing_mail, draft, key)


_NEW_ID = re.compile(r"drf_[0-9a-z]{6,60}")
_Recipients = Annotated[list[Annotated[str, Field(max_length=20_000)]], Field(max_length=500)]


class SaveDraft(OneDraft):
    """Store an unfinished mail; it is checked when it is sent.

    What is given replaces what is stored. A draft with a new id is created. Files are added to
    those of the draft, unless it has them; `remove_file` removes the one with this number, of
    `file_count` files.
    """

    constraints = (NOT_BOTH,)
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
    needs_read(ctx, "new recipients would get the content of the draft")
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
    changed = replace(draft, inbox_id=inbox.id, arguments=arguments, send_at=request.send_at)
    return await _store(ctx, changed)


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
            raise Conflict("the files of this draft were changed meanwhile; read the draft again")
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


class FindContacts(OneInbox):
    """Find people whom an inbox knows by the beginning of their address.

    Known are those whom it wrote to, and those who wrote several times.
    """

    q: Annotated[str, argument("The beginning of the address.", "ana", max_length=254)]
    limit: Limit = 8


@operation(Scope.READ)
async def find_contacts(ctx: RequestContext, request: FindContacts) -> tuple[str, ...]:
    if not request.q.strip():
        raise InvalidInput("q: type the beginning of an address")
    inbox = await inbox_of(ctx, request.inbox_id)
    return await ctx.store.contacts(inbox.id, request.q, request.limit)
