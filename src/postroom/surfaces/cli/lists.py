"""Pages of rows as tables: which columns each kind of row has, and their content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from postroom.model.account import Account, Identity
from postroom.model.event import AuditEntry, Event, Webhook, WebhookDelivery
from postroom.model.inbox import Inbox, Label, Mailbox
from postroom.model.key import Key
from postroom.model.mail.message import Attachment, MessageRow, ThreadRow
from postroom.model.mail.sending import Draft, OutboxEntry
from postroom.model.memory import MemoryHit, MemoryRow
from postroom.model.rule import Rule
from postroom.surfaces.cli.tables import (
    Column,
    Screen,
    Text,
    columns_of,
    lines_of,
    local_time,
    short_ids,
)
from postroom.surfaces.cli.terminal import cell
from postroom.surfaces.to_json import public_fields

Row = Mapping[str, Any]

COLUMNS: dict[type, str] = {
    Account: "id provider address state synced total detail last_refusal",
    Identity: "id email name inbox_id is_default",
    Inbox: "id address name created_at",
    MessageRow: "id date from_address subject flags labels status",
    ThreadRow: "id last_date message_count subject participants",
    Attachment: "id filename content_type size message_id",
    Label: "name message_count",
    Mailbox: "inbox_id name total unread",
    Webhook: "id enabled url types inboxes stopped",
    WebhookDelivery: "id created_at type status attempts code detail",
    Draft: "id updated_at to subject send_at",
    OutboxEntry: "message_id status send_at attempts next_attempt_at is_paused recipients subject",
    Event: "id at type inbox_id message_id",
    Key: "id name scopes inboxes accounts namespaces created_at last_used_at expires_at",
    MemoryRow: "key updated_at trust tags summary",
    MemoryHit: "key relevance trust excerpt",
    Rule: "id position enabled name description",
    AuditEntry: "id at actor via action target",
}
"""The fields of a row on a pipe. Scripts rely on them."""

TERMINAL: dict[type, str] = {
    Account: "id provider address:30 state synced total? detail:* last_refusal:30?",
    Identity: "id email:* name:24 inbox_id? is_default?",
    Inbox: "id address:* name:24 created_at?",
    MessageRow: "id date marks who:22 subject:* labels:14? status",
    ThreadRow: "id last_date message_count participants:26 subject:* labels:14?",
    Attachment: "id size filename:* content_type:24? message_id?",
    Label: "name:* message_count",
    Mailbox: "inbox_id name:* total unread",
    Webhook: "id enabled url:* types:20? inboxes:20? stopped:30",
    WebhookDelivery: "id created_at type status attempts? code detail:*",
    Draft: "id updated_at to:24 subject:* send_at",
    OutboxEntry: "message_id status attempts? next_attempt_at? is_paused? recipients:28 subject:*",
    Event: "at type inbox_id? message_id id:*",
    Key: "id name:* scopes:24 approval? inboxes:20 accounts:16? namespaces:16? last_used_at? "
    "expires_at",
    MemoryRow: "key:30 updated_at trust tags:16? summary:*",
    MemoryHit: "key:30 relevance trust? excerpt:*",
    Rule: "id position enabled name:30 description:*",
    AuditEntry: "at actor via action target:* id?",
}
"""The columns of a row on a terminal, see `columns_of`."""

_DAYS = frozenset(("date", "last_date", "updated_at", "created_at", "last_used_at", "expires_at"))
"""Times of which the day is enough."""

_VIEWS = frozenset(("inboxes", "accounts", "namespaces"))
_MARKS = {"flagged": "!", "answered": "r"}


def show_page(text: Text, kind: type, page: Row) -> None:
    """Add a page of rows of one kind."""
    if page.get("is_paused"):
        text.note("the outbox is paused; `postroom outbox resume` resumes it")
    rows: list[Row] = page["results"]
    if not rows:
        total = page.get("total")
        text.note(f"no rows at this offset; there are {total}" if total else "no results")
        if page.get("hint"):
            text.note(page["hint"])
        return
    text.add(*table_of(kind, rows, text.screen))
    if page.get("has_more"):
        seen = page.get("offset", 0) + len(rows)
        # A cursor stays valid while mail arrives, but a person would have to copy it.
        at = (
            f"--offset {seen}" if text.screen.is_terminal else f"--cursor {page.get('next_cursor')}"
        )
        text.note(f"{seen} of {page.get('total')}; more: {at}")


def table_of(kind: type, rows: list[Row], screen: Screen) -> list[str]:
    """The lines of the table of some rows."""
    if screen.is_wide:
        names = [name.removesuffix("_") for name, _ in public_fields(kind)]
    else:
        names = COLUMNS[kind].split()
    columns = {name: Column(name.replace("_", " ")) for name in names}
    if screen.is_terminal and not screen.is_wide:
        columns = columns_of(TERMINAL[kind])
    is_compact = screen.is_terminal and not screen.is_wide
    by_name = {
        name: [_cell(kind, row, name, is_compact=is_compact) for row in rows] for name in columns
    }
    if is_compact:
        by_name = {name: short_ids(cells, name) for name, cells in by_name.items()}
    return lines_of(list(columns.values()), list(zip(*by_name.values(), strict=True)), screen)


def _cell(kind: type, row: Row, name: str, *, is_compact: bool) -> str:
    """The content of one cell."""
    words = scope_words(kind, row, name)
    if words is not None:
        return words
    if not is_compact:
        return cell(row.get(name))
    if name in _SHOWN:
        return cell(_SHOWN[name](row))
    value = row.get(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return local_time(cell(value), is_day=name in _DAYS)


def scope_words(kind: type, row: Row, name: str) -> str | None:
    """What a key or a webhook is limited to; an empty limit is not the same as none."""
    if kind not in (Key, Webhook) or name not in row:
        return None
    value = row[name]
    if kind is Webhook and name == "types" and not value:
        return "all"
    if name not in _VIEWS or value:
        return None
    # A key that is limited to inboxes or accounts sees none of the others of both.
    other = {"accounts": "inboxes", "inboxes": "accounts"}.get(name)
    is_limited = kind is Key and other is not None and row.get(other) is not None
    return "all" if value is None and not is_limited else "none"


def _who(row: Row) -> str:
    """The sender, or the recipients of outgoing mail, by name if there is one."""
    if row.get("direction") == "outbound":
        return "to " + ", ".join(row.get("to_addresses", ()))
    return str(row.get("from_name") or row.get("from_address", ""))


def _marks(row: Row) -> str:
    """N unread, ! flagged, r answered, + with an attachment."""
    flags = row.get("flags", ())
    is_new = "seen" not in flags and row.get("direction") != "outbound"
    marks = ["N"] if is_new else []
    marks += [mark for flag, mark in _MARKS.items() if flag in flags]
    return "".join(marks) + ("+" if row.get("has_attachment") else "")


def _status(row: Row) -> str:
    until = row.get("send_at") if row.get("status") == "scheduled" else None
    return f"{row.get('status') or ''} {local_time(until, is_day=True) if until else ''}".rstrip()


def size_words(size: int) -> str:
    """A number of bytes in a readable unit."""
    if size < 1_000:
        return f"{size} B"
    return f"{size / 1_000:.0f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _recipients(row: Row) -> str:
    found = row.get("recipients", ())
    return ", ".join(r["address"] if isinstance(r, dict) else str(r) for r in found)


_SHOWN: dict[str, Callable[[Row], str]] = {
    "who": _who,
    "marks": _marks,
    "status": _status,
    "size": lambda row: size_words(row.get("size", 0)),
    "recipients": _recipients,
    "relevance": lambda row: f"{row.get('relevance', 0):.2f}",
}
"""Columns that say a field in other words on a terminal."""
