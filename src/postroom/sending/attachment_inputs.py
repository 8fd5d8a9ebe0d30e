"""Attachments of a mail that is to be sent: decoded, checked, or copied from stored mail."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, ClassVar, Self

from pydantic import ConfigDict, model_validator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.lookups import attachment_of
from postroom.calls.request import Accepts, Request, Together, argument
from postroom.errors import InvalidInput, TooLarge
from postroom.mail.composing.compose import OutgoingAttachment
from postroom.model.limits import Limits

_TEXT, _NONE = {"type": "string"}, {"type": "null"}


class AttachmentInput(Request):
    """A file to send: its content as base64, or the id of an attachment we hold."""

    model_config = ConfigDict(title="Enclosure")  # the name in the published OpenAPI document
    together: ClassVar[tuple[Together, ...]] = (
        Together(
            "source",
            ("filename", "content", "attachment_id"),
            {
                "oneOf": [
                    {
                        "required": ["filename", "content"],
                        "properties": {"filename": _TEXT, "content": _TEXT, "attachment_id": _NONE},
                    },
                    {
                        "required": ["attachment_id"],
                        "properties": {"attachment_id": _TEXT, "content": _NONE},
                    },
                ]
            },
        ),
    )
    filename: Annotated[
        str | None,
        argument("Its name.", "report.pdf", min_length=1, max_length=255),
        Accepts({"pattern": request.LINE}),
    ] = None
    content_type: Annotated[
        str | None,
        argument("Its media type.", "application/pdf", min_length=1, max_length=127),
        Accepts(
            {"pattern": request.MEDIA_TYPE, "not": {"type": "string", "pattern": "^multipart/"}}
        ),
    ] = None
    content: Annotated[
        str | None,
        argument("Its bytes as base64.", "SGVsbG8="),
        Accepts({"pattern": request.BASE64, "contentEncoding": "base64"}),
    ] = None
    attachment_id: Annotated[
        str | None,
        argument("Instead of content: an attachment we hold.", "att_6p1r4z", max_length=64),
        Accepts({"pattern": "^[A-Za-z0-9_-]+$"}),
    ] = None

    @model_validator(mode="after")
    def _content_or_id(self) -> Self:
        if (self.content is None) == (self.attachment_id is None):
            raise ValueError("give content (base64) or attachment_id, one of them")
        if self.content is not None and self.filename is None:
            raise ValueError("filename is required with content")
        return self


AttachmentInputs = Annotated[
    list[AttachmentInput],
    argument(
        "Files: content in base64; or attachment_id of one here.",
        [{"filename": "a.txt", "content": "SGk="}, {"attachment_id": "att_6p1r4z"}],
    ),
    Accepts({"maxItems": Limits().attachments_count}),
]


async def collect(
    ctx: RequestContext, attachments_in: list[AttachmentInput]
) -> tuple[OutgoingAttachment, ...]:
    """Decode and fetch all files.

    Raises:
        InvalidInput: there are too many, or one is not base64; it is named.
        TooLarge: together they are over the limit.
        NotFound: an attachment id is unknown.
    """
    if len(attachments_in) > ctx.limits.attachments_count:
        raise InvalidInput(
            f"attachments: {len(attachments_in)} files; the limit is {ctx.limits.attachments_count}"
        )
    files = [
        await _file(ctx, attachment_input, number)
        for number, attachment_input in enumerate(attachments_in)
    ]
    total = sum(len(file.content) for file in files)
    if total > ctx.limits.attachments_bytes:
        raise TooLarge(
            f"the attachments have {total} bytes together; "
            f"the limit is {ctx.limits.attachments_bytes}"
        )
    return tuple(files)


async def _file(
    ctx: RequestContext, attachment_input: AttachmentInput, number: int
) -> OutgoingAttachment:
    if attachment_input.content is not None:
        name = attachment_input.filename or ""
        content = decode_strictly(attachment_input.content, f"attachments[{number}] ({name})")
        return OutgoingAttachment(
            name, _bare_type(attachment_input.content_type) or "application/octet-stream", content
        )
    held = await attachment_of(ctx, attachment_input.attachment_id or "")
    return OutgoingAttachment(
        attachment_input.filename or held.filename or "attachment",
        _bare_type(attachment_input.content_type) or held.content_type,
        await ctx.blobs.read(held.sha256),
    )


def _bare_type(content_type: str | None) -> str | None:
    """The media type without parameters; the bytes are sent unchanged."""
    return content_type and content_type.partition(";")[0].strip()


def decode_strictly(text: str, where: str) -> bytes:
    """Decode strict base64: padded, without stray bits. Raises InvalidInput."""
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{where}: the content is not valid base64 ({error})") from None
    if b64encode(content).decode() != text:
        raise InvalidInput(f"{where}: the content is not valid base64 (stray bits at its end)")
    return content
