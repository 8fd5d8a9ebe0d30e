"""Attachments: list and read them; download links."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, attachment_of, message_of, operation
from postroom.calls.request import (
    Id,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    check_kinds,
    one_of,
)
from postroom.errors import FeatureDisabled, TooLarge
from postroom.model.key import Scope
from postroom.model.message import Attachment, AttachmentContent, BlobKey, Download, DownloadLink
from postroom.model.page import Page
from postroom.model.storage import AttachmentQuery
from postroom.ports.blobs import SupportsLinks

AttachmentId = Annotated[Id, argument("The attachment.", "att_6p1r4z")]

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


class GetAttachment(Request):
    """Get the metadata of one attachment."""

    attachment_id: AttachmentId


@operation(Scope.READ)
async def get_attachment(ctx: RequestContext, request: GetAttachment) -> Attachment:
    return await attachment_of(ctx, request.attachment_id)


class GetAttachmentContent(Request):
    """Get the content of an attachment as base64. Over 1 MB, read it in parts."""

    attachment_id: AttachmentId
    offset: Annotated[int, argument("First byte to read.", 0, ge=0, le=2**53)] = 0
    max_bytes: Annotated[
        int | None, argument("Bytes to read at most.", 65536, ge=1, le=1_048_576)
    ] = None


@operation(Scope.READ)
async def get_attachment_content(
    ctx: RequestContext, request: GetAttachmentContent
) -> AttachmentContent:
    attachment = await attachment_of(ctx, request.attachment_id)
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
    )


class DownloadAttachment(Request):
    """Download an attachment as it is."""

    attachment_id: AttachmentId


@operation(Scope.READ)
async def download_attachment(ctx: RequestContext, request: DownloadAttachment) -> Download:
    attachment = await attachment_of(ctx, request.attachment_id)
    chunks = ctx.blobs.stream(attachment.sha256)
    return Download(chunks, attachment.size, attachment.content_type, attachment.filename)


class LinkAttachment(Request):
    """Get an address from which an attachment can be fetched for a while, without a key.

    Only where mail is kept in a bucket; whoever has the address can read the attachment.
    """

    attachment_id: AttachmentId
    lasting_s: LastingSeconds = 300


@operation(Scope.READ)
async def link_attachment(ctx: RequestContext, request: LinkAttachment) -> DownloadLink:
    attachment = await attachment_of(ctx, request.attachment_id)
    url, until = await _link(ctx, attachment.sha256, request.lasting_s)
    return DownloadLink(url, until, attachment.filename, attachment.content_type, attachment.size)


class DownloadMessage(Request):
    """Download the source of a message, byte for byte as it came."""

    message_id: MessageId


@operation(Scope.READ)
async def download_message(ctx: RequestContext, request: DownloadMessage) -> Download:
    message = await message_of(ctx, request.message_id)
    chunks = ctx.blobs.stream(message.raw)
    return Download(chunks, message.size_bytes, "message/rfc822", f"{message.id}.eml")


class LinkMessage(Request):
    """Get an address from which the source of a message can be fetched for a while, without a key.

    Only where mail is kept in a bucket; whoever has the address can read the message.
    """

    message_id: MessageId
    lasting_s: LastingSeconds = 300


@operation(Scope.READ)
async def link_message(ctx: RequestContext, request: LinkMessage) -> DownloadLink:
    message = await message_of(ctx, request.message_id)
    url, until = await _link(ctx, message.raw, request.lasting_s)
    return DownloadLink(url, until, f"{message.id}.eml", "message/rfc822", message.size_bytes)


async def _link(ctx: RequestContext, key: BlobKey, lasting_s: int) -> tuple[str, datetime]:
    """The URL of a blob, and when it expires. Raises FeatureDisabled."""
    if not isinstance(ctx.blobs, SupportsLinks):
        raise FeatureDisabled(
            "download links need a bucket, and this installation stores mail in files; download it "
            "with your key, or set POSTROOM_BLOBS_URL=s3://…"
        )
    until = ctx.clock().replace(microsecond=0) + timedelta(seconds=lasting_s)
    return await ctx.blobs.link(key, lasting=timedelta(seconds=lasting_s)), until
