"""What a person sees of an answer: columns for lists, lines for one thing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from postroom.model.account import Account, Identity
from postroom.model.attachment import Attachment
from postroom.model.audit import AuditEntry
from postroom.model.draft import Draft
from postroom.model.event import Event, Waited
from postroom.model.inbox import Inbox, Label
from postroom.model.key import Key
from postroom.model.memory import MemoryHit, MemoryRow
from postroom.model.message import ActionResult, Message, MessageRow, ThreadMessage
from postroom.model.outbox import OutboxEntry
from postroom.model.page import Page
from postroom.model.rule import DryRunPlan, Rule
from postroom.model.thread import Thread, ThreadRow
from postroom.model.webhook import Webhook, WebhookDelivery
from postroom.surfaces.cli.tables import cell, inert, table
from postroom.surfaces.shapes import moment, to_json

COLUMNS: dict[type, tuple[str, ...]] = {
    Account: ("id", "provider", "address", "state", "synced", "total", "detail", "last_refusal"),
    Identity: ("id", "email", "name", "inbox_id", "is_default"),
    Inbox: ("id", "address", "name", "created_at"),
    MessageRow: ("id", "date", "from_address", "subject", "flags", "labels"),
    ThreadMessage: ("id", "date", "from_address", "new_text"),
    ThreadRow: ("id", "last_date", "message_count", "subject", "participants"),
    Attachment: ("id", "filename", "content_type", "size", "message_id"),
    Label: ("name", "message_count"),
    Webhook: ("id", "url", "types", "inboxes"),
    WebhookDelivery: ("id", "created_at", "type", "status", "attempts", "code", "detail"),
    Draft: ("id", "updated_at", "to", "subject", "send_at"),
    OutboxEntry: (
        "message_id",
        "status",
        "attempts",
        "next_attempt_at",
        "is_paused",
        "recipients",
        "subject",
    ),
    Event: ("id", "at", "type", "inbox_id", "message_id"),
    Key: ("id", "name", "scopes", "inboxes", "namespaces", "created_at", "last_used_at"),
    MemoryRow: ("key", "updated_at", "trust", "tags", "summary"),
    MemoryHit: ("key", "relevance", "trust", "excerpt"),
    Rule: ("id", "position", "enabled", "name", "description"),
    AuditEntry: ("id", "at", "actor", "action", "target"),
}
"""The fields of a row that a list shows."""


def view(result: Any) -> None:
    """Show an answer to a person."""
    if isinstance(result, Page):
        _view_page(result)
    elif result is not None:
        VIEWS.get(type(result), _view_fields)(result)


def _view_page(page: Page[Any]) -> None:
    if not page.results:
        words = f"nothing here; there are {page.total}" if page.total else "nothing found"
        print(words, file=sys.stderr)
        return
    names = COLUMNS[type(page.results[0])]
    table(names, [[cell(to_json(getattr(row, name))) for name in names] for row in page.results])
    if page.has_more:
        seen = page.offset + len(page.results)
        # Beside the answer, so that a pipe has nothing but rows and nobody takes a part for all.
        print(f"{seen} of {page.total}; more: --cursor {page.next_cursor}", file=sys.stderr)


def _view_fields(result: Any) -> None:
    """One thing: a line for each field that holds something."""
    shown = to_json(result)
    width = max(map(len, shown), default=0) + 2
    for name, value in shown.items():
        if value not in (None, "", []):
            print(f"{name.replace('_', ' '):{width}}{cell(value)}")


def _view_message(message: Message) -> None:
    rows = {
        "id": message.id,
        "thread": message.thread_id,
        "from": _named(message.from_name, message.from_address),
        "to": message.to_addresses,
        "cc": message.cc_addresses,
        "bcc": message.bcc_addresses,
        "date": moment(message.date),
        "subject": message.subject,
        "mailbox": message.mailboxes,
        "labels": message.labels,
        "flags": message.flags,
        "status": message.status,
        "who": to_json(message.recipients),
        "attached": [f"{a.filename} ({a.size} bytes, {a.id})" for a in message.attachments],
        "odd": message.defects,
    }
    for name, value in rows.items():
        if value:
            print(f"{name + ':':10}{cell(value)}")
    print()
    print(inert(message.text).rstrip())
    if message.next_offset is not None:
        print(f"\n… cut; read on with --text-offset {message.next_offset}")


def _named(name: str, address: str) -> str:
    return f"{name} <{address}>" if name else address


def _view_thread(thread: Thread) -> None:
    print(f"{cell(thread.subject)}  ({thread.id}, {thread.message_count} messages)")
    if thread.has_more:
        print(f"… there are older ones; read back with --before {thread.messages[0].id}")
    for message in thread.messages:
        print(f"\n── {moment(message.date)}  {_from(message)}  {message.id}")
        print(inert(message.new_text).rstrip())


def _from(message: ThreadMessage) -> str:
    return cell(_named(message.from_name, message.from_address))


def _view_action(result: ActionResult) -> None:
    if result.succeeded:
        print(f"done: {', '.join(result.succeeded)}")


def _view_waited(waited: Waited) -> None:
    if waited.message is None:
        print(f"nothing came; go on with --since {waited.since}", file=sys.stderr)
        return
    if waited.extracted:
        print(f"extracted: {cell(waited.extracted)}")
    _view_message(waited.message)


def line_of(event: Event) -> str:
    """An event in one line."""
    told = [f"{name}={cell(value)}" for name, value in to_json(event.data).items()]
    return "\t".join([moment(event.at), event.type, event.message_id or event.inbox_id, *told])


def _view_plan(plan: DryRunPlan) -> None:
    counts = ", ".join(f"{kind} {count}" for kind, count in plan.actions_by_type.items())
    print(f"{plan.plan_id}: {plan.total_matches} messages match; {counts or 'nothing to do'}")
    for warning in plan.warnings:
        print(f"warning: {warning}")
    names = ("message_id", "date", "from", "subject", "actions", "why")
    rows = [to_json(message) for message in plan.matched_messages]
    for row in rows:
        row["actions"] = [": ".join(action.values()) for action in row["actions"]]
    table(names, [[cell(row[name]) for name in names] for row in rows])
    if plan.has_more:
        seen = plan.offset + plan.count
        print(f"{seen} of {plan.total}; more: postroom rule read {plan.plan_id} --offset {seen}")
    print(f"carry it out with: postroom rule apply {plan.plan_id}")


VIEWS: dict[type, Callable[[Any], None]] = {
    Message: _view_message,
    Thread: _view_thread,
    ActionResult: _view_action,
    Waited: _view_waited,
    DryRunPlan: _view_plan,
}
"""What is not shown field by field."""
