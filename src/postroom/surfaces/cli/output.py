"""Results of operations: JSON, tables and text, or a file."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from postroom.calls.operation import Operation
from postroom.errors import Conflict
from postroom.mail.mime.attachments import download_name
from postroom.model.account import Account, Identity
from postroom.model.audit import AuditEntry
from postroom.model.event import Event, EventStream, Waited, Webhook, WebhookDelivery
from postroom.model.inbox import Inbox, Label, Mailbox
from postroom.model.key import Key
from postroom.model.memory import MemoryHit, MemoryRow
from postroom.model.message import (
    ActionResult,
    Attachment,
    AttachmentText,
    Download,
    Message,
    MessageRow,
    Thread,
    ThreadMessage,
    ThreadRow,
)
from postroom.model.page import Page
from postroom.model.rule import DryRunPlan, Rule
from postroom.model.sending import Draft, OutboxEntry, OutboxPage
from postroom.model.view import EVERYTHING, Everything, Only
from postroom.surfaces.cli.terminal import cell, inert, table, write_bytes, write_json
from postroom.surfaces.to_json import answer, moment, presented, to_json

COLUMNS: dict[type, str] = {
    Account: "id provider address state synced total detail last_refusal",
    Identity: "id email name inbox_id is_default",
    Inbox: "id address name created_at",
    MessageRow: "id date from_address subject flags labels status",
    ThreadMessage: "id date from_address new_text",
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
"""The fields of a row that a list shows."""

SPARE: dict[type, tuple[str, ...]] = {
    Key: ("created_at", "last_used_at"),
    OutboxEntry: ("attempts", "next_attempt_at", "is_paused"),
}
"""Columns that are left out on a narrow terminal."""


def view(result: Any) -> None:
    """Print a result for a person."""
    if isinstance(result, Page):
        _view_page(result)
    elif result is not None:
        VIEWS.get(type(result), _view_fields)(result)


def _view_page(page: Page[Any]) -> None:
    if isinstance(page, OutboxPage) and page.is_paused:
        print("the outbox is paused; `postroom outbox resume` resumes it", file=sys.stderr)
    if not page.results:
        words = f"no rows at this offset; there are {page.total}" if page.total else "no results"
        print(words, file=sys.stderr)
        if page.hint:
            print(page.hint, file=sys.stderr)
        return
    kind = type(page.results[0])
    names = COLUMNS[kind].split()
    rows = [
        [cell(_scope_words(row, name) or to_json(getattr(row, name))) for name in names]
        for row in page.results
    ]
    table(names, rows, SPARE.get(kind, ()))
    if page.has_more:
        seen = page.offset + len(page.results)
        # On stderr, so that a pipe contains only rows and a partial list is noticed.
        print(f"{seen} of {page.total}; more: --cursor {page.next_cursor}", file=sys.stderr)


def _scope_words(row: Any, name: str) -> str | None:
    """What a key or a webhook is limited to; an empty limit is not the same as none."""
    value = getattr(row, name, None)
    # A key that is limited to inboxes or accounts sees none of the others of both.
    other = {"accounts": "inboxes", "inboxes": "accounts"}.get(name)
    if isinstance(row, Key) and other and value == EVERYTHING and getattr(row, other) != EVERYTHING:
        return "none"
    if isinstance(value, Everything) or (isinstance(row, Webhook) and value == ()):
        return "all"
    if isinstance(value, Only) and value.is_empty:
        return "none"
    return None


def _view_fields(result: Any) -> None:
    """One object: a line for each field that is not empty."""
    shown = {name: _scope_words(result, name) or value for name, value in to_json(result).items()}
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
        "send at": message.send_at and moment(message.send_at),
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
        print(f"\n… truncated; continue with --text-offset {message.next_offset}")


def _view_text(found: AttachmentText) -> None:
    print(inert(found.text).rstrip())
    for warning in found.warnings:
        print(f"warning: {cell(warning)}", file=sys.stderr)
    if found.next_offset is not None:
        words = f"{found.next_offset} of {found.total_chars} characters"
        print(f"{words}; continue with --offset {found.next_offset}", file=sys.stderr)


def _named(name: str, address: str) -> str:
    return f"{name} <{address}>" if name else address


def _view_thread(thread: Thread) -> None:
    print(f"{cell(thread.subject)}  ({thread.id}, {thread.message_count} messages)")
    if thread.has_more:
        print(f"… there are older messages; show them with --before {thread.messages[0].id}")
    for message in thread.messages:
        sender = cell(_named(message.from_name, message.from_address))
        print(f"\n── {moment(message.date)}  {sender}  {message.id}{_progress(message)}")
        print(inert(message.new_text).rstrip())


def _progress(message: MessageRow) -> str:
    """The status of an outbound message, and when it is to be sent."""
    until = f" for {moment(message.send_at)}" if message.send_at else ""
    return f"  {message.status}{until}" if message.status else ""


def _view_action(result: ActionResult) -> None:
    if result.succeeded:
        print(f"done: {', '.join(result.succeeded)}")


def _view_waited(waited: Waited) -> None:
    if waited.message is None:
        print(f"no message arrived; continue with --since {waited.since}", file=sys.stderr)
        return
    if waited.extracted is not None:
        print(cell(waited.extracted))
    else:
        _view_message(waited.message)


def _event_line(event: Event) -> str:
    told = [f"{name}={cell(value)}" for name, value in to_json(event.data).items()]
    return "\t".join([moment(event.at), event.type, event.message_id or event.inbox_id, *told])


def _view_plan(plan: DryRunPlan) -> None:
    counts = ", ".join(f"{kind} {count}" for kind, count in plan.actions_by_type.items())
    print(f"{plan.plan_id}: {plan.total_matches} messages match; {counts or 'nothing to do'}")
    for warning in plan.warnings:
        print(f"warning: {cell(warning)}")
    names = ("message_id", "date", "from", "subject", "actions", "why")
    rows = [to_json(message) for message in plan.matched_messages]
    for row in rows:
        row["actions"] = [": ".join(action.values()) for action in row["actions"]]
    table(names, [[cell(row[name]) for name in names] for row in rows])
    if plan.has_more:
        seen = plan.offset + plan.count
        print(f"{seen} of {plan.total}; more: postroom rule read {plan.plan_id} --offset {seen}")
    print(f"apply it with: postroom rule apply {plan.plan_id}")


VIEWS: dict[type, Callable[[Any], None]] = {
    AttachmentText: _view_text,
    Message: _view_message,
    Thread: _view_thread,
    ActionResult: _view_action,
    Waited: _view_waited,
    DryRunPlan: _view_plan,
}
"""Types that are not printed field by field."""


def show(operation: Operation[Any, Any], result: Any, *, as_json: bool) -> None:
    """Print the result of an operation."""
    if as_json:
        write_json(presented(answer(operation, result)))
    else:
        view(result)


async def follow(stream: EventStream, *, as_json: bool) -> None:
    """Print events as they happen, one per line, until interrupted."""
    async for event in stream.events:
        if event is None:
            continue
        if as_json:
            write_json(presented({"untrusted": True, **to_json(event)}))
        else:
            print(_event_line(event), flush=True)


async def save(download: Download, to: str, *, as_json: bool) -> None:
    """Write a download to a new file, or to standard output.

    Raises:
        Conflict: the file exists.
    """
    if to == "-":
        await _write_out(download)
        return
    path = Path(to or download_name(download.filename))
    await _write_file(download, path)
    if as_json:
        write_json({"path": str(path), "size": download.size})
    else:
        print(f"{path}: {download.size} bytes")


async def _write_out(download: Download) -> None:
    """Raw bytes to a pipe; on a terminal, control characters are replaced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for chunk in download.chunks:
        if sys.stdout.isatty():
            sys.stdout.write(inert(decoder.decode(chunk)))
        else:
            write_bytes(chunk)


async def _write_file(download: Download, path: Path) -> None:
    try:
        file = path.open("xb")
    except FileExistsError:
        raise Conflict(f"{path} exists; choose another name with --to") from None
    try:
        with file:
            async for chunk in download.chunks:
                file.write(chunk)
    except BaseException:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
