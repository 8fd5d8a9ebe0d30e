"""Completion of values in a shell: words of a list, addresses, labels, mailboxes and recent ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from postroom.surfaces.cli.command_table import operation_at
from postroom.surfaces.cli.session import Session

if TYPE_CHECKING:
    from postroom.surfaces.cli.backends import Backend

Row = dict[str, Any]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_PATIENCE_S = 3.0

SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "account_id": ("accounts.list_accounts", "id", ("address",)),
    "accounts": ("accounts.list_accounts", "id", ("address",)),
    "attachment_id": ("mail.attachments.list_attachments", "id", ("filename",)),
    "attach_id": ("mail.attachments.list_attachments", "id", ("filename",)),
    "destination": ("mail.message_changes.list_mailboxes", "name", ()),
    "draft_id": ("outgoing.drafts.list_drafts", "id", ("subject",)),
    "identity_id": ("outgoing.identities.list_identities", "id", ("email",)),
    "inbox": ("inboxes.list_inboxes", "address", ("name",)),
    "inbox_id": ("inboxes.list_inboxes", "address", ("name",)),
    "inboxes": ("inboxes.list_inboxes", "address", ("name",)),
    "in_reply_to": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "key_id": ("keys.list_keys", "id", ("name",)),
    "label": ("mail.message_changes.list_labels", "name", ()),
    "labels": ("mail.message_changes.list_labels", "name", ()),
    "add_labels": ("mail.message_changes.list_labels", "name", ()),
    "remove_labels": ("mail.message_changes.list_labels", "name", ()),
    "mailbox": ("mail.message_changes.list_mailboxes", "name", ()),
    "message_id": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "message_ids": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "recipient": ("inboxes.list_inboxes", "address", ("name",)),
    "rule_id": ("rules.list_rules", "id", ("name",)),
    "thread_id": ("mail.threads.list_threads", "id", ("subject",)),
    "thread_ids": ("mail.threads.list_threads", "id", ("subject",)),
    "webhook_id": ("webhooks.list_webhooks", "id", ("url",)),
}
"""For each argument: the list that has its values, the field of the value, and what explains it."""

_EVERYWHERE = {"mailbox": "*", "limit": 50}


def files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(begun, type="file")]


def completes(name: str, choices: Sequence[str] = ()) -> Complete | None:
    """The completer of an argument's values; None if there is none."""
    if choices:
        return lambda ctx, param, begun: [
            CompletionItem(one) for one in choices if one.startswith(begun)
        ]
    if name not in SOURCES:
        return None
    return lambda ctx, param, begun: stored(ctx.find_object(Session), name, begun)


def stored(session: Session | None, name: str, begun: str) -> list[CompletionItem]:
    """Values that are stored, newest first.

    Errors are ignored, because a completion must not disturb typing.
    """
    if session is None:
        return []
    try:
        with redirect_stderr(StringIO()):
            if session.server is None and not session.is_there:
                return []
            rows = session.perform(lambda at: asyncio.wait_for(_rows(at, name), _PATIENCE_S))
    except Exception:  # noqa: BLE001  whatever it is, the command itself will tell
        return []
    _, field, about = SOURCES[name]
    values = {row[field]: _explained(row, about) for row in rows}
    return [
        CompletionItem(value, help=words)
        for value, words in values.items()
        if value.startswith(begun) or _without_kind(value).startswith(begun)
    ]


def _without_kind(value: str) -> str:
    return value.partition("_")[2]


def _explained(row: Row, about: tuple[str, ...]) -> str:
    from postroom.surfaces.cli.terminal import cell

    return cell(" · ".join(str(row[name]) for name in about if row.get(name)))[:60]


async def _rows(backend: Backend, name: str) -> list[Row]:
    import_path = SOURCES[name][0]
    arguments = _EVERYWHERE if import_path == "mail.messages.search_messages" else {}
    if import_path != "mail.attachments.list_attachments":
        return list((await backend.body(operation_at(import_path), arguments))["results"])
    found = await backend.body(operation_at(SOURCES["inbox_id"][0]), {})
    rows: list[Row] = []
    for inbox in found["results"][:5]:
        page = await backend.body(operation_at(import_path), {"inbox_id": inbox["id"], "limit": 20})
        rows += page["results"]
    return rows


def attach(params: Sequence[click.Parameter]) -> None:
    """Let options and arguments complete their values by their names."""
    for param in params:
        found = completes(param.name or "")
        # click takes it at construction only
        if found is not None and param._custom_shell_complete is None:  # noqa: SLF001
            param._custom_shell_complete = found  # noqa: SLF001
