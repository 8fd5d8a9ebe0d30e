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
    DownloadLink,
    Message,
    MessageHtml,
    ThreadMessage,
)
from postroom.model.sending import HeldMail

_MAX_DEPTH = 4
_OF_MESSAGES = (
    AttachmentContent,
    AttachmentText,
    Download,
    DownloadLink,
    HeldMail,
    MessageHtml,
)
"""Results that show a part of a message, or what a held mail answers."""


async def note_suspicious(ctx: RequestContext, result: Any) -> None:
    """Remember the suspicious mail that a result shows, for as long as it counts."""
    found: dict[str, tuple[str, ...]] = {}
    named: set[str] = set()
    for id_, findings in _shown(result, _MAX_DEPTH):
        if findings is None:
            named.add(id_)
        elif findings:
            found[id_] = findings
    if named:
        found |= await ctx.store.suspicious_among(sorted(named))
    if found:
        await ctx.store.record_reads(ctx.caller.key_id, found, ctx.clock())


def _shown(value: Any, depth: int) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Each message whose text a result shows, and its findings; None if only its id is known."""
    if isinstance(value, (Message, ThreadMessage)) or (isinstance(value, MailLine) and value.text):
        yield value.id, value.findings
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _shown(item, depth)
    elif isinstance(value, _OF_MESSAGES):
        if about := getattr(value, "answers", None) or getattr(value, "message_id", None):
            yield about, None
    elif depth and is_dataclass(value):
        for field in fields(value):
            yield from _shown(getattr(value, field.name), depth - 1)
