"""What a caller has read: mail with security findings counts when the caller sends mail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from postroom.calls.context import RequestContext
from postroom.model.agent import MailLine
from postroom.model.message import Message, MessageRow, ThreadRow
from postroom.model.sending import Sent

_MAX_DEPTH = 4


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
    """Each message in a result and its findings; None if the result names only its id."""
    if isinstance(value, (Message, MessageRow, MailLine)):
        yield value.id, value.findings
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _shown(item, depth)
    elif isinstance(value, Sent):
        return
    elif depth and is_dataclass(value):
        named = value.id if isinstance(value, ThreadRow) else _message_of(value)
        if named:
            yield named, None
        for field in fields(value):
            yield from _shown(getattr(value, field.name), depth - 1)


def _message_of(value: Any) -> str | None:
    """The message that a shape is about, or that a held mail answers."""
    return getattr(value, "answers", None) or getattr(value, "message_id", None)
