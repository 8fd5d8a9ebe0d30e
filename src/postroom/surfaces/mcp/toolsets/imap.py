"""The toolset imap: ten tools on a live mailbox."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from postroom.calls.operation import Operation
from postroom.errors import MailError, RateLimited
from postroom.operations.imap import accounts, changes, reading, search
from postroom.surfaces.mcp.tool import Body, Tool
from postroom.surfaces.mcp.toolsets import imap_summaries as words
from postroom.surfaces.to_json import moment, to_json

Summarise = Callable[[Body], str]
Follow = Callable[[Body], Body | None]

CODES = {
    "invalid_input": "invalid_input",
    "malformed": "invalid_input",
    "unauthenticated": "auth_failed",
    "forbidden": "invalid_input",
    "write_disabled": "invalid_input",
    "not_found": "not_found",
    "feature_disabled": "not_found",
    "conflict": "conflict",
    "too_large": "invalid_input",
    "too_slow": "invalid_input",
    "rate_limited": "internal",
    "provider_error": "internal",
    "provider_auth": "auth_failed",
    "provider_timeout": "timeout",
    "storage_full": "internal",
    "unavailable": "internal",
    "internal": "internal",
}
"""From our kinds to the codes of contract 002."""


def present(summarise: Summarise, follow: Follow, body: Body) -> Body:
    """An answer in its envelope, with a sentence about it and what to do next."""
    data = {name: value for name, value in body.items() if name != "untrusted"}
    if "issues" in data:
        data["issues"] = [_issue(issue) for issue in data["issues"]]
    step = follow(data)
    if step is not None:
        data["next_action"] = step
    mark = {"untrusted": True} if "untrusted" in body else {}
    return {**mark, "summary": summarise(data), "data": data}


def _issue(issue: Body) -> Body:
    return {**issue, "code": CODES.get(issue["code"], issue["code"])}


def explain_error(error: MailError) -> Body:
    """The body of a failed call."""
    details: dict[str, Any] = {"kind": error.code, **to_json(error.details)}
    if isinstance(error, RateLimited):
        details["retry_after"] = error.retry_after
    return {"error": {"code": CODES[error.code], "message": str(error), "details": details}}


def stamp(body: Body, seconds: float) -> Body:
    """Every answer and every error says when it was made and how long that took."""
    return {
        **body,
        "meta": {"now_utc": moment(datetime.now(UTC)), "duration_ms": round(seconds * 1000)},
    }


def outline(schema: Body) -> Body:
    """The schema of an answer in its envelope."""
    data = {name: shape for name, shape in schema["properties"].items() if name != "untrusted"}
    data["next_action"] = {"type": "object"}
    return {
        "type": "object",
        "properties": {
            "summary": {"type": "string"},
            "data": {"type": "object", "properties": data},
            "meta": {"type": "object"},
        },
    }


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
        search.search_live_messages,
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
        changes.update_live_flags,
        words.flags,
        words.after_flags,
        is_idempotent=True,
    ),
    _tool(
        "imap_copy_message",
        "Copy a live message",
        changes.copy_live_message,
        words.copy,
        words.after_change,
    ),
    _tool(
        "imap_move_message",
        "Move a live message",
        changes.move_live_message,
        words.move,
        words.after_change,
    ),
    _tool(
        "imap_delete_message",
        "Delete a live message",
        changes.delete_live_message,
        words.deletion,
        words.after_change,
    ),
)
