"""Finding and reading with the toolset `agent`: what is not found, not shown or too long."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.conftest import Agent
from tests.surfaces.mcp.test_agent import lean
from tests.surfaces.mcp.test_agent_habits import subjects

__all__ = ["lean"]

NUMBERS = " ".join(str(number) for number in range(5_000))


@pytest.mark.parametrize(
    "asked",
    [
        {"labels": "Work"},
        {"flags": "starred"},
        {"flags": ["important"]},
        {"labels": "work", "flags": "flagged"},
    ],
)
async def test_a_single_label_or_flag_needs_no_list(
    lean: Agent, ctx: RequestContext, inbox: Inbox, asked: dict[str, Any]
):
    for subject in ("One", "Two"):
        await deliver(ctx, inbox, mail(subject, to=inbox.address))
    rows = (await lean.call("find_mail", q="One"))["results"]
    await lean.call("change_mail", ids=rows[0]["id"], add_labels="Work", add_flags="starred")

    plan = await lean.call("change_mail", filter=asked, add_flags="read")

    assert ["One"] == await subjects(lean, **asked)
    assert 1 == plan["changed"]


async def test_an_empty_label_filters_nothing(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("One", to=inbox.address))

    assert ["One"] == await subjects(lean, labels="", flags="")


@pytest.mark.parametrize("asked", [{"q": "party"}, {"q": "birthday cake"}, {"from": "ana"}])
async def test_a_hint_says_that_it_is_in_trash(
    lean: Agent, ctx: RequestContext, inbox: Inbox, asked: dict[str, Any]
):
    await deliver(ctx, inbox, mail("Birthday party", "Bring cake.", to=inbox.address))
    await deliver(ctx, inbox, mail("Cake", "Recipe.", sender="bo@x.example", to=inbox.address))
    [row] = (await lean.call("find_mail", q="Birthday"))["results"]
    await lean.call("change_mail", ids=[row["id"]], trash=True)

    found = await lean.call("find_mail", **asked)

    assert (0, []) == (found["total"], found["results"])
    assert "1 in Trash or Junk; mailbox=* finds them" == found["hint"]
    assert ["Birthday party"] == await subjects(lean, **asked, mailbox="*")


@pytest.mark.parametrize("name", ["from", "to"])
async def test_an_address_is_found_as_rows_show_it(
    lean: Agent, ctx: RequestContext, inbox: Inbox, name: str
):
    people = {"from": "sender", "to": "cc"}
    hers = {people[name]: '"Lima, Ana" <ana@x.example>'}
    await deliver(ctx, inbox, mail("Hers", to=inbox.address, **hers))
    await deliver(ctx, inbox, mail("Other", to=inbox.address, sender="Ana Lima <b@x.example>"))

    for written in ("Ana Lima <ana@x.example>", "<ANA@x.example>", "Lima, Ana  <ana@x.example> "):
        assert ["Hers"] == await subjects(lean, **{name: written})
        assert ["Hers"] == await subjects(lean, q=f'{name}:"{written}"')


async def test_a_long_mail_that_was_waited_for_is_read_on(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    await deliver(ctx, inbox, mail("Long", NUMBERS, to=inbox.address))

    line = (await lean.call("wait_for_mail", since=-60))["message"]
    text, offset = line["text"], line["next_offset"]
    while offset is not None:
        [part] = (await lean.call("read_mail", ids=[line["id"]], offset=offset))["results"]
        text, offset = text + part["text"], part.get("next_offset")

    assert NUMBERS == text.strip()


async def _long_thread(ctx: RequestContext, inbox: Inbox, length: int) -> str:
    for number in range(length):
        parents = {"in_reply_to": "<0@x.example>", "references": ["<0@x.example>"]}
        given = parents if number else {}
        text = f"No {number}"
        raw = mail("Long talk", text, to=inbox.address, message_id=f"<{number}@x.example>", **given)
        added = await deliver(ctx, inbox, raw)
    return added.thread_id


@pytest.mark.parametrize("by_message", [False, True])
async def test_a_long_thread_is_read_in_parts(
    lean: Agent, ctx: RequestContext, inbox: Inbox, by_message: bool
):
    thread_id = await _long_thread(ctx, inbox, 45)
    [row] = (await lean.call("find_mail", limit=1))["results"]
    asked: dict[str, Any] = (
        {"ids": [row["id"]], "thread": True} if by_message else {"ids": thread_id}
    )

    texts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        [part] = (await lean.call("read_mail", **asked, offset=offset))["results"]
        texts = [line["text"] for line in part["messages"]] + texts
        assert part.get("earlier", 0) == 45 - len(texts)
        offset = part.get("next_offset")

    assert [f"No {number}" for number in range(45)] == texts


async def test_a_thread_is_changed_whatever_its_length(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    thread_id = await _long_thread(ctx, inbox, 103)

    done = await lean.call("change_mail", ids=[thread_id, "thr_none"], add_flags=["seen"])

    assert ("partial", 103) == (done["status"], done["changed"])
    assert ["thr_none"] == [failed["id"] for failed in done["failed"]]
    assert 0 == (await lean.call("find_mail", unread=True))["total"]


@pytest.mark.parametrize(
    "q",
    ["invoic*", "invoice,", "(invoice)", "invoic* acm*", "invoice AND acme", "acme: invoice?"],
)
async def test_punctuation_and_wildcards_do_not_hide_a_match(
    lean: Agent, ctx: RequestContext, inbox: Inbox, q: str
):
    await deliver(ctx, inbox, mail("Invoice 7", "From Acme.", to=inbox.address))
    await deliver(ctx, inbox, mail("Lunch", "At noon.", to=inbox.address))

    found = await lean.call("find_mail", q=q)

    assert ["Invoice 7"] == [row["subject"] for row in found["results"]]
    assert "these have" in found["hint"]


async def test_a_single_word_without_a_match_finds_nothing(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    await deliver(ctx, inbox, mail("Lunch", "At noon.", to=inbox.address))

    found = await lean.call("find_mail", q="invoice")

    assert (0, []) == (found["total"], found["results"])


async def test_operators_may_say_me(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Hers", sender="me-too@example.com", to=inbox.address))
    await lean.call("send_mail", to=["zoe@x.example"], subject="Mine", body="Hi")

    assert ["Mine"] == await subjects(lean, q="from:me")
    assert ["Hers"] == await subjects(lean, q="from:me-too@example.com to:me")


async def test_older_and_newer_are_dates(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("March", to=inbox.address))

    assert ["March"] == await subjects(lean, q="newer:2026-02-28 older:2026/03/02")
    assert [] == await subjects(lean, q="older:2026-02-28")


async def test_the_mailboxes_of_many_inboxes_are_listed(lean: Agent, ctx: RequestContext):
    inboxes = [await new_inbox(ctx, f"agent{number:03}") for number in range(102)]
    for inbox in (inboxes[0], inboxes[30], inboxes[-1]):
        await deliver(ctx, inbox, mail("Hello", to=inbox.address))

    listed = await lean.call("list_mailboxes")
    one = await lean.call("list_mailboxes", inbox_id=inboxes[-1].address)

    expected = [inboxes[0].address, inboxes[30].address, inboxes[-1].address]
    assert expected == [box["inbox"] for box in listed["mailboxes"]]
    assert 100 == len(listed["inboxes"])
    assert "inbox_id" in listed["hint"]
    assert ([inboxes[-1].address], None) == (one["inboxes"], one.get("hint"))


async def test_a_long_list_of_drafts_says_how_to_see_more(lean: Agent, inbox: Inbox):
    for number in range(3):
        await lean.call("send_mail", to=["zoe@x.example"], body=f"{number}", draft=True)

    some = await lean.call("list_outgoing", limit=2)
    every = await lean.call("list_outgoing", limit=3)

    assert (3, 2, "limit shows up to 100") == (some["total"], len(some["results"]), some["hint"])
    assert (3, None) == (len(every["results"]), every.get("hint"))


async def test_a_long_memory_is_recalled_in_parts(lean: Agent):
    for number in range(5):
        await lean.call("remember", key=f"pump/{number}", text=f"Pump {number}: {NUMBERS}")

    some = await lean.call("recall", q="pump")
    text, offset = "", 0
    while offset is not None:
        [part] = (await lean.call("recall", key="pump/3", offset=offset))["results"]
        text, offset = text + part["text"], part.get("next_offset")
    error = await lean.fail("recall", q="pump", offset=10)

    assert 40_000 > len(str(some))
    assert all(line["next_offset"] == len(line["text"]) for line in some["results"])
    assert "offset" in some["note"]
    assert f"Pump 3: {NUMBERS}" == text
    assert "give its key" in error["message"]
