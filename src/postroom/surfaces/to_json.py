"""Values as JSON: the same shape on every surface.

A row of a list leaves out what is empty; a full object leaves out only what was not
requested: fields whose default is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from postroom.calls.operation import Operation
from postroom.errors import MailError
from postroom.mail.text.display import sanitised
from postroom.model import account, agent, event, imap, inbox, rule
from postroom.model.mail import message, sending
from postroom.model.mail.message import ActionResult
from postroom.model.memory import Memory
from postroom.model.page import Page, Receipt, is_page
from postroom.model.view import Everything, Only, view_names

ROWS = (message.MessageRow, message.ThreadMessage, message.ThreadRow)
"""Shapes of list rows."""

CARRIES_MAIL = (
    agent.AgentWaitResult,
    agent.ChangeOutcome,
    agent.FoundMail,
    agent.Mailboxes,
    agent.ReadResult,
    agent.SendOutcome,
    agent.SendOutcomes,
    account.Account,
    message.Attachment,
    message.AttachmentContent,
    message.AttachmentText,
    event.AuditEntry,
    account.Capabilities,
    message.DownloadLink,
    sending.Draft,
    rule.DryRunPlan,
    event.Event,
    account.Identity,
    inbox.Label,
    inbox.Mailbox,
    imap.LiveCopy,
    imap.LiveDeletion,
    imap.LiveFlags,
    imap.LiveMailboxes,
    imap.LiveMove,
    imap.LiveReading,
    imap.LiveSearch,
    imap.LiveSource,
    message.Message,
    message.MessageRow,
    sending.HeldMail,
    sending.OutboxEntry,
    sending.Sent,
    sending.Unsubscribed,
    message.Thread,
    message.ThreadRow,
    imap.Verification,
    event.Waited,
    event.WebhookDelivery,
    event.WebhookPing,
)
"""Shapes with text of mail, or of other servers."""


def to_json(value: Any) -> Any:
    """Convert a value of the model to JSON types."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind: Any = type(value)
    return _writer(kind)(value)


def response_body(operation: Operation[Any, Any], result: Any) -> dict[str, Any]:
    """The whole result of an operation, marked untrusted if it carries mail."""
    body: dict[str, Any] = to_json(result) if result is not None else {}
    kind: Any = operation.result
    if isinstance(kind, UnionType):
        kind = type(result)
    # A failed action may repeat the words of a provider.
    failed = result.failed if isinstance(result, ActionResult) else ()
    repeats_server = any(failure.code.startswith("provider") for failure in failed)
    is_untrusted = carries_mail(kind) or came_from_mail(result) or repeats_server
    return {"untrusted": True, **body} if is_untrusted else body


def with_clean_text(body: dict[str, Any]) -> dict[str, Any]:
    """A result or an error with its untrusted text cleaned."""
    return dict(sanitised(body)) if "untrusted" in body else body


def mark_untrusted(error: MailError, body: dict[str, Any]) -> dict[str, Any]:
    """The body of an error, marked as untrusted if it repeats text of a mail or a server."""
    return with_clean_text({"untrusted": True, **body}) if error.is_untrusted else body


def came_from_mail(result: Any) -> bool:
    """Whether a result has a memory whose text comes from mail, also as an older version or in a
    list of similar memories.
    """
    parts: list[Any] = list(result.results if isinstance(result, Page) else (result,))
    for row in parts[:]:
        if isinstance(row, Memory):
            parts += [*(row.similar or ()), *(row.history or ())]
    return any(getattr(part, "trust", None) == "mail" for part in parts)


@cache
def carries_mail(result_type: Any) -> bool:
    """Whether responses of this type contain text from the sender of a mail."""
    if is_page(result_type):
        return carries_mail(get_args(result_type)[0])
    if isinstance(result_type, UnionType):
        return any(carries_mail(kind) for kind in get_args(result_type))
    return isinstance(result_type, type) and issubclass(result_type, CARRIES_MAIL)


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, Page):
        return _page_writer(kind)
    if issubclass(kind, (Everything, Only)):
        return lambda view: to_json(view_names(view))
    if issubclass(kind, Receipt):
        return lambda value: to_json(value.shown)
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
    optional = {"next_cursor": page.next_cursor, "hint": page.hint}
    return body | {name: value for name, value in optional.items() if value}


def _page_writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    """The fields of every page, and those of this kind of page."""
    more = extra_page_fields(kind)
    if not more:
        return _page
    return lambda page: {**_page(page), **{name: to_json(getattr(page, name)) for name in more}}


def extra_page_fields(kind: type) -> list[str]:
    """The fields of a page that others do not have."""
    common = {f.name for f in fields(Page)}
    return [f.name for f in fields(kind) if f.name not in common]


def public_fields(kind: type) -> list[tuple[str, bool]]:
    """The fields that a caller sees, each with whether it may be absent."""
    return [
        (f.name, f.default is not MISSING and f.default is None)
        for f in fields(kind)
        if not f.metadata.get("internal")
    ]


def _row_writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    """Pages are made of rows, so this one knows beforehand what each field needs."""
    names = [name for name, _ in public_fields(kind)]
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
    shown = public_fields(kind)

    def write(shape: Any) -> dict[str, Any]:
        values = ((name, getattr(shape, name), optional) for name, optional in shown)
        return {
            name.removesuffix("_"): to_json(value)
            for name, value, optional in values
            if not (optional and value is None)
        }

    return write
