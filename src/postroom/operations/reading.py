"""Messages cut to what a reader can take in, with a way to read on."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from postroom.blocking import in_thread
from postroom.model.attachment import Attachment
from postroom.model.message import Header, Message
from postroom.operations.context import Context

if TYPE_CHECKING:
    from postroom.mail.replies import Reply

RESULT_CHARS = 80_000
"""What one message may take of a model's context: 20,000 tokens of 4 characters."""


async def read_message(
    ctx: Context,
    message: Message,
    *,
    include_attachments: bool,
    include_html: bool,
    include_headers: bool,
    include_quoted: bool,
    max_chars: int,
    text_offset: int,
) -> Message:
    """Cut the texts of a message and add what was asked for."""
    texts: dict[str, str | None] = {"new_text": None if text_offset else message.new_text}
    extra: dict[str, Any] = {}
    if include_quoted:
        reply = await in_thread(_split, message.text)
        texts |= {"quoted_text": reply.quoted_text, "signature": reply.signature}
    if include_html or include_headers:
        (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
        if include_html:
            texts["html"] = await in_thread(_sanitise, parsed.html) if parsed.html else ""
        if include_headers:
            extra["headers"] = tuple(Header(name, value) for name, value in parsed.headers)
    read = replace(_cut(message, texts, max_chars, text_offset), **extra)
    if include_attachments:
        read = replace(read, attachments=await _with_content(ctx, read))
    return read


def _split(text: str) -> Reply:
    from postroom.mail.replies import split_reply

    return split_reply(text)


def _sanitise(html: str) -> str:
    from postroom.mail.html import sanitise_html

    return sanitise_html(html)


def _cut(
    message: Message, texts: dict[str, str | None], max_chars: int, text_offset: int
) -> Message:
    total = len(message.text)
    end = min(total, text_offset + max_chars)
    short: dict[str, Any] = {name: text and text[:max_chars] for name, text in texts.items()}
    is_cut = end < total or any(short[name] != text for name, text in texts.items())
    is_part = is_cut or text_offset > 0
    return replace(
        message,
        text=message.text[text_offset:end],
        truncated=True if is_cut else None,
        total_chars=total if is_part else None,
        next_offset=end if end < total else None,
        **short,
    )


async def _with_content(ctx: Context, message: Message) -> tuple[Attachment, ...]:
    room = RESULT_CHARS - _texts_size(message)
    filled = []
    for attachment in message.attachments:
        needed = (attachment.size + 2) // 3 * 4
        if needed > room:
            filled.append(replace(attachment, content_omitted=True))
            continue
        room -= needed
        content = b64encode(await ctx.blobs.read(attachment.sha256)).decode()
        filled.append(replace(attachment, content=content))
    return tuple(filled)


def _texts_size(message: Message) -> int:
    texts = (message.text, message.new_text, message.quoted_text, message.signature, message.html)
    headers = sum(len(h.name) + len(h.value) for h in message.headers or ())
    return headers + sum(len(text) for text in texts if text)


def fair_cut(lengths: Sequence[int], budget: int) -> int:
    """The length at which to cut each of some texts, so that together they keep to the budget.

    Short ones stay whole; what they leave over goes to the long ones.
    """
    left = budget
    for seen, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - seen)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)
