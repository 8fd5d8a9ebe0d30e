"""The toolset `agent` accepts calls in the forms that models write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from postroom.surfaces.mcp.agent_tools import ARGUMENT_OF, TOOL_OF
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.conftest import Agent
from tests.surfaces.mcp.test_agent import lean

__all__ = ["lean"]


async def subjects(lean: Agent, **arguments: Any) -> list[str]:
    return [row["subject"] for row in (await lean.call("find_mail", **arguments))["results"]]


@pytest.mark.parametrize(
    "sender", ["ana.lima@example.com", "Ana Lima <x@example.com>", "Lima, Ana <x@example.com>"]
)
@pytest.mark.parametrize("asked", [{"from": "Ana Lima"}, {"q": 'from:"ana lima"'}])
async def test_a_name_matches_a_display_name(
    lean: Agent, ctx: RequestContext, inbox: Inbox, sender: str, asked: dict[str, str]
):
    await deliver(ctx, inbox, mail("Hers", sender=sender, to=inbox.address))
    await deliver(ctx, inbox, mail("Also", sender="Ana Lima <a@b.example>", to=inbox.address))
    await deliver(ctx, inbox, mail("Other", sender="Ana Rossi <r@b.example>", to=inbox.address))

    assert {"Hers", "Also"} == set(await subjects(lean, **asked))


async def test_a_recipient_is_found_by_name(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Hers", to=inbox.address, cc="ana.lima@example.com"))
    await deliver(ctx, inbox, mail("Other", to=inbox.address))

    assert ["Hers"] == await subjects(lean, to="Ana Lima")


async def test_waiting_finds_a_name_too(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Code", "code: 493021", sender="ana.lima@example.com"))

    waited = await lean.call("wait_for_mail", **{"from": "Ana Lima", "extract": "code"})

    assert "493021" == waited["extracted"]


async def test_a_sentence_finds_the_best_matches(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Birthday party", "Cake at six.", sender="lily@example.com"))
    await deliver(ctx, inbox, mail("Invoice", "Please pay.", sender="bo@example.com"))

    found = await lean.call("find_mail", q="celebrating with lily and her cake", limit=1)

    assert ["Birthday party"] == [row["subject"] for row in found["results"]]
    assert 0 == found["total"]
    assert "these are closest" in found["hint"]


@pytest.mark.parametrize(
    "q", ["latest email from Ana about the website", "who sent the website?", "Ana's website, ana"]
)
async def test_the_significant_words_are_enough(
    lean: Agent, ctx: RequestContext, inbox: Inbox, q: str
):
    for number in range(12):
        await deliver(ctx, inbox, mail(f"News {number}", sender="Ana <ana@example.com>"))
    await deliver(ctx, inbox, mail("Website", sender="Ana <ana@example.com>"))

    found = await lean.call("find_mail", q=q)

    assert "Website" == found["results"][0]["subject"]
    assert found["hint"].startswith("no message has all of these words; these ")


@pytest.mark.parametrize("q", ["-from:ana", "is:unread OR is:read", "larger:5M"])
async def test_unknown_syntax_is_reported(lean: Agent, ctx: RequestContext, inbox: Inbox, q: str):
    await deliver(ctx, inbox, mail("One", to=inbox.address))

    found = await lean.call("find_mail", q=q)

    assert " in q is ordinary text" in found["hint"]
    assert found["hint"].split()[0] in q.split()


async def test_a_common_inbox_of_all_rows_is_named_once(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    other = await new_inbox(ctx, "other")
    await deliver(ctx, inbox, mail("One", to=inbox.address))
    await deliver(ctx, other, mail("Two", to=other.address))

    one = await lean.call("find_mail", q="one")
    both = await lean.call("find_mail")

    assert inbox.address == one["inbox"]
    assert "inbox" not in one["results"][0]
    assert {inbox.address, other.address} == {row["inbox"] for row in both["results"]}


@pytest.mark.parametrize("flags", ["read", ["read", "starred"], "seen"])
async def test_flags_have_the_names_of_other_programs(
    lean: Agent, ctx: RequestContext, inbox: Inbox, flags: Any
):
    await deliver(ctx, inbox, mail("One", to=inbox.address))
    [row] = (await lean.call("find_mail"))["results"]

    await lean.call("change_mail", ids=row["id"], add_flags=flags, add_labels="Work")

    [changed] = (await lean.call("find_mail", unread=False))["results"]
    assert ["Work"] == changed["labels"]


async def test_a_plan_of_nothing_says_so(lean: Agent, inbox: Inbox):
    plan = await lean.call("change_mail", filter={"q": "nothing"}, trash=True)

    assert {
        "untrusted": True,
        "status": "planned",
        "changed": 0,
        "note": "no message matches",
    } == plan


@pytest.mark.parametrize("after", ["7d", "yesterday", "2w"])
async def test_a_date_may_be_relative(lean: Agent, ctx: RequestContext, inbox: Inbox, after: str):
    now = datetime.now(UTC)
    for days in (0, 20):
        await deliver(ctx, inbox, mail(f"{days} days old", date=now - timedelta(days=days)))

    assert ["0 days old"] == await subjects(lean, after_date=after)


async def test_a_list_continues_by_offset(lean: Agent, ctx: RequestContext, inbox: Inbox):
    for number in range(12):
        await deliver(ctx, inbox, mail(f"Mail {number}", to=inbox.address))

    first, second = await lean.call("find_mail"), await lean.call("find_mail", offset=10)

    assert {"untrusted", "total", "results"} == set(first)
    assert (12, 10, 2) == (first["total"], len(first["results"]), len(second["results"]))
    subjects = {row["subject"] for page in (first, second) for row in page["results"]}
    assert 12 == len(subjects)


async def test_exact_arguments_are_not_replaced_by_guesses(lean: Agent, inbox: Inbox, ctx):
    await deliver(ctx, inbox, mail("Birthday party", to=inbox.address))

    found = await lean.call("find_mail", q="birthday of lily", mode="words")

    assert [] == found["results"]
    assert "mode=hybrid" in found["hint"]


@pytest.mark.parametrize("q", ["Hiking", "hiking mark", "mark.davies"])
async def test_a_snippet_never_repeats_subject_or_sender(
    lean: Agent, ctx: RequestContext, inbox: Inbox, q: str
):
    raw = mail("Hiking Trip", "See you at eight.", sender="mark.davies@example.com")
    await deliver(ctx, inbox, raw)

    [row] = (await lean.call("find_mail", q=q))["results"]

    assert "See you at eight." == row["snippet"]


async def test_a_snippet_shows_a_match_further_down(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Hiking", "Hello. " * 100 + "Bring snacks."))

    [row] = (await lean.call("find_mail", q="snacks"))["results"]

    assert "Bring snacks." in row["snippet"]


@pytest.mark.parametrize(
    "filter_",
    [
        {"q": "from:news@shop.example is:unread"},
        "from:news@shop.example is:unread",
        {"q": "week offers"},
        {"from": "Shop News"},
    ],
)
async def test_a_bulk_change_has_the_filter_of_find_mail(
    lean: Agent, ctx: RequestContext, inbox: Inbox, filter_: Any
):
    sender = "Shop News <news@shop.example>"
    await deliver(ctx, inbox, mail("News", "offers of the week", sender=sender))
    await deliver(ctx, inbox, mail("Other", sender="bo@example.com"))

    plan = await lean.call("change_mail", filter=filter_, trash=True)
    await lean.call("change_mail", plan_id=plan["plan_id"])

    assert 1 == plan["changed"]
    assert ["Other"] == await subjects(lean)


async def test_a_filter_names_an_inbox_by_its_address(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    other = await new_inbox(ctx, "other")
    for one in (inbox, other):
        await deliver(ctx, one, mail("News", to=one.address))

    plan = await lean.call("change_mail", filter={"inbox_id": other.address}, trash=True)

    assert 1 == plan["changed"]


async def test_a_single_id_needs_no_list(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("One", "Text.", to=inbox.address))
    [row] = (await lean.call("find_mail"))["results"]

    read = await lean.call("read_mail", ids=row["id"])
    replied = await lean.call("reply_mail", ids=row["id"], body="Thanks")
    done = await lean.call("change_mail", ids=row["id"], trash=True)

    assert "Text." == read["results"][0]["text"]
    assert 1 == len(replied["results"]) == done["changed"]


async def test_a_message_names_its_thread(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Quote", "First.", message_id="<1@x.example>"))
    second = mail("Re: Quote", "Second.", message_id="<2@x.example>", in_reply_to="<1@x.example>")
    await deliver(ctx, inbox, second)
    rows = (await lean.call("find_mail"))["results"]

    read = await lean.call("read_mail", ids=[row["id"] for row in rows], thread=True)

    [thread] = read["results"]
    assert ["First.", "Second."] == [line["text"] for line in thread["messages"]]


@pytest.mark.parametrize(
    ("tool", "arguments", "advice"),
    [
        ("read_mail", {"ids": ["att_none"]}, "find_mail shows the existing ones"),
        ("find_mail", {"inbox_id": "inb_none"}, "list_mailboxes shows those you may use"),
        ("change_mail", {"plan_id": "pln_none"}, "make_rule makes a new one"),
        ("recall", {"key": "none"}, "recall shows the existing ones"),
        ("read_mail", {"ids": ["pln_none"]}, "pln_none is not a msg_ id; use change_mail for it"),
    ],
)
async def test_advice_names_a_tool_of_this_toolset(
    lean: Agent, inbox: Inbox, tool: str, arguments: dict[str, Any], advice: str
):
    error = await lean.fail(tool, **arguments)

    assert advice in error["message"]


async def test_an_error_names_an_argument_of_this_toolset(lean: Agent, inbox: Inbox):
    error = await lean.fail("make_rule", yaml="name: x\nwhen: []\nthen: [archive]\n")

    assert error["message"].startswith("yaml: line 2")


async def test_an_error_is_stated_once(lean: Agent, inbox: Inbox):
    error = await lean.fail("find_mail", is_unread=True)

    assert "is_unread: unknown argument; did you mean unread?" == error["message"]
    assert {"kind": "invalid_input"} == error["details"]


async def test_several_inboxes_are_offered_as_from(lean: Agent, ctx: RequestContext, inbox: Inbox):
    other = await new_inbox(ctx, "other")

    error = await lean.fail("send_mail", to=["bo@example.com"], body="Hi")

    expected = f"from: there are several inboxes; name one of {inbox.address}, {other.address}"
    assert expected == error["message"]


@pytest.mark.parametrize("name", ["Ana Lima", "ana", "LIMA"])
async def test_a_name_in_place_of_an_address_is_refused_with_the_address(
    lean: Agent, ctx: RequestContext, inbox: Inbox, name: str
):
    await deliver(ctx, inbox, mail("Hello", sender="ana.lima@example.com", to=inbox.address))
    [row] = (await lean.call("find_mail"))["results"]

    _, sent = await lean.try_call("send_mail", {"to": [name], "body": "Hi"})
    forward = {"ids": [row["id"]], "to": ["x@example.com", name]}
    _, forwarded = await lean.try_call("forward_mail", forward)
    unknown = await lean.fail("send_mail", to=["Nobody"], body="Hi")

    expected = f"'{name}' is not an e-mail address; known are ana.lima@example.com"
    assert f"to[0]: {expected}" == sent["error"]["message"]
    assert f"to[1]: {expected}" == forwarded["error"]["message"]
    assert sent["untrusted"]
    assert forwarded["untrusted"]
    assert "to[0]: 'Nobody' is not an e-mail address" == unknown["message"]


OTHER_NAMES = sorted(TOOL_OF | ARGUMENT_OF)


@pytest.mark.parametrize("name", OTHER_NAMES)
async def test_an_error_does_not_change_a_name_in_a_value(lean: Agent, inbox: Inbox, name: str):
    error = await lean.fail("forget", key=name)

    assert error["message"].startswith(f"no memory {name} in the namespace default")


@pytest.mark.parametrize("name", OTHER_NAMES)
async def test_an_error_does_not_change_an_unknown_argument(lean: Agent, inbox: Inbox, name: str):
    error = await lean.fail("send_mail", **{name: "x"})

    assert f"{name}: unknown argument; " in error["message"]


@pytest.mark.parametrize(
    ("tool", "arguments", "advice"),
    [
        ("read_mail", {}, "no attachment att_none; find_mail shows the existing ones"),
        ("reply_mail", {"body": "Hi"}, "att_none is not a msg_ id; use read_mail for it"),
        ("change_mail", {"unsubscribe": True}, "att_none is not a msg_ id; use read_mail for it"),
    ],
)
async def test_the_problem_of_one_id_names_a_tool_of_this_toolset(
    lean: Agent,
    ctx: RequestContext,
    inbox: Inbox,
    tool: str,
    arguments: dict[str, Any],
    advice: str,
):
    await deliver(ctx, inbox, mail("Hello", to=inbox.address))
    [row] = (await lean.call("find_mail"))["results"]

    done = await lean.call(tool, ids=[row["id"], "att_none"], **arguments)

    items = [*done.get("results", ()), *done.get("failed", ())]
    assert advice in [item.get("error") or item.get("note") for item in items]


NOTHING: dict[str, dict[str, Any]] = {
    "find_mail": {
        **dict.fromkeys(("q", "from", "to", "subject", "after_date", "before_date"), ""),
        "labels": [],
        "unread": None,
        "mailbox": "",
        "text": False,
        "sort": None,
        "limit": None,
    },
    "change_mail": {
        **{name: [] for name in ("add_labels", "remove_labels", "remove_flags")},
        "mailbox": None,
        "trash": False,
        "filter": None,
        "plan_id": "",
        "unsubscribe": False,
    },
    "send_mail": {
        **dict.fromkeys(("cc", "bcc", "attachments", "send_at", "draft", "draft_id", "from"), None),
        "idempotency_key": None,
    },
    "read_mail": {"max_chars": None, "offset": 0, "quoted": False, "thread": None},
}
"""What clients send that fill in every argument."""


async def test_arguments_without_a_value_are_absent(lean: Agent, ctx: RequestContext, inbox: Inbox):
    await deliver(ctx, inbox, mail("Hello", "Text", to=inbox.address))
    nothing = {name: dict(arguments) for name, arguments in NOTHING.items()}

    [row] = (await lean.call("find_mail", **nothing["find_mail"]))["results"]
    [read] = (await lean.call("read_mail", ids=[row["id"]], **nothing["read_mail"]))["results"]
    sent = await lean.call(
        "send_mail", to=[inbox.address], subject="S", body="B", **nothing["send_mail"]
    )
    done = await lean.call(
        "change_mail", ids=[row["id"]], add_flags=["seen"], **nothing["change_mail"]
    )
    plan = await lean.call("change_mail", filter={"subject": "Hello", "q": ""}, trash=True)
    more = {**nothing["change_mail"], "plan_id": plan["plan_id"], "ids": [], "add_flags": []}
    applied = await lean.call("change_mail", **more)

    assert "Text" == read["text"]
    assert "delivered" == sent["status"]
    assert ("ok", 1) == (done["status"], done["changed"])
    assert ("ok", 1) == (applied["status"], applied["changed"])


async def test_a_required_argument_cannot_be_null(lean: Agent, inbox: Inbox):
    error = await lean.fail("read_mail", ids=None)

    assert "ids: is required" == error["message"]
