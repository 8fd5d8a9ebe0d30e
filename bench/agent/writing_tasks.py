"""Tasks of writing: send, reply, forward, schedule, drafts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bench.agent.mailbox import COLLEAGUE, ME, SUPPORT
from bench.agent.session import FinalMailbox, Session
from bench.agent.tasks import ALL, equals, find, search, task


def _day(days: float) -> str:
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


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


async def was_lunch_sent(final: FinalMailbox, _: Any) -> None:
    for inbox in (COLLEAGUE, SUPPORT):
        assert "At noon?" in (await final.only(inbox=inbox, q="lunch")).text


task("send a mail to two people", a_send, c_send, was_lunch_sent)


async def a_reply(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=3)
    file = rows[0]["attachments"][0]["id"]
    return await s.call(
        "reply_mail", ids=[rows[0]["id"]], body="Thanks, here it is again.",
        attachments=[{"attachment_id": file}],
    )  # fmt: skip


async def c_reply(s: Session) -> Any:
    rows = await search(s, q="framework contract", limit=3)
    files = await s.call("list_attachments", message_id=rows[0]["id"])
    return await s.call(
        "reply_to_message", message_id=rows[0]["id"], body_text="Thanks, here it is again.",
        attachments=[{"attachment_id": files["results"][0]["id"]}],
    )  # fmt: skip


async def was_answered(final: FinalMailbox, _: Any) -> None:
    reply = await final.only(inbox=ME, q="here it is again")
    assert ("bob.stone@partner.example",) == reply.to_addresses
    assert "contract-signed.pdf" == reply.attachments[0].filename
    assert 2 == len([m for m in await final.messages(inbox=ME) if m.thread_id == reply.thread_id])


task("reply in the thread with a file", a_reply, c_reply, was_answered)


async def a_reply_all(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=1)
    return await s.call("reply_mail", ids=[rows[0]["id"]], body="Agreed by all?", all=True)


async def c_reply_all(s: Session) -> Any:
    rows = await search(s, q="framework contract", limit=1)
    return await s.call(
        "reply_to_message", message_id=rows[0]["id"], body_text="Agreed by all?", reply_all=True
    )


async def were_all_answered(final: FinalMailbox, _: Any) -> None:
    reply = await final.only(inbox=ME, q="agreed by all")
    assert {"dora@client.example", "chen@supplier.example"} == set(reply.cc_addresses)


task("reply to all", a_reply_all, c_reply_all, were_all_answered)


async def a_forward(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=1)
    return await s.call("forward_mail", ids=[rows[0]["id"]], to=[COLLEAGUE], body="For your files.")


async def c_forward(s: Session) -> Any:
    rows = await search(s, q="framework contract", limit=1)
    return await s.call(
        "forward_message", message_id=rows[0]["id"], to=[COLLEAGUE], body_text="For your files."
    )


async def was_forwarded(final: FinalMailbox, _: Any) -> None:
    got = await final.only(inbox=COLLEAGUE, q="for your files")
    assert ["contract-signed.pdf"] == [file.filename for file in got.attachments]


task("forward with attachments", a_forward, c_forward, was_forwarded)


async def a_forward_three(s: Session) -> Any:
    rows = await find(s, **{"from": "Acme", "limit": 3})
    return await s.call("forward_mail", ids=[row["id"] for row in rows], to=[COLLEAGUE])


async def c_forward_three(s: Session) -> Any:
    for row in await search(s, **{"from": "Acme", "limit": 3}):
        await s.call("forward_message", message_id=row["id"], to=[COLLEAGUE])


async def were_three_forwarded(final: FinalMailbox, _: Any) -> None:
    got = await final.messages(inbox=COLLEAGUE)
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


async def was_cancelled(final: FinalMailbox, _: Any) -> None:
    assert [] == await final.messages(q="monday")
    drafts = await final.ctx.store.drafts(final.ctx.visible, None, ALL)
    assert ["Monday"] == [draft.arguments["subject"] for draft in drafts.rows]


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
    rows = await find(s, q="quote conference room", limit=1)
    return await s.call("reply_mail", ids=[rows[0]["id"]], body="We take it.", draft=True)


async def c_draft(s: Session) -> Any:
    rows = await search(s, q="projector", limit=1)
    return await s.call("create_draft", in_reply_to=rows[0]["id"], body_text="We take it.")


async def is_draft_there(final: FinalMailbox, _: Any) -> None:
    drafts = await final.ctx.store.drafts(final.ctx.visible, None, ALL)
    assert ["We take it."] == [draft.arguments["body_text"] for draft in drafts.rows]
    assert [] == await final.messages(q="we take it")


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


async def was_version_two_sent(final: FinalMailbox, _: Any) -> None:
    assert "version two" in (await final.only(inbox=COLLEAGUE, q="plan")).text


task("change a draft and send it", a_edit_draft, c_edit_draft, was_version_two_sent)


async def a_attach(s: Session) -> Any:
    rows = await find(s, **{"from": "Acme", "limit": 2})
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
    for row in await search(s, **{"from": "Acme", "limit": 2}):
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


async def were_files_sent(final: FinalMailbox, _: Any) -> None:
    assert 2 == len((await final.only(inbox=COLLEAGUE, q="two invoices")).attachments)


task("send files of two other mails", a_attach, c_attach, were_files_sent)
