"""Attachments: list and read them; download links."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from postroom.blocking import WorkFailed, in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import OneMessage, attachment_of, message_of, operation
from postroom.calls.request import (
    Constraint,
    Id,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    check_kinds,
    one_of,
)
from postroom.errors import FeatureDisabled, InvalidInput, TooLarge
from postroom.mail.text.invisible import merge_hidden_texts
from postroom.mail.text_extraction.extract import ExtractedText, file_kind
from postroom.mail.text_extraction.text_files import (
    calendar_text,
    findings,
    mail_text,
    needs_charset,
    text_kind,
    wrap_as_mail,
)
from postroom.model.key import Scope
from postroom.model.mail.message import (
    Attachment,
    AttachmentContent,
    AttachmentText,
    BlobKey,
    Download,
    DownloadLink,
)
from postroom.model.mail.storage import AttachmentQuery
from postroom.model.page import Page, cut_text
from postroom.ports.blobs import SupportsLinks

LastingSeconds = Annotated[int, argument("Seconds until it expires.", 300, ge=1, le=3600)]


class ListAttachments(Paged):
    """List the attachments (metadata) of a message, a thread or an inbox, newest first."""

    constraints = (
        *Paged.constraints,
        one_of(
            "filter",
            ("message_id", "thread_id", "inbox_id"),
            "give at least one of message_id, thread_id, inbox_id",
        ),
    )
    message_id: Annotated[OptionalId, argument("Only this message.", "msg_4h8t2w")] = None
    thread_id: Annotated[OptionalId, argument("All messages of this thread.", "thr_9d3f1x")] = None
    inbox_id: Annotated[
        OptionalInboxName, argument("All messages of this inbox.", "inb_7k2m9q")
    ] = None


@operation(Scope.READ)
async def list_attachments(ctx: RequestContext, request: ListAttachments) -> Page[Attachment]:
    ids = request.model_dump(include={"message_id", "thread_id", "inbox_id"})
    check_kinds(**ids)
    query = AttachmentQuery(ctx.visible, page=ctx.cursors.slice(request), **ids)
    return ctx.cursors.page(request, await ctx.store.attachments(query))


class OneAttachment(Request):
    """A request about one attachment."""

    attachment_id: Annotated[Id, argument("The attachment.", "att_6p1r4z")]


class GetAttachment(OneAttachment):
    """Get the metadata of one attachment."""


@operation(Scope.READ)
async def get_attachment(ctx: RequestContext, request: GetAttachment) -> Attachment:
    return await attachment_of(ctx, request.attachment_id)


def _only_with(format_: str, name: str, instead: str) -> Constraint:
    """An argument that one format takes."""
    other = {"format": {"enum": [kind for kind in ("base64", "text") if kind != format_]}}
    return Constraint(
        name,
        ("format", name),
        {"not": {"required": ["format", name], "properties": other}},
        f"{name} is for format={format_}; use {instead}",
        lambda request: request.format != format_ and getattr(request, name) is not None,
    )


class GetAttachmentContent(OneAttachment):
    """Get the content of an attachment as base64 (over 1 MB in parts), or as readable text."""

    constraints = (
        _only_with("base64", "max_bytes", "max_chars"),
        _only_with("text", "max_chars", "max_bytes, or format=text"),
    )
    format: Annotated[
        Literal["base64", "text"],
        argument("text: of PDF, Office, HTML, CSV, calendar, mail, plain.", "text"),
    ] = "base64"
    offset: Annotated[int, argument("First byte or character.", 0, ge=0, le=2**53)] = 0
    max_bytes: Annotated[
        int | None, argument("Bytes to read at most.", 65536, ge=1, le=1_048_576)
    ] = None
    max_chars: Annotated[
        int | None, argument("Cut the text here; default 12000.", 4000, ge=1, le=100_000)
    ] = None


@operation(Scope.READ)
async def get_attachment_content(
    ctx: RequestContext, request: GetAttachmentContent
) -> AttachmentContent | AttachmentText:
    attachment = await attachment_of(ctx, request.attachment_id)
    if request.format == "text":
        whole = await attachment_text(ctx, attachment)
        max_chars = request.max_chars or TEXT_CHARS
        return replace(whole, **cut_text(whole.text, request.offset, max_chars))
    if request.max_bytes is None and attachment.size - request.offset > ctx.limits.inline_bytes:
        raise TooLarge(
            f"{attachment.id} has {attachment.size} bytes; read it in parts with offset and "
            f"max_bytes, or download GET /v1/attachments/{attachment.id}/content"
        )
    size = request.max_bytes or ctx.limits.inline_bytes
    content = await ctx.blobs.read(attachment.sha256, offset=request.offset, size=size)
    end = request.offset + len(content)
    return AttachmentContent(
        content=b64encode(content).decode(),
        content_type=attachment.content_type,
        filename=attachment.filename,
        size=attachment.size,
        offset=request.offset,
        next_offset=end if end < attachment.size else None,
        message_id=attachment.message_id,
    )


TEXT_CHARS = 12_000
"""The length at which a text is cut if none is asked for."""

READABLE = "PDF, Word, Excel, PowerPoint, RTF, HTML, CSV, calendar, mail and plain text files"


async def attachment_text(ctx: RequestContext, attachment: Attachment) -> AttachmentText:
    """The text of an attachment that its reader sees, up to the limit of a mail's text.

    Raises:
        InvalidInput: it is of a type without text, or cannot be read.
        Unavailable: the server is busy reading other attachments.
    """
    data = await ctx.blobs.read(attachment.sha256)
    try:
        found = await _extracted_text(ctx, attachment, data)
    except WorkFailed as failure:
        how = _how_to_get_bytes(attachment)
        error = InvalidInput(f"the text of {attachment.id} cannot be read: {failure}; {how}")
        error.is_untrusted = True
        raise error from None
    warnings = list(found.warnings)
    if len(found.text) > ctx.limits.text_chars:
        warnings.append(f"the text is truncated at {ctx.limits.text_chars} characters")
    return AttachmentText(
        text=found.text[: ctx.limits.text_chars],
        content_type=attachment.content_type,
        filename=attachment.filename,
        size=attachment.size,
        warnings=tuple(warnings),
        security=_security(found),
        message_id=attachment.message_id,
    )


def _security(found: ExtractedText) -> dict[str, Any] | None:
    """What the document hides from its reader, in the form that a message has; None if nothing."""
    hidden, total = merge_hidden_texts(found.hidden)
    if not hidden:
        return None
    more = {"hidden_text_total": total} if total else {}
    return {"hidden_text": [asdict(one) for one in hidden], **more}


async def _extracted_text(
    ctx: RequestContext, attachment: Attachment, data: bytes
) -> ExtractedText:
    """The text of a document, or of a file that is text. Raises WorkFailed, InvalidInput."""
    if file_kind(data) is not None:
        found = await ctx.text_extractor.read(data, ctx.limits.text_chars)
        return await in_thread(findings, found)
    kind = text_kind(data, attachment.content_type, attachment.filename)
    if kind is None:
        raise InvalidInput(
            f"{attachment.id} has no readable text; text can be read from {READABLE}; "
            f"{_how_to_get_bytes(attachment)}"
        )
    if kind == "mail":
        (parsed,) = await ctx.parser.parse([data])
        return mail_text(parsed)
    charset = await _declared_charset(ctx, attachment) if needs_charset(data) else ""
    (parsed,) = await ctx.parser.parse([wrap_as_mail(data, kind, charset)])
    found = mail_text(parsed, with_headers=False)
    if kind == "calendar":
        return replace(found, text=await in_thread(calendar_text, found.text))
    return found


async def _declared_charset(ctx: RequestContext, attachment: Attachment) -> str:
    """The charset that the mail of an attachment declares for it."""
    message = await ctx.store.message(attachment.message_id, ctx.visible)
    if message is None:
        return ""
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
    same = (part for part in parsed.attachments if part.sha256 == attachment.sha256)
    return next((part.charset for part in same), "")


def _how_to_get_bytes(attachment: Attachment) -> str:
    return (
        f"get its bytes with format=base64, or download GET /v1/attachments/{attachment.id}/content"
    )


class DownloadAttachment(OneAttachment):
    """Download the bytes of an attachment."""


@operation(Scope.READ)
async def download_attachment(ctx: RequestContext, request: DownloadAttachment) -> Download:
    attachment = await attachment_of(ctx, request.attachment_id)
    chunks = ctx.blobs.stream(attachment.sha256)
    return Download(
        chunks, attachment.size, attachment.content_type, attachment.filename, attachment.message_id
    )


class LinkAttachment(OneAttachment):
    """Get a temporary URL of an attachment that needs no key.

    Only if mail is stored in a bucket; anyone who has the URL can read the attachment.
    """

    lasting_s: LastingSeconds = 300


@operation(Scope.READ)
async def link_attachment(ctx: RequestContext, request: LinkAttachment) -> DownloadLink:
    attachment = await attachment_of(ctx, request.attachment_id)
    url, until = await _link(ctx, attachment.sha256, request.lasting_s)
    about = (attachment.filename, attachment.content_type, attachment.size, attachment.message_id)
    return DownloadLink(url, until, *about)


class DownloadMessage(OneMessage):
    """Download the source of a message, byte for byte."""


@operation(Scope.READ)
async def download_message(ctx: RequestContext, request: DownloadMessage) -> Download:
    message = await message_of(ctx, request.message_id)
    chunks = ctx.blobs.stream(message.raw)
    return Download(chunks, message.size_bytes, "message/rfc822", f"{message.id}.eml", message.id)


class LinkMessage(OneMessage):
    """Get a temporary URL of the source of a message that needs no key.

    Only if mail is stored in a bucket; anyone who has the URL can read the message.
    """

    lasting_s: LastingSeconds = 300


@operation(Scope.READ)
async def link_message(ctx: RequestContext, request: LinkMessage) -> DownloadLink:
    message = await message_of(ctx, request.message_id)
    url, until = await _link(ctx, message.raw, request.lasting_s)
    about = (f"{message.id}.eml", "message/rfc822", message.size_bytes, message.id)
    return DownloadLink(url, until, *about)


async def _link(ctx: RequestContext, key: BlobKey, lasting_s: int) -> tuple[str, datetime]:
    """The URL of a blob, and when it expires. Raises FeatureDisabled."""
    if not isinstance(ctx.blobs, SupportsLinks):
        raise FeatureDisabled(
            "download links need a bucket, and this installation stores mail in files; download it "
            "with your key, or set POSTROOM_BLOBS_URL=s3://…"
        )
    until = ctx.clock().replace(microsecond=0) + timedelta(seconds=lasting_s)
    return await ctx.blobs.link(key, lifetime=timedelta(seconds=lasting_s)), until
