"""Results of operations as text for people: from the JSON that every surface has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args

from postroom.model.event import Waited
from postroom.model.mail.approval import InboxPolicy
from postroom.model.mail.message import ActionResult, AttachmentText, Message, Thread
from postroom.model.mail.sending import HeldMail
from postroom.model.page import is_page
from postroom.model.rule import DryRunPlan
from postroom.surfaces.cli.lists import scope_words, show_page, size_words
from postroom.surfaces.cli.tables import (
    Column,
    Text,
    columns_of,
    lines_of,
    local_time,
    short_ids,
    whole_time,
    wrapped,
)
from postroom.surfaces.cli.terminal import cell, without_controls
from postroom.surfaces.to_json import public_fields

Body = Mapping[str, Any]


def render(text: Text, result_type: Any, body: Body) -> None:
    """Add the result of an operation that returns *result_type*."""
    if is_page(result_type) and "results" in body:
        show_page(text, get_args(result_type)[0], body)
        return
    kind = kind_of(result_type, body)
    VIEWS.get(kind, _show_fields)(text, kind, body)


def kind_of(result_type: Any, body: Body) -> Any:
    """The kind of a result; `object` for a receipt, which has only some of the fields."""
    kinds = get_args(result_type) if isinstance(result_type, UnionType) else (result_type,)
    return next((kind for kind in kinds if _is_whole(kind, body)), object)


def _is_whole(kind: Any, body: Body) -> bool:
    if not is_dataclass(kind) or not isinstance(kind, type):
        return False
    names = (name.removesuffix("_") for name, optional in public_fields(kind) if not optional)
    return all(name in body for name in names)


def _show_fields(text: Text, kind: Any, body: Body) -> None:
    """One object: a line for each field that is not empty."""
    scopes = {name: scope_words(kind, body, name) for name in body}
    fields = {name: scopes[name] or value for name, value in body.items() if name != "untrusted"}
    width, is_terminal = max(map(len, fields), default=0) + 2, text.screen.is_terminal
    for name, value in fields.items():
        if value in (None, "", []):
            continue
        title = name.replace("_", " ")
        if isinstance(value, str) and "\n" in value.strip() and (is_terminal or name == "yaml"):
            text.add(
                f"{title}:", *(f"  {line}" for line in without_controls(value).rstrip().split("\n"))
            )
        elif words := _cell_text(text, value):
            text.add(f"{title:{width}}{words}")


def _show_policy(text: Text, kind: Any, policy: Body) -> None:
    lists = {name: policy[name] for name in ("recipients", "senders")}
    names = ("allow", "deny", "block")
    shown = {n: cell(it) if any(map(it.get, names)) else "all" for n, it in lists.items()}
    _show_fields(text, kind, {**policy, **shown})


def _cell_text(text: Text, value: Any) -> str:
    if not text.screen.is_terminal:
        return cell(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return whole_time(cell(value))


def _show_message(text: Text, kind: Any, message: Body) -> None:
    time = whole_time if text.screen.is_terminal else str
    rows = {
        "id": message["id"],
        "thread": message["thread_id"],
        "from": _name_and_address(message["from_name"], message["from_address"]),
        "to": _people(text, message, "to"),
        "cc": _people(text, message, "cc"),
        "bcc": _people(text, message, "bcc"),
        "date": time(message["date"]),
        "subject": message["subject"],
        "mailbox": message["mailboxes"],
        "labels": message["labels"],
        "flags": message["flags"],
        "status": message.get("status"),
        "send at": time(message["send_at"]) if message.get("send_at") else None,
        "who": message.get("recipients"),
        "attached": [_attached(text, file) for file in message["attachments"]],
        "odd": message["defects"],
    }
    for name, value in rows.items():
        if value:
            text.add(f"{name + ':':10}{cell(value)}")
    for warning in warnings_of(message):
        text.add(f"{'warning:':10}{cell(warning)}")
    for header in message.get("headers") or ():
        text.add(f"{cell(header['name'])}: {cell(header['value'])}")
    for memory in message.get("memories") or ():
        text.add(f"{'memory:':10}{cell(memory['summary'])} ({cell(memory['key'])})")
    text.add("", *_paragraphs(text, message["text"]))
    if message.get("next_offset") is not None:
        text.add("", f"… truncated; continue with --text-offset {message['next_offset']}")


def _show_held(text: Text, kind: Any, mail: Body) -> None:
    """A held mail for the person who decides: recipients and reasons first."""
    time = whole_time if text.screen.is_terminal else str
    hold = mail["hold"]
    rows = {
        **{role: mail[f"{role}_addresses"] for role in ("to", "cc", "bcc")},
        "from": mail["from_address"],
        "reply to": mail["reply_to"],
        "subject": mail["subject"],
        "attached": [_attached(text, file) for file in mail["attachments"]],
        "headers": [f"{header['name']}: {header['value']}" for header in mail["headers"]],
        "status": mail["status"],
        "send at": time(mail["send_at"]) if mail.get("send_at") else None,
        "expires": time(hold["expires_at"]),
        "decided": hold.get("decision"),
        "note": hold.get("note"),
        "sha256": hold["sha256"],
        "id": mail["message_id"],
    }
    for name, value in rows.items():
        if value:
            text.add(f"{name + ':':10}{cell(value)}")
    for reason in hold["reasons"]:
        text.add(f"{'held:':10}{cell(reason)}")
    text.add("", *_paragraphs(text, mail["text"]))
    if mail["hidden_chars"]:
        text.add("", "Its HTML, with text that its reader would not see:", "")
        text.add(*_paragraphs(text, mail["body_html"]))
    if mail.get("answered_text"):
        text.add("", f"It answers {cell(mail['answers'])}:", "")
        text.add(*(f"> {line}" for line in _paragraphs(text, mail["answered_text"])))


def _attached(text: Text, file: Body) -> str:
    size = size_words(file["size"]) if text.screen.is_terminal else f"{file['size']} bytes"
    return f"{file['filename']} ({size}, {file['id']})"


def _people(text: Text, message: Body, role: str) -> list[str]:
    """The addresses of one role; on a terminal with their names."""
    if not text.screen.is_terminal:
        return list(message[f"{role}_addresses"])
    lines = [line for line in message["addresses"] if line["role"] == role]
    return [_name_and_address(line["name"], line["address"]) for line in lines]


def _paragraphs(text: Text, words: str) -> list[str]:
    safe = without_controls(words).rstrip()
    return wrapped(safe, text.screen.width) if text.screen.is_terminal else [safe]


def warnings_of(message: Body) -> list[str]:
    """Explanations of what is suspicious about a message."""
    found, auth = message["security"], message["auth"]
    words = [f"the sender may not be who it seems: {one}" for one in found.get("lookalike", ())]
    if found.get("imitates"):
        words.append(f"the sender's domain imitates {cell(found['imitates'])}")
    if auth.get("dmarc") == "fail":
        words.append("the sender's domain says that this mail is forged (DMARC failed)")
    if found.get("hidden_text"):
        count = found.get("hidden_text_total") or len(found["hidden_text"])
        words.append(
            f"it has text that a reader would not see ({_counted(count, 'piece')}); left out below"
        )
    if found.get("removed_characters"):
        count = sum(found["removed_characters"].values())
        words.append(f"{_counted(count, 'invisible character')} removed from it")
    if found.get("text_differs"):
        words.append("its plain text and its HTML differ")
    words += [
        f"the attachment {name} does not have the type that its name suggests"
        for name in found.get("disguised_attachments", ())
    ]
    if found.get("tracking_pixels"):
        count = _counted(found["tracking_pixels"], "tracking pixel")
        words.append(f"its HTML has {count}: the sender learns when it is opened")
    return words


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _show_text(text: Text, kind: Any, found: Body) -> None:
    text.add(*_paragraphs(text, found["text"]))
    for warning in found["warnings"]:
        text.note(f"warning: {cell(warning)}")
    if found.get("next_offset") is not None:
        words = f"{found['next_offset']} of {found['total_chars']} characters"
        text.note(f"{words}; continue with --offset {found['next_offset']}")


def _name_and_address(name: str, address: str) -> str:
    return f"{name} <{address}>" if name else address


def _show_thread(text: Text, kind: Any, thread: Body) -> None:
    messages, screen = thread["messages"], text.screen
    count = _counted(thread["message_count"], "message")
    text.add(f"{cell(thread['subject'])}  ({thread['id']}, {count})")
    if thread["has_more"]:
        text.add(f"… there are older messages; show them with --before {messages[0]['id']}")
    for message in messages:
        sender = cell(
            _name_and_address(message.get("from_name", ""), message.get("from_address", ""))
        )
        date = message["date"] if not screen.is_terminal else local_time(message["date"])
        [short] = short_ids([message["id"]]) if screen.is_terminal else [message["id"]]
        line = f"── {date}  {sender}  {short}{_progress(message)}"
        text.add("", screen.bold(line) if screen.is_terminal else line)
        text.add(*_paragraphs(text, message.get("new_text", "")))
        if message.get("truncated"):
            text.add(f"… truncated; `postroom message show {short}` shows all")


def _progress(message: Body) -> str:
    """The status of an outbound message, and when it is to be sent."""
    until = f" for {message['send_at']}" if message.get("send_at") else ""
    return f"  {message['status']}{until}" if message.get("status") else ""


def _show_action(text: Text, kind: Any, result: Body) -> None:
    if result["succeeded"]:
        text.add(f"done: {', '.join(result['succeeded'])}")


def _show_waited(text: Text, kind: Any, waited: Body) -> None:
    if waited.get("message") is None:
        text.note(f"no message arrived; continue with --since {waited.get('since')}")
    elif waited.get("extracted") is not None:
        text.add(cell(waited["extracted"]))
    else:
        _show_message(text, Message, waited["message"])


def _show_plan(text: Text, kind: Any, plan: Body) -> None:
    counts = ", ".join(f"{kind} {count}" for kind, count in plan["actions_by_type"].items())
    matches = _counted(plan["total_matches"], "matching message")
    text.add(f"{plan['plan_id']}: {matches}; {counts or 'nothing to do'}")
    for warning in plan["warnings"]:
        text.add(f"warning: {cell(warning)}")
    columns = columns_of("message_id date from:22 subject:* actions:24 why:24?")
    titles = {name: Column(name.replace("_", " ")) for name in columns}
    rows = [_plan_row(text, tuple(columns), row) for row in plan["matched_messages"]]
    shown = columns if text.screen.is_terminal else titles
    text.add(*lines_of([*shown.values()], rows, text.screen))
    if plan["has_more"]:
        seen = plan["offset"] + plan["count"]
        again = f"postroom rule read {plan['plan_id']} --offset {seen}"
        text.add(f"{seen} of {plan['total']}; more: {again}")
    if counts:
        text.add(f"apply it with: postroom rule apply {plan['plan_id']}")


def _plan_row(text: Text, names: tuple[str, ...], row: Body) -> list[str]:
    actions = [": ".join(action.values()) for action in row["actions"]]
    cells = [cell({**row, "actions": actions}[name]) for name in names]
    if not text.screen.is_terminal or text.screen.is_wide:
        return cells
    return [*short_ids(cells[:1]), local_time(cells[1], is_day=True), *cells[2:]]


VIEWS: dict[Any, Callable[[Text, Any, Body], None]] = {
    AttachmentText: _show_text,
    Message: _show_message,
    Thread: _show_thread,
    ActionResult: _show_action,
    Waited: _show_waited,
    DryRunPlan: _show_plan,
    HeldMail: _show_held,
    InboxPolicy: _show_policy,
}
"""Kinds of results that are not printed field by field."""
