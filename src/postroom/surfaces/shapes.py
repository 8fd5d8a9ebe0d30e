"""Values as JSON: one shape for every surface.

A row of a list leaves out what is empty; a full shape leaves out only what was not asked for,
which are the fields whose default is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from postroom.model.attachment import Attachment, AttachmentContent
from postroom.model.event import Event, Waited
from postroom.model.live import LiveReading, LiveSearch, LiveSource
from postroom.model.message import Message, MessageRow, ThreadMessage
from postroom.model.outbox import OutboxEntry
from postroom.model.page import Page
from postroom.model.rule import DryRunPlan
from postroom.model.thread import Thread, ThreadRow
from postroom.operations.operation import Operation

ROWS = (MessageRow, ThreadMessage, ThreadRow)
"""Shapes that stand in lists in great number."""

CARRIES_MAIL = (
    Attachment,
    AttachmentContent,
    DryRunPlan,
    Event,
    LiveReading,
    LiveSearch,
    LiveSource,
    Message,
    MessageRow,
    OutboxEntry,
    Thread,
    ThreadRow,
    Waited,
)
"""Shapes whose words come from whoever wrote the mail."""


def to_json(value: Any) -> Any:
    """Turn a value of the model into what JSON can say."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind: Any = type(value)
    return _writer(kind)(value)


def answer(operation: Operation[Any, Any], result: Any) -> dict[str, Any]:
    """The whole answer of an operation: its shape, marked if it carries mail."""
    body: dict[str, Any] = to_json(result) if result is not None else {}
    kind: Any = operation.result
    if isinstance(kind, UnionType):
        kind = type(result)
    is_untrusted = carries_mail(kind) or came_from_mail(result)
    return {"untrusted": True, **body} if is_untrusted else body


def came_from_mail(result: Any) -> bool:
    """Whether a memory in an answer says what some mail said."""
    rows = result.results if isinstance(result, Page) else (result,)
    return any(getattr(row, "trust", None) == "mail" for row in rows)


@cache
def carries_mail(result_type: Any) -> bool:
    """Whether answers of this type carry the words of whoever wrote a mail."""
    if get_origin(result_type) is Page:
        return carries_mail(get_args(result_type)[0])
    if isinstance(result_type, UnionType):
        return any(carries_mail(kind) for kind in get_args(result_type))
    return isinstance(result_type, type) and issubclass(result_type, CARRIES_MAIL)


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, Page):
        return _page
    if is_dataclass(kind):
        return _row_writer(kind) if issubclass(kind, ROWS) else _shape_writer(kind)
    if issubclass(kind, datetime):
        return moment
    if issubclass(kind, dict):
        return lambda value: {name: to_json(item) for name, item in value.items()}
    if issubclass(kind, (tuple, list, frozenset)):
        return lambda value: [to_json(item) for item in value]
    return str


def moment(value: datetime) -> str:
    """RFC 3339 in UTC, whole seconds."""
    return value.astimezone(UTC).isoformat()[:19] + "Z"


def _page(page: Page[Any]) -> dict[str, Any]:
    body = {
        "results": [to_json(row) for row in page.results],
        "count": len(page.results),
        "total": page.total,
        "total_count": page.total,
        "limit": page.limit,
        "offset": page.offset,
        "has_more": page.has_more,
    }
    return {**body, "next_cursor": page.next_cursor} if page.next_cursor else body


def shown_fields(kind: type) -> list[tuple[str, bool]]:
    """The fields that a caller sees, each with whether it may be absent."""
    return [
        (f.name, f.default is not MISSING and f.default is None)
        for f in fields(kind)
        if not f.metadata.get("internal")
    ]


def _row_writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    """Pages are made of rows, so this one knows beforehand what each field needs."""
    names = [name for name, _ in shown_fields(kind)]
    hints = get_type_hints(kind)
    writers = [(name, _field_writer(hints[name])) for name in names]
    values_of = attrgetter(*names)

    def write(row: Any) -> dict[str, Any]:
        return {
            name: value if writer is None else writer(value)
            for (name, writer), value in zip(writers, values_of(row), strict=True)
            if value or value is False or value == 0
        }

    return write


def _field_writer(hint: Any) -> Callable[[Any], Any] | None:
    if hint in (str, int, bool, str | None, int | None, bool | None) or get_origin(hint) is Literal:
        return None
    if hint is datetime:
        return moment
    return list if hint == tuple[str, ...] else to_json


def _shape_writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    shown = shown_fields(kind)

    def write(shape: Any) -> dict[str, Any]:
        values = ((name, getattr(shape, name), optional) for name, optional in shown)
        return {
            name.removesuffix("_"): to_json(value)
            for name, value, optional in values
            if not (optional and value is None)
        }

    return write
