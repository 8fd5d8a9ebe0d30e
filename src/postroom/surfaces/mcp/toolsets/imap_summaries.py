"""What answers of contract 002 say in one line, and which tool comes next."""

from __future__ import annotations

from typing import Any

from postroom.surfaces.mcp.tool import Body


def _step(instruction: str, tool: str, **arguments: Any) -> Body:
    return {"instruction": instruction, "tool": tool, "arguments": arguments}


def _why(data: Body) -> str:
    """The first thing that went wrong, in brackets."""
    issues = data.get("issues") or []
    return f" ({issues[0]['message']})" if issues else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# What happened.


def accounts(data: Body) -> str:
    """In words: which accounts there are."""
    return f"{_count(len(data['accounts']), 'account')} configured{_why(data)}"


def verification(data: Body) -> str:
    """In words: whether an account works."""
    if not data["ok"]:
        return f"Account {data['account_id']} does not work{_why(data)}"
    return f"Account {data['account_id']} works, {data['latency_ms']} ms{_why(data)}"


def mailboxes(data: Body) -> str:
    """In words: how many mailboxes there are."""
    if data["status"] == "failed":
        return f"No mailboxes of account {data['account_id']} were listed{_why(data)}"
    return f"{_count(len(data['mailboxes']), 'mailbox').replace('xs', 'xes')}{_why(data)}"


def search(data: Body) -> str:
    """In words: what a search found."""
    where = f"in {data['mailbox']}"
    if data["status"] == "failed":
        return f"The search {where} failed{_why(data)}"
    matches = f"{data['total']} match{'' if data['total'] == 1 else 'es'}"
    failed = f", {data['failed']} of this page failed" if data["failed"] else ""
    return f"{data['returned']} of {matches} {where}{failed}{_why(data)}"


def message(data: Body) -> str:
    """In words: what was read."""
    if data["message"] is None:
        return f"The message was not read{_why(data)}"
    part = "" if data["status"] == "ok" else " in part"
    return f"The message was read{part}{_why(data)}"


def source(data: Body) -> str:
    """In words: how much of a source was read."""
    if data["raw_source_base64"] is None:
        return f"The source was not read{_why(data)}"
    return f"The source of a message of {_count(data['size_bytes'], 'byte')}{_why(data)}"


def flags(data: Body) -> str:
    """In words: which flags were changed."""
    done = [
        word
        for word, is_done in (
            ("added", data["applied_add_flags"]),
            ("removed", data["applied_remove_flags"]),
        )
        if is_done
    ]
    if not done:
        return f"No flag was changed{_why(data)}"
    return f"Flags were {' and '.join(done)}{_why(data)}"


def copy(data: Body) -> str:
    """In words: whether a message was copied."""
    if data["status"] == "failed":
        return f"The message was not copied{_why(data)}"
    return f"The message was copied to {data['destination_mailbox']}{_why(data)}"


def move(data: Body) -> str:
    """In words: whether a message was moved, or how far it got."""
    if data["status"] == "failed":
        return f"The message was not moved{_why(data)}"
    if data["status"] == "partial":
        there, here = data["destination_mailbox"], data["source_mailbox"]
        return f"The message was copied to {there} but is still in {here}{_why(data)}"
    return f"The message was moved to {data['destination_mailbox']}"


def deletion(data: Body) -> str:
    """In words: whether a message was deleted, or how far it got."""
    if data["status"] == "failed":
        return f"The message was not deleted{_why(data)}"
    if data["status"] == "partial":
        return f"The message was flagged as deleted but not removed{_why(data)}"
    return f"The message was deleted from {data['mailbox']}"


# What comes next. Only tools that read are named: they are always there.


def after_accounts(data: Body) -> Body:
    """Look at the mailboxes of the first account."""
    if not data["accounts"]:
        return _step(
            "No account is configured; set MAIL_IMAP_<ACCOUNT>_HOST, _USER and _PASS and restart",
            "imap_list_accounts",
        )
    account_id = data["accounts"][0]["account_id"]
    return _step("List the mailboxes of an account", "imap_list_mailboxes", account_id=account_id)


def after_verification(data: Body) -> Body:
    """Go on to the mailboxes, or try again."""
    account_id = data["account_id"]
    if data["ok"]:
        return _step("List its mailboxes", "imap_list_mailboxes", account_id=account_id)
    return _repair(data, account_id)


def after_mailboxes(data: Body) -> Body:
    """Search the first mailbox, which is INBOX if there is one."""
    account_id = data["account_id"]
    if data["status"] == "failed":
        return _repair(data, account_id)
    first = data["mailboxes"][0]["name"] if data["mailboxes"] else "INBOX"
    where = {"account_id": account_id, "mailbox": first}
    return _step("Search a mailbox", "imap_search_messages", **where)


def after_search(data: Body) -> Body:
    """Go on to the next page, or read the newest message."""
    account_id, mailbox = data["account_id"], data["mailbox"]
    where = {"account_id": account_id, "mailbox": mailbox}
    if data["status"] == "failed":
        return _repair(data, account_id)
    if "next_cursor" in data:
        cursor = data["next_cursor"]
        return _step(
            "Read a message with imap_get_message, or go on to the next page",
            "imap_search_messages",
            **where,
            cursor=cursor,
        )
    if data["messages"]:
        first = data["messages"][0]["message_id"]
        return _step("Read a message", "imap_get_message", message_id=first)
    return _step("Nothing was found; search with other criteria", "imap_search_messages", **where)


def after_reading(data: Body) -> Body | None:
    """What is left out of a message is in its source."""
    if data["status"] != "partial":
        return after_failure(data)
    message_id = data["message"]["message_id"]
    return _step(
        "Read the source for what is missing", "imap_get_message_raw", message_id=message_id
    )


def after_source(data: Body) -> Body | None:
    """What is cut of a source may be read in parts that are made for reading."""
    if data["status"] != "partial":
        return after_failure(data)
    message_id = data["message_id"]
    return _step(
        "Read the message instead of its source", "imap_get_message", message_id=message_id
    )


def after_flags(data: Body) -> Body | None:
    """See which flags a message has in the end."""
    if data["status"] != "partial":
        return after_failure(data)
    message_id = data["message_id"]
    return _step("See which flags it has now", "imap_get_message", message_id=message_id)


def after_change(data: Body) -> Body | None:
    """A message that went half the way is still where it was, or in both places."""
    if data["status"] != "partial":
        return after_failure(data)
    mailbox = data.get("source_mailbox") or data["mailbox"]
    where = {"account_id": _account(data), "mailbox": mailbox}
    return _step("See what is in the mailbox now", "imap_search_messages", **where)


def after_failure(data: Body) -> Body | None:
    """What to do when nothing worked; nothing otherwise."""
    return _repair(data, _account(data)) if data["status"] == "failed" else None


def _account(data: Body) -> str:
    account_id: str = data.get("account_id") or data["source_account_id"]
    return account_id


def _repair(data: Body, account_id: str) -> Body:
    """The tool that tells more about what went wrong."""
    issue = data["issues"][0]
    is_lost = issue["code"] in ("auth_failed", "timeout") or issue["stage"].startswith("connect")
    if is_lost or "mailboxes" in data:
        return _step("See whether the account works", "imap_verify_account", account_id=account_id)
    return _step("See which mailboxes there are", "imap_list_mailboxes", account_id=account_id)
