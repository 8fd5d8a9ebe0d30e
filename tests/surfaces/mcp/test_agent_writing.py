"""Writing with the toolset `agent`: every argument has its effect, now and in a draft."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.inbox import Inbox
from postroom.operations.mail.messages import get_message
from postroom.operations.outgoing.drafts import get_draft
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.conftest import Agent
from tests.surfaces.mcp.test_agent import lean

__all__ = ["lean"]

WAYS = ("send_mail", "reply_mail", "forward_mail")


async def _target(lean: Agent, ctx: RequestContext, inbox: Inbox, way: str) -> dict[str, Any]:
    """The arguments that say to whom a mail goes, and what it answers."""
    if way == "send_mail":
        return {"to": ["zoe@x.example"], "subject": "Hi"}
    raw = mail("Lunch", "Shall we?", sender="Zoë Ray <zoe@x.example>", to=inbox.address)
    await deliver(ctx, inbox, raw)
    [row] = (await lean.call("find_mail"))["results"]
    return {"ids": [row["id"]], **({"to": ["zoe@x.example"]} if way == "forward_mail" else {})}


async def _written(lean: Agent, ctx: RequestContext, way: str, **given: Any) -> dict[str, Any]:
    """The draft or the message that a call made."""
    made = await lean.call(way, **given)
    id_ = made["results"][0]["id"] if "results" in made else made["id"]
    if id_.startswith("drf_"):
        draft = await call(ctx, get_draft, {"draft_id": id_})
        text, html, headers = draft.body_text or "", draft.body_html or "", draft.headers
        reply_to = draft.reply_to
    else:
        extras = {"include_html": True, "include_headers": True}
        message = await call(ctx, get_message, {"message_id": id_, **extras})
        text, html, headers = message.text, message.html or "", message.headers or ()
        reply_to = message.reply_to_addresses
    return {
        "text": text,
        "html": html,
        "reply_to": list(reply_to),
        "headers": {header.name: header.value for header in headers},
    }


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_html_alone_is_enough(
    lean: Agent, ctx: RequestContext, inbox: Inbox, way: str, draft: bool
):
    target = await _target(lean, ctx, inbox, way)

    found = await _written(lean, ctx, way, **target, html="<p>See <b>this</b></p>", draft=draft)

    assert "<b>this</b>" in found["html"]
    assert "See this" in found["text"] or (draft and way != "forward_mail")


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_unlisted_options_are_kept(
    lean: Agent, ctx: RequestContext, inbox: Inbox, way: str, draft: bool
):
    target = await _target(lean, ctx, inbox, way)
    options = {"reply_to": ["help@x.example"], "headers": {"X-Campaign": "spring"}, "draft": draft}

    found = await _written(lean, ctx, way, **target, body="Hi", **options)

    assert ["help@x.example"] == found["reply_to"]
    assert "spring" == found["headers"]["X-Campaign"]


async def test_a_changed_draft_keeps_its_options(lean: Agent, ctx: RequestContext, inbox: Inbox):
    made = await lean.call("send_mail", to=["zoe@x.example"], body="Hi", draft=True)
    options = {"reply_to": ["help@x.example"], "headers": {"X-Campaign": "spring"}, "draft": True}

    found = await _written(lean, ctx, "send_mail", draft_id=made["id"], **options)

    assert ["help@x.example"] == found["reply_to"]
    assert {"X-Campaign": "spring"} == found["headers"]


async def test_the_draft_of_a_reply_has_its_subject_and_recipients(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    target = await _target(lean, ctx, inbox, "reply_mail")

    await lean.call("reply_mail", **target, body="Yes", draft=True)

    [row] = (await lean.call("list_outgoing"))["results"]
    assert "Re: Lunch" == row["subject"]
    assert ["Zoë Ray <zoe@x.example>"] == row["to"]


async def test_a_draft_is_read(lean: Agent, ctx: RequestContext, inbox: Inbox):
    note = ("note.txt", "text/plain", b"The PIN of the door.")
    await deliver(ctx, inbox, mail("Lunch", to=inbox.address, attachments=[note]))
    [row] = (await lean.call("find_mail"))["results"]
    [file] = row["attachments"]
    later = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"
    made = await lean.call(
        "send_mail",
        to=["zoe@x.example"],
        cc=["bo@x.example"],
        subject="Plan",
        html="<p>See <b>this</b></p>",
        attachments=[file["id"], {"filename": "a.txt", "content": "SGk="}],
        send_at=later,
        draft=True,
    )

    read = (await lean.call("read_mail", ids=[made["id"], row["id"]]))["results"]

    draft = read[0]
    assert ("draft", "Plan", later) == (draft["status"], draft["subject"], draft["send_at"])
    assert (["zoe@x.example"], ["bo@x.example"]) == (draft["to"], draft["cc"])
    assert "See this" == draft["text"]
    assert [file, {"filename": "a.txt", "size": 2}] == draft["attachments"]
    assert row["id"] == read[1]["id"]


async def test_a_draft_is_deleted(lean: Agent, inbox: Inbox):
    made = await lean.call("send_mail", to=["zoe@x.example"], body="Hi", draft=True)

    done = await lean.call("undo", id=made["id"])

    assert {"untrusted": True, "id": made["id"], "status": "deleted"} == done
    assert 0 == (await lean.call("list_outgoing"))["total"]
    assert "not_found" == (await lean.fail("undo", id=made["id"]))["details"]["kind"]
    assert "not_found" == (await lean.fail("read_mail", ids=[made["id"]]))["details"]["kind"]


async def test_drafts_are_not_searched_and_the_hint_says_where_they_are(
    lean: Agent, ctx: RequestContext, inbox: Inbox
):
    await lean.call("send_mail", to=["zoe@x.example"], subject="Plan", body="Hi", draft=True)

    for arguments in ({"mailbox": "Drafts"}, {"q": "in:drafts plan"}, {"q": "is:draft"}):
        assert "list_outgoing" in (await lean.call("find_mail", **arguments))["hint"]


async def test_one_knows_ones_addresses(lean: Agent, ctx: RequestContext, inbox: Inbox):
    alone = await lean.call("list_mailboxes")
    other = await new_inbox(ctx, "other")
    both = await lean.call("list_mailboxes")

    assert ([inbox.address], []) == (alone["inboxes"], alone["mailboxes"])
    assert [inbox.address, other.address] == both["inboxes"]
