"""What a caller has read: mail with security findings counts when the caller sends mail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from postroom.calls.context import RequestContext
from postroom.model.agent import MailLine
from postroom.model.message import (
    AttachmentContent,
    AttachmentText,
    Download,
    Message,
    MessageHtml,
    MessageRow,
)

_MAX_DEPTH = 4
_OF_A_MESSAGE = (AttachmentContent, AttachmentText, Download, MessageHtml)


async def note_suspicious(ctx: RequestContext, result: Any) -> None:
    """Remember the suspicious mail that a result shows, for as long as it counts."""
    read = {id_: found for id_, found in _suspicious(result, _MAX_DEPTH) if found}
    if isinstance(result, _OF_A_MESSAGE) and result.message_id:
        row = await ctx.store.message_row(result.message_id)
        read |= {row.id: row.findings} if row is not None and row.findings else {}
    if read:
        await ctx.store.record_reads(ctx.caller.key_id, read, ctx.clock())


def _suspicious(value: Any, depth: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The id and the findings of each message in a result."""
    if isinstance(value, (Message, MessageRow, MailLine)):
        yield value.id, value.findings
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _suspicious(item, depth)
    elif depth and is_dataclass(value):
        for field in fields(value):
            yield from _suspicious(getattr(value, field.name), depth - 1)
