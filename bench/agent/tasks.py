"""Forty tasks of a day's work: a script for each kind of toolset, and what must be so afterwards.

A script knows only what a person would tell the agent, and what the tools answered so far.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.agent.mailbox import COLLEAGUE, ME, SUPPORT
from bench.agent.session import Session, World

Script = Callable[[Session], Awaitable[Any]]
Check = Callable[[World, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Task:
    """What to do; `contracts` is None if the toolsets of the contracts cannot do it."""

    name: str
    agent: Script
    contracts: Script | None
    check: Check


TASKS: list[Task] = []


def task(name: str, agent: Script, contracts: Script | None, check: Check) -> None:
    TASKS.append(Task(name, agent, contracts, check))


def _day(days: float) -> str:
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


async def _found(s: Session, **arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await s.call("find_mail", **arguments))["results"]
    return rows


async def _searched(s: Session, **arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await s.call("search_messages", **arguments))["results"]
    return rows


async def _inbox(s: Session, address: str = ME) -> str:
    inboxes = (await s.call("list_inboxes"))["results"]
    return str(next(inbox["id"] for inbox in inboxes if inbox["address"] == address))


def equals(expected: object) -> Check:
    """The answer of the script is this."""

    async def check(_: World, answer: Any) -> None:
        assert answer == expected, f"{answer!r} instead of {expected!r}"

    return check


def contains(part: str) -> Check:
    """The answer of the script contains this."""

    async def check(_: World, answer: Any) -> None:
        assert part in answer, f"{part!r} is not in {answer!r}"

    return check


# Reading


async def a_invoice(s: Session) -> Any:
    [row] = await _found(s, **{"from": "Acme", "subject": "invoice", "limit": 1})
    read = await s.call("read_mail", ids=[row["attachments"][0]["id"]])
    return read["results"][0]["text"]


async def c_invoice(s: Session) -> Any:
    rows = await _searched(s, **{"from": "Acme", "q": "invoice"})
    message = await s.call("get_message", message_id=rows[0]["id"])
    file = message["attachments"][0]["id"]
    return (await s.call("get_attachment_content", attachment_id=file, format="text"))["text"]


task("what the newest invoice's PDF says", a_invoice, c_invoice, contains("EUR 2644,12"))


async def a_unread(s: Session) -> Any:
    return (await s.call("find_mail", unread=True))["total"]


async def c_unread(s: Session) -> Any:
    return (await s.call("search_messages", unread=True))["total"]


async def is_unread_count(world: World, answer: Any) -> None:
    unread = [m for m in await world.messages(inbox=ME) if "seen" not in m.flags]
    assert answer == len(unread), f"{answer} of {len(unread)}"


task("how much is unread", a_unread, c_unread, is_unread_count)


async def a_words(s: Session) -> Any:
    rows = await _found(s, q="room conference 420")
    return rows[0]["subject"]


async def c_words(s: Session) -> Any:
    rows = await _searched(s, q="room conference 420", mode="words")
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
    rows = await _found(s, q="projector")
    thread = await s.call("read_mail", ids=[rows[0]["id"]], thread=True)
    return [line["text"].strip()[:15] for line in thread["results"][0]["messages"]]


async def c_thread(s: Session) -> Any:
    rows = await _searched(s, q="projector")
    thread = await s.call("get_thread", thread_id=rows[0]["thread_id"])
    return [message["new_text"].strip()[:15] for message in thread["messages"]]


task(
    "read a whole conversation",
    a_thread,
    c_thread,
    equals(["Dear Mia,\n\nthe ", "One more thing:"]),
)


async def a_texts(s: Session) -> Any:
    rows = await _found(s, q="build", unread=True, flags=["flagged"], text=True)
    return sorted(row["text"].split(" of ")[0] for row in rows)[:2]


async def c_texts(s: Session) -> Any:
    rows = await _searched(s, q="build", unread=True, flags=["flagged"])
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
    rows = await _found(s, **{"from": "Acme", "sort": "oldest", "limit": 1})
    return rows[0]["subject"]


async def c_oldest(s: Session) -> Any:
    rows = await _searched(s, **{"from": "Acme", "sort": "oldest", "limit": 1})
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
    rows = await _found(s, q="contract-signed.pdf")
    return rows[0]["attachments"][0]["filename"]


async def c_file(s: Session) -> Any:
    rows = await _searched(s, q="contract-signed.pdf")
    files = await s.call("list_attachments", message_id=rows[0]["id"])
    return files["results"][0]["filename"]


task("find a file by its name", a_file, c_file, equals("contract-signed.pdf"))


async def a_phishing(s: Session) -> Any:
    rows = await _found(s, q="parcel")
    return " ".join(rows[0]["warnings"])


async def c_phishing(s: Session) -> Any:
    rows = await _searched(s, q="parcel")
    message = await s.call("get_message", message_id=rows[0]["id"])
    return "a reader cannot see" if message["security"].get("hidden_text") else ""


task("is this mail suspicious", a_phishing, c_phishing, contains("a reader cannot see"))


async def a_boxes(s: Session) -> Any:
    boxes = (await s.call("list_mailboxes"))["mailboxes"]
    return next(b["total"] for b in boxes if b["name"] == "Inbox" and b.get("inbox") == ME)


async def c_boxes(s: Session) -> Any:
    return (await s.call("search_messages", inbox_id=ME, mailbox="Inbox", limit=1))["total"]


async def is_inbox_count(world: World, answer: Any) -> None:
    assert answer == len(await world.messages(inbox=ME, mailbox="Inbox"))


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


# Writing


async def a_send(s: Session) -> Any:
    return await s.call(
        "send_mail",
        **{"from": ME, "to": [COLLEAGUE], "cc": [SUPPORT], "subject": "Lunch", "body": "At noon?"},
    )


async def c_send(s: Session) -> Any:
    return await s.call(
        "send_message",
        **{
            "from": ME,
            "to": [COLLEAGUE],
            "cc": [SUPPORT],
            "subject": "Lunch",
            "body_text": "At noon?",
        },
    )


async def was_lunch_sent(world: World, _: Any) -> None:
    for inbox in (COLLEAGUE, SUPPORT):
        assert "At noon?" in (await world.only(inbox=inbox, q="lunch")).text


task("send a mail to two people", a_send, c_send, was_lunch_sent)


async def a_reply(s: Session) -> Any:
    rows = await _found(s, q="framework contract", limit=3)
    file = rows[0]["attachments"][0]["id"]
    return await s.call(
        "reply_mail", ids=[rows[0]["id"]], body="Thanks, here it is again.",
        attachments=[{"attachment_id": file}],
    )  # fmt: skip


async def c_reply(s: Session) -> Any:
    rows = await _searched(s, q="framework contract", limit=3)
    files = await s.call("list_attachments", message_id=rows[0]["id"])
    return await s.call(
        "reply_to_message", message_id=rows[0]["id"], body_text="Thanks, here it is again.",
        attachments=[{"attachment_id": files["results"][0]["id"]}],
    )  # fmt: skip


async def was_answered(world: World, _: Any) -> None:
    reply = await world.only(inbox=ME, q="here it is again")
    assert ("bob.stone@partner.example",) == reply.to_addresses
    assert "contract-signed.pdf" == reply.attachments[0].filename
    assert 2 == len([m for m in await world.messages(inbox=ME) if m.thread_id == reply.thread_id])


task("reply in the thread with a file", a_reply, c_reply, was_answered)


async def a_reply_all(s: Session) -> Any:
    rows = await _found(s, q="framework contract", limit=1)
    return await s.call("reply_mail", ids=[rows[0]["id"]], body="Agreed by all?", all=True)


async def c_reply_all(s: Session) -> Any:
    rows = await _searched(s, q="framework contract", limit=1)
    return await s.call(
        "reply_to_message", message_id=rows[0]["id"], body_text="Agreed by all?", reply_all=True
    )


async def were_all_answered(world: World, _: Any) -> None:
    reply = await world.only(inbox=ME, q="agreed by all")
    assert {"dora@client.example", "chen@supplier.example"} == set(reply.cc_addresses)


task("reply to all", a_reply_all, c_reply_all, were_all_answered)


async def a_forward(s: Session) -> Any:
    rows = await _found(s, q="framework contract", limit=1)
    return await s.call("forward_mail", ids=[rows[0]["id"]], to=[COLLEAGUE], body="For your files.")


async def c_forward(s: Session) -> Any:
    rows = await _searched(s, q="framework contract", limit=1)
    return await s.call(
        "forward_message", message_id=rows[0]["id"], to=[COLLEAGUE], body_text="For your files."
    )


async def was_forwarded(world: World, _: Any) -> None:
    got = await world.only(inbox=COLLEAGUE, q="for your files")
    assert ["contract-signed.pdf"] == [file.filename for file in got.attachments]


task("forward with attachments", a_forward, c_forward, was_forwarded)


async def a_forward_three(s: Session) -> Any:
    rows = await _found(s, **{"from": "Acme", "limit": 3})
    return await s.call("forward_mail", ids=[row["id"] for row in rows], to=[COLLEAGUE])


async def c_forward_three(s: Session) -> Any:
    for row in await _searched(s, **{"from": "Acme", "limit": 3}):
        await s.call("forward_message", message_id=row["id"], to=[COLLEAGUE])


async def were_three_forwarded(world: World, _: Any) -> None:
    got = await world.messages(inbox=COLLEAGUE)
    assert {f"Fwd: Invoice 2026-0{number}" for number in (10, 11, 12)} == {m.subject for m in got}


task("forward the last three invoices", a_forward_three, c_forward_three, were_three_forwarded)


async def a_schedule(s: Session) -> Any:
    sent = await s.call(
        "send_mail",
        **{"from": ME, "to": [COLLEAGUE], "subject": "Monday", "body": "Hi", "send_at": _day(2)},
    )
    return await s.call("undo", id=sent["id"])


async def c_schedule(s: Session) -> Any:
    sent = await s.call(
        "send_message",
        **{
            "from": ME,
            "to": [COLLEAGUE],
            "subject": "Monday",
            "body_text": "Hi",
            "send_at": _day(2),
        },
    )
    return await s.call("cancel_message", message_id=sent["message_id"])


async def was_cancelled(world: World, _: Any) -> None:
    assert [] == await world.messages(q="monday")
    drafts = await world.ctx.store.drafts(world.ctx.visible, None, _slice())
    assert ["Monday"] == [draft.arguments["subject"] for draft in drafts.rows]


def _slice() -> Any:
    from postroom.model.page import Slice

    return Slice(limit=100)


task("schedule a mail and take it back", a_schedule, c_schedule, was_cancelled)


async def a_scheduled(s: Session) -> Any:
    for number in (1, 2):
        await s.call(
            "send_mail",
            **{
                "from": ME,
                "to": [COLLEAGUE],
                "subject": f"Later {number}",
                "body": "Hi",
                "send_at": _day(3),
            },
        )
    rows = (await s.call("list_outgoing"))["results"]
    return sorted(f"{row['subject']} {row['status']}" for row in rows)


async def c_scheduled(s: Session) -> Any:
    for number in (1, 2):
        await s.call(
            "send_message",
            **{
                "from": ME,
                "to": [COLLEAGUE],
                "subject": f"Later {number}",
                "body_text": "Hi",
                "send_at": _day(3),
            },
        )
    rows = (await s.call("list_messages", inbox_id=ME, mailbox="Outbox"))["results"]
    return sorted(f"{row['subject']} {row['status']}" for row in rows)


task(
    "schedule two and list them",
    a_scheduled,
    c_scheduled,
    equals(["Later 1 scheduled", "Later 2 scheduled"]),
)


async def a_draft(s: Session) -> Any:
    rows = await _found(s, q="quote conference room", limit=1)
    return await s.call("reply_mail", ids=[rows[0]["id"]], body="We take it.", draft=True)


async def c_draft(s: Session) -> Any:
    rows = await _searched(s, q="projector", limit=1)
    return await s.call("create_draft", in_reply_to=rows[0]["id"], body_text="We take it.")


async def is_draft_there(world: World, _: Any) -> None:
    drafts = await world.ctx.store.drafts(world.ctx.visible, None, _slice())
    assert ["We take it."] == [draft.arguments["body_text"] for draft in drafts.rows]
    assert [] == await world.messages(q="we take it")


task("write a draft for a person to approve", a_draft, c_draft, is_draft_there)


async def a_edit_draft(s: Session) -> Any:
    made = await s.call(
        "send_mail",
        **{"from": ME, "to": [COLLEAGUE], "subject": "Plan", "body": "v1", "draft": True},
    )
    return await s.call("send_mail", draft_id=made["id"], body="version two")


async def c_edit_draft(s: Session) -> Any:
    await s.call(
        "create_draft", **{"from": ME, "to": [COLLEAGUE], "subject": "Plan", "body_text": "v1"}
    )
    return await s.call(
        "send_message",
        **{"from": ME, "to": [COLLEAGUE], "subject": "Plan", "body_text": "version two"},
    )


async def was_version_two_sent(world: World, _: Any) -> None:
    assert "version two" in (await world.only(inbox=COLLEAGUE, q="plan")).text


task("change a draft and send it", a_edit_draft, c_edit_draft, was_version_two_sent)


async def a_attach(s: Session) -> Any:
    rows = await _found(s, **{"from": "Acme", "limit": 2})
    files = [{"attachment_id": row["attachments"][0]["id"]} for row in rows]
    return await s.call(
        "send_mail",
        **{
            "from": ME,
            "to": [COLLEAGUE],
            "subject": "Two invoices",
            "body": "Both",
            "attachments": files,
        },
    )


async def c_attach(s: Session) -> Any:
    files = []
    for row in await _searched(s, **{"from": "Acme", "limit": 2}):
        found = await s.call("list_attachments", message_id=row["id"])
        files.append({"attachment_id": found["results"][0]["id"]})
    return await s.call(
        "send_message",
        **{
            "from": ME,
            "to": [COLLEAGUE],
            "subject": "Two invoices",
            "body_text": "Both",
            "attachments": files,
        },
    )


async def were_files_sent(world: World, _: Any) -> None:
    assert 2 == len((await world.only(inbox=COLLEAGUE, q="two invoices")).attachments)


task("send files of two other mails", a_attach, c_attach, were_files_sent)
