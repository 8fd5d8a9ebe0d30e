"""Toolset `imap`: straight on live mailboxes, as contract 002 names it."""

from __future__ import annotations

from functools import partial
from typing import Any

from postroom.operations.imap import accounts, flags, reading, searching, transfers
from postroom.operations.operation import Operation
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets import imap_words as words
from postroom.surfaces.mcp.toolsets.imap_envelope import (
    Follow,
    Summarise,
    explain_error,
    outline,
    present,
    stamp,
)


def _tool(
    name: str,
    title: str,
    operation: Operation[Any, Any],
    summarise: Summarise,
    follow: Follow,
    **more: Any,
) -> Tool:
    return Tool(
        name=name,
        title=title,
        operation=operation,
        present=partial(present, summarise, follow),
        explain=explain_error,
        stamp=stamp,
        outline=outline,
        whole=True,
        is_elsewhere=True,
        **more,
    )


TOOLS = (
    _tool(
        "imap_list_accounts",
        "List live accounts",
        accounts.list_live_accounts,
        words.accounts,
        words.after_accounts,
    ),
    _tool(
        "imap_verify_account",
        "Verify a live account",
        accounts.verify_live_account,
        words.verification,
        words.after_verification,
    ),
    _tool(
        "imap_list_mailboxes",
        "List live mailboxes",
        accounts.list_live_mailboxes,
        words.mailboxes,
        words.after_mailboxes,
    ),
    _tool(
        "imap_search_messages",
        "Search a live mailbox",
        searching.search_live_messages,
        words.search,
        words.after_search,
    ),
    _tool(
        "imap_get_message",
        "Read a live message",
        reading.get_live_message,
        words.message,
        words.after_reading,
    ),
    _tool(
        "imap_get_message_raw",
        "Read the source of a live message",
        reading.get_live_message_raw,
        words.source,
        words.after_source,
    ),
    _tool(
        "imap_update_message_flags",
        "Flag a live message",
        flags.update_live_flags,
        words.flags,
        words.after_flags,
        is_idempotent=True,
    ),
    _tool(
        "imap_copy_message",
        "Copy a live message",
        transfers.copy_live_message,
        words.copy,
        words.after_change,
    ),
    _tool(
        "imap_move_message",
        "Move a live message",
        transfers.move_live_message,
        words.move,
        words.after_change,
    ),
    _tool(
        "imap_delete_message",
        "Delete a live message",
        transfers.delete_live_message,
        words.deletion,
        words.after_change,
    ),
)
