"""What a caller has read: mail with security findings counts when the caller sends mail.

A row of a list is not reading: it has a subject and the beginning of the text that everybody sees,
and whoever lists an inbox would be held up by any mail in it.
"""

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
    ThreadMessage,
)

_MAX_DEPTH = 4
_OF_ATTACHMENTS = (AttachmentContent, AttachmentText, Download)


async def note_suspicious(ctx: RequestContext, result: Any) -> None:
    """Remember the suspicious mail that a result shows, for as long as it counts."""
    read = {id_: found for id_, found in _suspicious(result, _MAX_DEPTH) if found}
    if isinstance(result, _OF_ATTACHMENTS) and result.message_id:
        row = await ctx.store.message_row(result.message_id)
        read |= {row.id: row.findings} if row is not None and row.findings else {}
    if read:
        await ctx.store.record_reads(ctx.caller.key_id, read, ctx.clock())


def _suspicious(value: Any, depth: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The id and the findings of each message in a result whose text is shown."""
    if isinstance(value, (Message, ThreadMessage)) or (isinstance(value, MailLine) and value.text):
        yield value.id, value.findings
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _suspicious(item, depth)
    elif depth and is_dataclass(value):
        for field in fields(value):
            yield from _suspicious(getattr(value, field.name), depth - 1)
