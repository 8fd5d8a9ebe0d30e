"""Drafts: written, looked at, changed, and sent at once or later."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.draft import Draft, DraftFile, StoredDraft
from postroom.model.key import Scope
from postroom.model.page import Found, Page
from postroom.model.sending import Sent
from postroom.operations.context import Context
from postroom.operations.enclosures import Enclosures
from postroom.operations.id_kinds import refuse_other_kind
from postroom.operations.inboxes import inbox_of
from postroom.operations.operation import operation
from postroom.operations.outbox import sent_of
from postroom.operations.posting import (
    IdempotencyKey,
    check_letter,
    send_draft_once,
    sent_with_key,
)
from postroom.operations.request import (
    Id,
    Moment,
    OptionalId,
    Paged,
    Request,
    Together,
    parse_request,
)
from postroom.operations.sending import (
    NOT_BOTH,
    Addresses,
    Body,
    Composed,
    InReplyTo,
    InThread,
    Subject,
    letter_of,
)

DraftId = Annotated[Id, Field(description="The draft.", examples=["drf_5t2k8n"])]
SendAt = Annotated[
    Moment, Field(description="When to send it, once sent.", examples=["2026-01-31T09:00Z"])
]


class CreateDraft(Composed):
    """Write a mail without sending it; send_draft sends it, at send_at if that is given."""

    send_at: SendAt = None


@operation(Scope.WRITE)
async def create_draft(ctx: Context, request: CreateDraft) -> Draft:
    now = ctx.clock().replace(microsecond=0)
    arguments = request.model_dump(
        mode="json", by_alias=True, exclude={"send_at"}, exclude_defaults=True
    )
    return await _keep(
        ctx, StoredDraft(ctx.new_id("drf"), "", arguments, request.send_at, now, now)
    )


async def _keep(ctx: Context, wanted: StoredDraft) -> Draft:
    """Check a draft as if it were sent now, and keep it."""
    now = ctx.clock().replace(microsecond=0)
    letter = await letter_of(ctx, parse_request(Composed, wanted.arguments))
    inbox = await check_letter(ctx, letter)
    draft = replace(wanted, inbox_id=inbox.id, updated_at=now)
    await ctx.store.save_draft(draft)
    return _shown(draft)


def _shown(draft: StoredDraft) -> Draft:
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
        attachments=tuple(_file(file) for file in given.get("attachments", ())),
        send_at=draft.send_at,
        created_at=draft.created_at,
        updated_at=draft.updated_at,
    )


def _file(given: dict[str, Any]) -> DraftFile:
    content = given.get("content")
    size = None if content is None else len(content) * 3 // 4 - len(re.findall("=", content[-2:]))
    return DraftFile(
        given.get("filename"), given.get("content_type"), size, given.get("attachment_id")
    )


class ListDrafts(Paged):
    """List drafts that are not sent, newest first."""

    inbox_id: Annotated[
        OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])
    ] = None


@operation(Scope.READ)
async def list_drafts(ctx: Context, request: ListDrafts) -> Page[Draft]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    found = await ctx.store.drafts(ctx.visible, request.inbox_id, ctx.cursors.slice(request))
    shown = Found(tuple(map(_shown, found.rows)), found.total, found.offset, found.next)
    return ctx.cursors.page(request, shown)


class GetDraft(Request):
    """Read a draft."""

    draft_id: DraftId


@operation(Scope.READ)
async def get_draft(ctx: Context, request: GetDraft) -> Draft:
    return _shown(await _unsent(ctx, request.draft_id))


async def _draft_of(ctx: Context, draft_id: str) -> StoredDraft:
    refuse_other_kind(draft_id, "drf", {"msg": "get_message", "thr": "get_thread"})
    draft = await ctx.store.draft(draft_id, ctx.visible)
    if draft is None:
        raise NotFound(no_such("draft", draft_id))
    return draft


async def _unsent(ctx: Context, draft_id: str) -> StoredDraft:
    draft = await _draft_of(ctx, draft_id)
    if draft.message_id is not None:
        raise NotFound(
            f"no draft {draft_id} any more: it was sent as {draft.message_id}; cancel_message "
            "makes it a draft again as long as nobody has got it"
        )
    return draft


class UpdateDraft(Request):
    """Change a draft; what is not given stays, and null takes a thing away."""

    together: ClassVar[tuple[Together, ...]] = (NOT_BOTH,)
    draft_id: DraftId
    to: Annotated[
        Addresses | None, Field(description="Recipients.", examples=[["ana@example.com"]])
    ] = None
    cc: Annotated[
        Addresses | None, Field(description="Copies to.", examples=[["bo@example.com"]])
    ] = None
    bcc: Annotated[
        Addresses | None, Field(description="Hidden copies to.", examples=[["cy@example.com"]])
    ] = None
    subject: Annotated[Subject | None, Field(description="The subject.", examples=["Hello"])] = None
    body_text: Annotated[Body | None, Field(description="The text.", examples=["Hi!"])] = None
    body_html: Annotated[
        Body | None, Field(description="The HTML version.", examples=["<p>Hi!</p>"])
    ] = None
    attachments: Annotated[
        Enclosures | None,
        Field(description="All files.", examples=[[{"attachment_id": "att_6p1r4z"}]]),
    ] = None
    in_reply_to: InReplyTo = None
    thread_id: InThread = None
    send_at: SendAt = None


@operation(Scope.WRITE)
async def update_draft(ctx: Context, request: UpdateDraft) -> Draft:
    draft = await _unsent(ctx, request.draft_id)
    changes = request.model_dump(mode="json", exclude={"draft_id", "send_at"}, exclude_unset=True)
    send_at = request.send_at if "send_at" in request.model_fields_set else draft.send_at
    changed = replace(draft, arguments=_changed(draft, changes), send_at=send_at)
    await _refuse_orphan(ctx, changed)
    return await _keep(ctx, changed)


def _changed(draft: StoredDraft, changes: dict[str, Any]) -> dict[str, Any]:
    """What a draft says after a change; it stays in its inbox, whatever it answers."""
    given = {**draft.arguments, **changes}
    for named, other in (("in_reply_to", "thread_id"), ("thread_id", "in_reply_to")):
        if changes.get(named) and other not in changes:
            given[other] = None
    if "from" not in given:
        given["inbox_id"] = given.get("inbox_id") or draft.inbox_id
    return {name: value for name, value in given.items() if value is not None}


async def _refuse_orphan(ctx: Context, draft: StoredDraft) -> None:
    """Say what to do with a draft that answers what is gone. Raises NotFound."""
    message_id, thread_id = (draft.arguments.get(n) for n in ("in_reply_to", "thread_id"))
    gone = None
    if message_id and message_id.startswith("msg_"):
        gone = None if await ctx.store.message(message_id, ctx.visible) else message_id
    elif thread_id:
        gone = None if await ctx.store.newest_message(thread_id, ctx.visible) else thread_id
    if gone:
        raise NotFound(
            f"{gone}, which the draft {draft.id} answers, is not there any more; change the draft: "
            "in_reply_to takes another message or a Message-ID, and null for it and thread_id "
            "makes it a new mail"
        )


class DeleteDraft(Request):
    """Throw a draft away."""

    draft_id: DraftId


@operation(Scope.WRITE, destroys=True)
async def delete_draft(ctx: Context, request: DeleteDraft) -> None:
    draft = await _unsent(ctx, request.draft_id)
    if not await ctx.store.remove_draft(draft.id, ctx.visible):
        raise NotFound(no_such("draft", draft.id))


class SendDraft(Request):
    """Send a draft, at its send_at if that is still to come. Repeated, it is sent once."""

    draft_id: DraftId
    idempotency_key: IdempotencyKey = None


@operation(Scope.SEND)
async def send_draft(ctx: Context, request: SendDraft) -> Sent:
    draft = await _draft_of(ctx, request.draft_id)
    key = request.idempotency_key
    if key is not None and (earlier := await sent_with_key(ctx, draft.id, key)):
        return earlier
    if draft.message_id is not None:
        return await _sent_before(ctx, draft.id, draft.message_id)
    await _refuse_orphan(ctx, draft)
    letter = await letter_of(ctx, parse_request(Composed, draft.arguments))
    if draft.send_at is not None and draft.send_at > ctx.clock():
        letter.send_at = draft.send_at
    return await send_draft_once(ctx, letter, draft, key)


async def _sent_before(ctx: Context, draft_id: str, message_id: str) -> Sent:
    """What became of a draft that was sent, by whomever and however long ago."""
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None:
        raise Conflict(
            f"the draft {draft_id} was sent as {message_id}, which was removed since; write a new "
            "draft to send it again"
        )
    return sent_of(message)
