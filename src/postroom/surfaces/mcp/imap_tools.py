"""Toolset `imap`: ten tools on a live mailbox, as contract 002 names them.

A response has a summary in one sentence and names the next tool.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from postroom.calls.operation import Operation
from postroom.errors import MailError, RateLimited
from postroom.operations.imap import accounts, changes, reading, search
from postroom.surfaces.mcp.tool import Body, Tool
from postroom.surfaces.to_json import moment, to_json

Summarise = Callable[[Body], str]
Follow = Callable[[Body], Body | None]

_KINDS = {
    "invalid_input": (
        "invalid_input",
        "malformed",
        "forbidden",
        "write_disabled",
        "too_large",
        "too_slow",
    ),
    "auth_failed": ("unauthenticated", "provider_auth"),
    "not_found": ("not_found", "feature_disabled"),
    "conflict": ("conflict",),
    "internal": ("rate_limited", "provider_error", "storage_full", "unavailable", "internal"),
    "timeout": ("provider_timeout",),
}
CODES = {kind: code for code, kinds in _KINDS.items() for kind in kinds}
"""From our kinds to the codes of contract 002."""


def shape_result(summarise: Summarise, follow: Follow, body: Body) -> Body:
    """A response in its envelope, with a summary and the next action."""
    data = {name: value for name, value in body.items() if name != "untrusted"}
    if "issues" in data:
        data["issues"] = [{**i, "code": CODES.get(i["code"], i["code"])} for i in data["issues"]]
    step = follow(data)
    if step is not None:
        data["next_action"] = step
    mark = {"untrusted": True} if "untrusted" in body else {}
    issues = data.get("issues")
    why = f" ({issues[0]['message']})" if issues else ""
    return {**mark, "summary": summarise(data) + why, "data": data}


def explain_error(error: MailError) -> Body:
    """The body of a failed call."""
    details: dict[str, Any] = {"kind": error.code, **to_json(error.details)}
    if isinstance(error, RateLimited):
        details["retry_after"] = error.retry_after
    return {"error": {"code": CODES[error.code], "message": str(error), "details": details}}


def add_meta(body: Body, seconds: float) -> Body:
    """Every response and every error has its time and duration."""
    meta = {"now_utc": moment(datetime.now(UTC)), "duration_ms": round(seconds * 1000)}
    return {**body, "meta": meta}


def shape_schema(schema: Body) -> Body:
    """The schema of a response in its envelope."""
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


def _step(instruction: str, tool: str, **arguments: Any) -> Body:
    return {"instruction": instruction, "tool": tool, "arguments": arguments}


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# What happened; the first issue is added in brackets.


def _accounts(data: Body) -> str:
    return f"{_count(len(data['accounts']), 'account')} configured"


def _verification(data: Body) -> str:
    if not data["ok"]:
        return f"Account {data['account_id']} does not work"
    return f"Account {data['account_id']} works, {data['latency_ms']} ms"


def _mailboxes(data: Body) -> str:
    if data["status"] == "failed":
        return f"No mailboxes of account {data['account_id']} were listed"
    return _count(len(data["mailboxes"]), "mailbox").replace("xs", "xes")


def _search(data: Body) -> str:
    where = f"in {data['mailbox']}"
    if data["status"] == "failed":
        return f"The search {where} failed"
    matches = f"{data['total']} match{'' if data['total'] == 1 else 'es'}"
    failed = f", {data['failed']} of this page failed" if data["failed"] else ""
    return f"{data['returned']} of {matches} {where}{failed}"


def _message(data: Body) -> str:
    if data["message"] is None:
        return "The message was not read"
    part = "" if data["status"] == "ok" else " in part"
    return f"The message was read{part}"


def _source(data: Body) -> str:
    if data["raw_source_base64"] is None:
        return "The source was not read"
    return f"The source of a message of {_count(data['size_bytes'], 'byte')}"


def _flags(data: Body) -> str:
    changes = {"added": data["applied_add_flags"], "removed": data["applied_remove_flags"]}
    done = " and ".join(word for word, flags in changes.items() if flags)
    part = "Flags were changed in part" if data["status"] == "partial" else "No flag was changed"
    return f"Flags were {done}" if done else part


def _copy(data: Body) -> str:
    if data["status"] == "failed":
        return "The message was not copied"
    return f"The message was copied to {data['destination_mailbox']}"


def _move(data: Body) -> str:
    if data["status"] == "failed":
        return "The message was not moved"
    if data["status"] == "partial":
        there, here = data["destination_mailbox"], data["source_mailbox"]
        return f"The message was copied to {there} but is still in {here}"
    return f"The message was moved to {data['destination_mailbox']}"


def _deletion(data: Body) -> str:
    if data["status"] == "failed":
        return "The message was not deleted"
    if data["status"] == "partial":
        return "The message was flagged as deleted but not removed"
    return f"The message was deleted from {data['mailbox']}"


# What comes next. Only tools that read are named: they are always there.


def _after_accounts(data: Body) -> Body:
    """Suggest listing the mailboxes of the first account."""
    if not data["accounts"]:
        return _step(
            "No account is configured; set MAIL_IMAP_<ACCOUNT>_HOST, _USER and _PASS and restart",
            "imap_list_accounts",
        )
    account_id = data["accounts"][0]["account_id"]
    return _step("List the mailboxes of an account", "imap_list_mailboxes", account_id=account_id)


def _after_verification(data: Body) -> Body:
    """Suggest listing the mailboxes, or retrying."""
    if data["ok"]:
        return _step("List its mailboxes", "imap_list_mailboxes", account_id=data["account_id"])
    return _repair(data)


def _after_mailboxes(data: Body) -> Body:
    """Search the first mailbox, which is INBOX if there is one."""
    if data["status"] == "failed":
        return _repair(data)
    first = data["mailboxes"][0]["name"] if data["mailboxes"] else "INBOX"
    where = {"account_id": data["account_id"], "mailbox": first}
    return _step("Search a mailbox", "imap_search_messages", **where)


def _after_search(data: Body) -> Body:
    """Suggest the next page, or reading the newest message."""
    if data["status"] == "failed":
        return _repair(data)
    where = {"account_id": data["account_id"], "mailbox": data["mailbox"]}
    if "next_cursor" in data:
        where["cursor"] = data["next_cursor"]
        instruction = "Read a message with imap_get_message, or continue with the next page"
        return _step(instruction, "imap_search_messages", **where)
    if data["messages"]:
        first = data["messages"][0]["message_id"]
        return _step("Read a message", "imap_get_message", message_id=first)
    return _step("Nothing was found; search with other criteria", "imap_search_messages", **where)


def _after_part(instruction: str, tool: str) -> Follow:
    """What shows the rest of a message, or its state, if only a part of the call succeeded."""

    def follow(data: Body) -> Body | None:
        if data["status"] != "partial":
            return _after_failure(data)
        message_id = (data.get("message") or data)["message_id"]
        return _step(instruction, tool, message_id=message_id)

    return follow


def _after_change(data: Body) -> Body | None:
    """After a partial move or deletion, search the source mailbox.

    The message may still be there.
    """
    if data["status"] != "partial":
        return _after_failure(data)
    mailbox = data.get("source_mailbox") or data["mailbox"]
    where = {"account_id": _account(data), "mailbox": mailbox}
    return _step("See what is in the mailbox now", "imap_search_messages", **where)


def _after_failure(data: Body) -> Body | None:
    return _repair(data) if data["status"] == "failed" else None


def _account(data: Body) -> str:
    account_id: str = data.get("account_id") or data["source_account_id"]
    return account_id


def _repair(data: Body) -> Body:
    """The tool that explains a failure further."""
    issue, account_id = data["issues"][0], _account(data)
    if issue["stage"] in ("connect_destination", "append"):
        account_id = data["destination_account_id"]
    is_lost = issue["code"] in ("auth_failed", "timeout") or issue["stage"].startswith("connect")
    if is_lost or "mailboxes" in data:
        return _step("See whether the account works", "imap_verify_account", account_id=account_id)
    return _step("See which mailboxes there are", "imap_list_mailboxes", account_id=account_id)


def _tool(
    name: str,
    title: str,
    operation: Operation[Any, Any],
    summarise: Summarise,
    follow: Follow,
    **more: Any,
) -> Tool:
    return Tool(
        name,
        title,
        operation,
        shape_result=partial(shape_result, summarise, follow),
        explain=explain_error,
        add_meta=add_meta,
        shape_schema=shape_schema,
        never_truncated=True,
        is_open_world=True,
        **more,
    )


TOOLS = (
    _tool(
        "imap_list_accounts",
        "List live accounts",
        accounts.list_live_accounts,
        _accounts,
        _after_accounts,
    ),
    _tool(
        "imap_verify_account",
        "Verify a live account",
        accounts.verify_live_account,
        _verification,
        _after_verification,
    ),
    _tool(
        "imap_list_mailboxes",
        "List live mailboxes",
        accounts.list_live_mailboxes,
        _mailboxes,
        _after_mailboxes,
    ),
    _tool(
        "imap_search_messages",
        "Search a live mailbox",
        search.search_live_messages,
        _search,
        _after_search,
    ),
    _tool(
        "imap_get_message",
        "Read a live message",
        reading.get_live_message,
        _message,
        _after_part("Read the source for what is missing", "imap_get_message_raw"),
    ),
    _tool(
        "imap_get_message_raw",
        "Read the source of a live message",
        reading.get_live_message_raw,
        _source,
        _after_part("Read the message instead of its source", "imap_get_message"),
    ),
    _tool(
        "imap_update_message_flags",
        "Flag a live message",
        changes.update_live_flags,
        _flags,
        _after_part("See which flags it has now", "imap_get_message"),
        is_idempotent=True,
    ),
    _tool(
        "imap_copy_message", "Copy a live message", changes.copy_live_message, _copy, _after_change
    ),
    _tool(
        "imap_move_message", "Move a live message", changes.move_live_message, _move, _after_change
    ),
    _tool(
        "imap_delete_message",
        "Delete a live message",
        changes.delete_live_message,
        _deletion,
        _after_change,
    ),
)
