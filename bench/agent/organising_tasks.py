"""Tasks of organising mail, with rules and memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bench.agent.mailbox import ME
from bench.agent.session import FinalMailbox, Session
from bench.agent.tasks import ALL, equals, find, search, task

NEWS = {"from": "news@shop.example"}


async def _everything(s: Session, **arguments: Any) -> list[str]:
    """The ids of all messages that match, page by page."""
    ids: list[str] = []
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        page = await s.call("search_messages", **arguments, limit=100, offset=len(ids))
        ids += [row["id"] for row in page["results"]]
    return ids


async def _plan_and_apply(s: Session, **arguments: Any) -> dict[str, Any]:
    plan = await s.call("change_mail", **arguments)
    return await s.call("change_mail", plan_id=plan["plan_id"])


async def a_mark_read(s: Session) -> Any:
    return await _plan_and_apply(s, filter={"from": "builds@ci.example"}, add_flags=["seen"])


async def c_mark_read(s: Session) -> Any:
    for row in (await s.call("search_messages", **{"from": "builds@ci.example", "limit": 100}))[
        "results"
    ]:
        flags = sorted({*row.get("flags", ()), "seen"})
        await s.call("update_message", message_id=row["id"], flags=flags)


async def are_builds_read(final: FinalMailbox, _: Any) -> None:
    builds = await final.messages(sender="builds@ci.example")
    assert 30 == len(builds)
    assert all("seen" in m.flags for m in builds)
    assert {m.subject for m in builds if "flagged" in m.flags} == {
        m.subject for m in builds if m.subject.endswith("failed")
    }


task("mark 30 mails read, and keep their flags", a_mark_read, c_mark_read, are_builds_read)


async def a_archive_undo(s: Session) -> Any:
    done = await _plan_and_apply(s, filter=NEWS, mailbox="Archive")
    return await s.call("undo", id=done["undo_id"])


async def c_archive_undo(s: Session) -> Any:
    ids = await _everything(s, **NEWS)
    for message_id in ids:
        await s.call("move_message", message_id=message_id, destination="Archive")
    for message_id in ids:
        await s.call("move_message", message_id=message_id, destination="Inbox")


async def is_news_in_inbox(final: FinalMailbox, _: Any) -> None:
    news = await final.messages(sender="news@shop.example")
    assert 30 == len(news)
    assert {("Inbox",)} == {m.mailboxes for m in news}


task("archive a newsletter and undo it", a_archive_undo, c_archive_undo, is_news_in_inbox)


async def a_archive(s: Session) -> Any:
    return await _plan_and_apply(s, filter=NEWS, mailbox="Archive")


async def c_archive(s: Session) -> Any:
    for message_id in await _everything(s, **NEWS):
        await s.call("move_message", message_id=message_id, destination="Archive")


async def is_news_archived(final: FinalMailbox, _: Any) -> None:
    assert {("Archive",)} == {m.mailboxes for m in await final.messages(sender="news@shop.example")}


task("archive a newsletter", a_archive, c_archive, is_news_archived)


def _between() -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "after_date": f"{now - timedelta(days=100):%Y-%m-%d}",
        "before_date": f"{now - timedelta(days=50):%Y-%m-%d}",
    }


async def a_dates(s: Session) -> Any:
    return await _plan_and_apply(s, filter={**NEWS, **_between()}, trash=True)


async def c_dates(s: Session) -> Any:
    for message_id in await _everything(s, **NEWS, **_between()):
        await s.call("move_message", message_id=message_id, destination="Trash")


async def is_trashed_between(final: FinalMailbox, _: Any) -> None:
    first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in _between().values())
    for m in await final.messages(sender="news@shop.example"):
        assert (first <= m.date < last) == (m.mailboxes == ("Trash",)), m.date


task("delete mail between two dates", a_dates, c_dates, is_trashed_between)


async def a_label(s: Session) -> Any:
    rows = await find(s, q="projector")
    return await s.call("change_mail", ids=[rows[0]["id"]], add_labels=["Venue"])


async def c_label(s: Session) -> Any:
    rows = await search(s, q="projector")
    return await s.call("apply_label", message_ids=[rows[0]["id"]], label="Venue")


async def is_labelled(final: FinalMailbox, _: Any) -> None:
    assert ("Venue",) == (await final.only(q="projector")).labels


task("label a mail", a_label, c_label, is_labelled)


async def a_unlabel(s: Session) -> Any:
    return await _plan_and_apply(s, filter={"labels": ["Trips"]}, remove_labels=["Trips"])


async def c_unlabel(s: Session) -> Any:
    ids = await _everything(s, labels=["Trips"])
    return await s.call("apply_label", message_ids=ids, label="Trips", remove=True)


async def is_label_gone(final: FinalMailbox, _: Any) -> None:
    assert [] == await final.messages(labels=("Trips",))


task("take a label off all mail", a_unlabel, c_unlabel, is_label_gone)


async def a_relabel(s: Session) -> Any:
    return await _plan_and_apply(
        s, filter={"labels": ["Trips"]}, remove_labels=["Trips"], add_labels=["Travel"]
    )


async def c_relabel(s: Session) -> Any:
    ids = await _everything(s, labels=["Trips"])
    await s.call("apply_label", message_ids=ids, label="Travel")
    return await s.call("apply_label", message_ids=ids, label="Trips", remove=True)


async def is_relabelled(final: FinalMailbox, _: Any) -> None:
    assert [] == await final.messages(labels=("Trips",))
    assert 8 == len(await final.messages(labels=("Travel",)))


task("replace a label by another", a_relabel, c_relabel, is_relabelled)


async def a_star(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=1)
    return await s.call("change_mail", ids=[rows[0]["id"]], add_flags=["flagged"])


async def c_star(s: Session) -> Any:
    [row] = await search(s, q="framework contract", limit=1)
    flags = sorted({*row.get("flags", ()), "flagged"})
    return await s.call("update_message", message_id=row["id"], flags=flags)


async def is_starred(final: FinalMailbox, _: Any) -> None:
    assert ("flagged",) == (await final.only(q="framework contract")).flags


task("flag a mail", a_star, c_star, is_starred)


async def a_folder(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=1)
    return await s.call("change_mail", ids=[rows[0]["id"]], mailbox="Contracts/2026")


async def c_folder(s: Session) -> Any:
    [row] = await search(s, q="framework contract", limit=1)
    return await s.call("move_message", message_id=row["id"], destination="Contracts/2026")


async def is_in_folder(final: FinalMailbox, _: Any) -> None:
    assert ("Contracts/2026",) == (await final.only(q="framework contract")).mailboxes


task("move a mail to a new mailbox", a_folder, c_folder, is_in_folder)


async def a_untrash(s: Session) -> Any:
    rows = await find(s, q="framework contract", limit=1)
    done = await s.call("change_mail", ids=[rows[0]["id"]], trash=True)
    return await s.call("undo", id=done["undo_id"])


async def c_untrash(s: Session) -> Any:
    [row] = await search(s, q="framework contract", limit=1)
    await s.call("move_message", message_id=row["id"], destination="Trash")
    return await s.call("move_message", message_id=row["id"], destination="Inbox")


async def is_back(final: FinalMailbox, _: Any) -> None:
    assert ("Inbox",) == (await final.only(q="framework contract")).mailboxes


task("delete a mail and bring it back", a_untrash, c_untrash, is_back)


async def a_unsubscribe(s: Session) -> Any:
    rows = await find(s, **NEWS, limit=1)
    return await s.call("change_mail", ids=[rows[0]["id"]], unsubscribe=True)


async def was_unsubscribed(final: FinalMailbox, _: Any) -> None:
    sent = [m for m in await final.messages(inbox=ME) if m.to_addresses == ("leave@shop.example",)]
    assert ["unsubscribe"] == [m.subject for m in sent]


async def c_unsubscribe(s: Session) -> Any:
    [row] = await search(s, **NEWS, limit=1)
    message = await s.call("get_message", message_id=row["id"])
    to = message["list_unsubscribe"]["mailto"]
    return await s.call(
        "send_message", **{"from": ME, "to": [to], "subject": "unsubscribe", "body_text": ""}
    )


task("unsubscribe from a newsletter", a_unsubscribe, c_unsubscribe, was_unsubscribed)


# Rules

RULE = """
name: Builds
when:
  - from: {equals: builds@ci.example}
then: [{apply_label: CI}, archive]
"""


async def a_rule(s: Session) -> Any:
    made = await s.call("make_rule", yaml=RULE)
    done = await s.call("change_mail", plan_id=made["plan_id"])
    return await s.call("undo", id=done["undo_id"])


async def c_rule(s: Session) -> Any:
    made = await s.call("create_rule", rule_yaml=RULE, dry_run=False)
    plan = await s.call("run_rule_plan", rule_id=made["id"])
    await s.call("apply_rule_plan", plan_id=plan["plan_id"])
    return await s.call("undo_rule_plan", plan_id=plan["plan_id"])


async def is_rule_undone(final: FinalMailbox, _: Any) -> None:
    assert [] == await final.messages(labels=("CI",))
    assert 1 == (await final.ctx.store.rules(final.ctx.visible, ALL)).total


task("make a rule, apply it to old mail, undo that", a_rule, c_rule, is_rule_undone)


async def a_dry_rule(s: Session) -> Any:
    return (await s.call("make_rule", yaml=RULE, dry_run=True))["changed"]


async def c_dry_rule(s: Session) -> Any:
    return (await s.call("create_rule", rule_yaml=RULE))["total_matches"]


task("see what a rule would do", a_dry_rule, c_dry_rule, equals(30))


# Memories


async def a_recall(s: Session) -> Any:
    rows = (await s.call("recall", q="In which format does Dora like her bills?", limit=1))[
        "results"
    ]
    return rows[0]["key"]


async def c_recall(s: Session) -> Any:
    page = await s.call("memory_search", query="In which format does Dora like her bills?", limit=1)
    key = page["results"][0]["key"]
    await s.call("memory_get", key=key)
    return key


task("recall by a paraphrase", a_recall, c_recall, equals("dora/invoices"))


async def a_remember(s: Session) -> Any:
    return (await s.call("remember", key="room/price", text="The room costs 420 EUR a day."))["key"]


async def c_remember(s: Session) -> Any:
    return (await s.call("memory_add", key="room/price", text="The room costs 420 EUR a day."))[
        "key"
    ]


task("remember a fact", a_remember, c_remember, equals("room/price"))


async def a_forget(s: Session) -> Any:
    return (await s.call("forget", key="office/wifi"))["key"]


async def c_forget(s: Session) -> Any:
    return (await s.call("memory_delete", key="office/wifi"))["key"]


task("forget a fact", a_forget, c_forget, equals("office/wifi"))
