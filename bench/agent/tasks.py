"""Tasks, and those of reading and waiting.

Each has a script for each kind of toolset, and a check of the result.

A script knows only what a user would tell the agent, and the results of its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.agent.mailbox import ME
from bench.agent.session import FinalMailbox, Session
from postroom.model.page import Slice

Script = Callable[[Session], Awaitable[Any]]
Check = Callable[[FinalMailbox, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Task:
    """A task; `contracts` is None if the toolsets of the contracts do not support it."""

    name: str
    agent: Script
    contracts: Script | None
    check: Check


TASKS: list[Task] = []
ALL = Slice(limit=100)


def task(name: str, agent: Script, contracts: Script | None, check: Check) -> None:
    TASKS.append(Task(name, agent, contracts, check))


async def find(s: Session, **arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await s.call("find_mail", **arguments))["results"]
    return rows


async def search(s: Session, **arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await s.call("search_messages", **arguments))["results"]
    return rows


async def _inbox(s: Session, address: str = ME) -> str:
    inboxes = (await s.call("list_inboxes"))["results"]
    return str(next(inbox["id"] for inbox in inboxes if inbox["address"] == address))


def equals(expected: object) -> Check:
    """The result of the script equals this."""

    async def check(_: FinalMailbox, answer: Any) -> None:
        assert answer == expected, f"{answer!r} instead of {expected!r}"

    return check


def contains(part: str) -> Check:
    """The result of the script contains this."""

    async def check(_: FinalMailbox, answer: Any) -> None:
        assert part in answer, f"{part!r} is not in {answer!r}"

    return check


# Reading


async def a_invoice(s: Session) -> Any:
    [row] = await find(s, **{"from": "Acme", "subject": "invoice", "limit": 1})
    read = await s.call("read_mail", ids=[row["attachments"][0]["id"]])
    return read["results"][0]["text"]


async def c_invoice(s: Session) -> Any:
    rows = await search(s, **{"from": "Acme", "q": "invoice"})
    message = await s.call("get_message", message_id=rows[0]["id"])
    file = message["attachments"][0]["id"]
    return (await s.call("get_attachment_content", attachment_id=file, format="text"))["text"]


task("what the newest invoice's PDF says", a_invoice, c_invoice, contains("EUR 2644,12"))


async def a_unread(s: Session) -> Any:
    return (await s.call("find_mail", unread=True))["total"]


async def c_unread(s: Session) -> Any:
    return (await s.call("search_messages", unread=True))["total"]


async def is_unread_count(final: FinalMailbox, answer: Any) -> None:
    unread = [m for m in await final.messages(inbox=ME) if "seen" not in m.flags]
    assert answer == len(unread), f"{answer} of {len(unread)}"


task("how much is unread", a_unread, c_unread, is_unread_count)


async def a_words(s: Session) -> Any:
    rows = await find(s, q="room conference 420")
    return rows[0]["subject"]


async def c_words(s: Session) -> Any:
    rows = await search(s, q="room conference 420", mode="words")
    return rows[0]["subject"]


task("find by words in any order", a_words, c_words, contains("Quote for the conference room"))


async def a_name(s: Session) -> Any:
    return (await s.call("find_mail", **{"from": "Ana Lima"}))["total"]


async def c_name(s: Session) -> Any:
    page = await s.call("search_messages", **{"from": "Ana Lima"})
    if not page["total"]:
        page = await s.call("search_messages", **{"from": "ana.lima"})
    return page["total"]


task("mail of a person by name, of whom only the address is known", a_name, c_name, equals(14))


async def a_thread(s: Session) -> Any:
    rows = await find(s, q="projector")
    thread = await s.call("read_mail", ids=[rows[0]["id"]], thread=True)
    return [line["text"].strip()[:15] for line in thread["results"][0]["messages"]]


async def c_thread(s: Session) -> Any:
    rows = await search(s, q="projector")
    thread = await s.call("get_thread", thread_id=rows[0]["thread_id"])
    return [message["new_text"].strip()[:15] for message in thread["messages"]]


task(
    "read a whole conversation",
    a_thread,
    c_thread,
    equals(["Dear Mia,\n\nthe ", "One more thing:"]),
)


async def a_texts(s: Session) -> Any:
    rows = await find(s, q="build", unread=True, flags=["flagged"], text=True)
    return sorted(row["text"].split(" of ")[0] for row in rows)[:2]


async def c_texts(s: Session) -> Any:
    rows = await search(s, q="build", unread=True, flags=["flagged"])
    read = [await s.call("get_message", message_id=row["id"]) for row in rows]
    return sorted(message["text"].split(" of ")[0] for message in read)[:2]


task("read several mails at once", a_texts, c_texts, equals(["Build 876", "Build 883"]))


async def a_operators(s: Session) -> Any:
    return (await s.call("find_mail", q="from:bob.stone has:attachment after:2020-01-01"))["total"]


async def c_operators(s: Session) -> Any:
    page = await s.call(
        "search_messages",
        **{"from": "bob.stone", "has_attachment": True, "after_date": "2020-01-01"},
    )
    return page["total"]


task("a query with operators", a_operators, c_operators, equals(1))


async def a_oldest(s: Session) -> Any:
    rows = await find(s, **{"from": "Acme", "sort": "oldest", "limit": 1})
    return rows[0]["subject"]


async def c_oldest(s: Session) -> Any:
    rows = await search(s, **{"from": "Acme", "sort": "oldest", "limit": 1})
    return rows[0]["subject"]


task("the oldest mail of a sender", a_oldest, c_oldest, equals("Invoice 2026-001"))


async def a_count(s: Session) -> Any:
    page = await s.call("find_mail", **{"from": "@ci.example", "q": "failed", "limit": 1})
    return page["total"]


async def c_count(s: Session) -> Any:
    page = await s.call("search_messages", **{"from": "@ci.example", "q": "failed", "limit": 1})
    return page["total"]


task("count the failed builds", a_count, c_count, equals(4))


async def a_file(s: Session) -> Any:
    rows = await find(s, q="contract-signed.pdf")
    return rows[0]["attachments"][0]["filename"]


async def c_file(s: Session) -> Any:
    rows = await search(s, q="contract-signed.pdf")
    files = await s.call("list_attachments", message_id=rows[0]["id"])
    return files["results"][0]["filename"]


task("find a file by its name", a_file, c_file, equals("contract-signed.pdf"))


async def a_phishing(s: Session) -> Any:
    rows = await find(s, q="parcel")
    return " ".join(rows[0]["warnings"])


async def c_phishing(s: Session) -> Any:
    rows = await search(s, q="parcel")
    message = await s.call("get_message", message_id=rows[0]["id"])
    return "a reader cannot see" if message["security"].get("hidden_text") else ""


task("is this mail suspicious", a_phishing, c_phishing, contains("a reader cannot see"))


async def a_boxes(s: Session) -> Any:
    boxes = (await s.call("list_mailboxes"))["mailboxes"]
    return next(b["total"] for b in boxes if b["name"] == "Inbox" and b.get("inbox") == ME)


async def c_boxes(s: Session) -> Any:
    return (await s.call("search_messages", inbox_id=ME, mailbox="Inbox", limit=1))["total"]


async def is_inbox_count(final: FinalMailbox, answer: Any) -> None:
    assert answer == len(await final.messages(inbox=ME, mailbox="Inbox"))


task("how full is the mailbox", a_boxes, c_boxes, is_inbox_count)


# Waiting


async def a_code(s: Session) -> Any:
    return (await s.call("wait_for_mail", inbox_id=ME, extract="code"))["extracted"]


async def c_code(s: Session) -> Any:
    return (await s.call("wait_for_message", inbox_id=ME, extract="code"))["extracted"]


task("a code that came 20 s ago", a_code, c_code, equals("493021"))


async def a_link(s: Session) -> Any:
    arrived = await s.call("wait_for_mail", **{"inbox_id": ME, "from": "portal", "extract": "link"})
    return arrived["extracted"]


async def c_link(s: Session) -> Any:
    arrived = await s.call(
        "wait_for_message", **{"inbox_id": ME, "from": "portal", "extract": "link"}
    )
    return arrived["extracted"]


task("a confirmation link", a_link, c_link, contains("confirm?t=8c21d4"))
