"""Files that a caller wants to send along: decoded strictly, or taken from what we hold."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from postroom.errors import InvalidInput, TooLarge
from postroom.mail.compose import OutgoingAttachment
from postroom.model.limits import Limits
from postroom.operations import forms
from postroom.operations.attachments import attachment_of
from postroom.operations.context import Context
from postroom.operations.request import Accepts, Request, Together

_TEXT, _NONE = {"type": "string"}, {"type": "null"}


class Enclosure(Request):
    """A file to send: its content as base64, or the id of an attachment we hold."""

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
        Field(min_length=1, max_length=255, description="Its name.", examples=["report.pdf"]),
        Accepts({"pattern": forms.LINE}),
    ] = None
    content_type: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=127,
            description="Its media type.",
            examples=["application/pdf"],
        ),
        Accepts({"pattern": forms.MEDIA_TYPE, "not": {"type": "string", "pattern": "^multipart/"}}),
    ] = None
    content: Annotated[
        str | None,
        Field(description="Its bytes as base64.", examples=["SGVsbG8="]),
        Accepts({"pattern": forms.BASE64, "contentEncoding": "base64"}),
    ] = None
    attachment_id: Annotated[
        str | None,
        Field(
            max_length=64,
            description="Instead of content: an attachment we hold.",
            examples=["att_6p1r4z"],
        ),
        Accepts({"pattern": "^[A-Za-z0-9_-]+$"}),
    ] = None

    @model_validator(mode="after")
    def _content_or_id(self) -> Self:
        if (self.content is None) == (self.attachment_id is None):
            raise ValueError("give content (base64) or attachment_id, one of them")
        if self.content is not None and self.filename is None:
            raise ValueError("filename is required with content")
        return self


Enclosures = Annotated[
    list[Enclosure],
    Field(
        description="Files: content in base64; or attachment_id of one here.",
        examples=[[{"filename": "a.txt", "content": "SGk="}, {"attachment_id": "att_6p1r4z"}]],
    ),
    Accepts({"maxItems": Limits().attachments_count}),
]


async def collect(ctx: Context, enclosures: list[Enclosure]) -> tuple[OutgoingAttachment, ...]:
    """Decode and fetch all files.

    Raises:
        InvalidInput: there are too many, or one is not base64; it is named.
        TooLarge: together they are over the limit.
        NotFound: an attachment id is unknown.
    """
    if len(enclosures) > ctx.limits.attachments_count:
        raise InvalidInput(
            f"attachments: {len(enclosures)} files; the limit is {ctx.limits.attachments_count}"
        )
    files = [await _file(ctx, enclosure, number) for number, enclosure in enumerate(enclosures)]
    total = sum(len(file.content) for file in files)
    if total > ctx.limits.attachments_bytes:
        raise TooLarge(
            f"the attachments have {total} bytes together; "
            f"the limit is {ctx.limits.attachments_bytes}"
        )
    return tuple(files)


async def _file(ctx: Context, enclosure: Enclosure, number: int) -> OutgoingAttachment:
    if enclosure.content is not None:
        name = enclosure.filename or ""
        content = decode_strictly(enclosure.content, f"attachments[{number}] ({name})")
        return OutgoingAttachment(
            name, _bare_type(enclosure.content_type) or "application/octet-stream", content
        )
    held = await attachment_of(ctx, enclosure.attachment_id or "")
    return OutgoingAttachment(
        enclosure.filename or held.filename or "attachment",
        _bare_type(enclosure.content_type) or held.content_type,
        await ctx.blobs.read(held.sha256),
    )


def _bare_type(content_type: str | None) -> str | None:
    """The type without its parameters: the bytes are sent as they are, whatever their charset."""
    return content_type and content_type.partition(";")[0].strip()


def decode_strictly(text: str, where: str) -> bytes:
    """Decode base64 that is exactly what an encoder writes. Raises InvalidInput."""
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{where}: the content is not valid base64 ({error})") from None
    if b64encode(content).decode() != text:
        raise InvalidInput(f"{where}: the content is not valid base64 (stray bits at its end)")
    return content
