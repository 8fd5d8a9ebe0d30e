"""Tools do what contracts 000 and 004 specify, and explain refusals."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from mcp.shared.exceptions import MCPError

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.operations.inboxes import ListInboxes, list_inboxes
from postroom.surfaces.mcp.call_tool import call_tool
from postroom.surfaces.mcp.tool import Tool
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.conftest import acting

PDF = b"%PDF-1.4 not much of one"


async def test_an_inbox_made_by_a_tool_is_listed(agent):
    made = await agent.call("create_inbox", username="ana", name="Ana")

    page = await agent.call("list_inboxes")

    assert [made] == page["results"]
    assert "ana@postroom.localhost" == made["address"]


async def test_messages_are_listed_by_inbox_and_by_thread(agent, ctx, inbox):
    added = await deliver(ctx, inbox, mail("Plans"))
    await deliver(ctx, inbox, mail("Other"))

    by_inbox = await agent.call("list_messages", inbox_id=inbox.id)
    by_thread = await agent.call("list_messages", thread_id=added.thread_id, q="PLANS")

    assert 2 == by_inbox["total"]
    assert ["Plans"] == [row["subject"] for row in by_thread["results"]]
    assert by_thread["untrusted"]


async def test_a_list_without_a_filter_is_refused(agent):
    error = await agent.fail("list_messages", q="x")

    assert "INVALID_REQUEST" == error["code"]
    assert "at least one filter (inbox_id or thread_id) is required" in error["message"]


async def test_a_search_is_paged_and_counted(agent, ctx, inbox):
    for number in range(3):
        await deliver(ctx, inbox, mail(f"report {number}"))

    first = await agent.call("search_messages", inbox_id=inbox.id, q="report", limit=2, offset=0)
    rest = await agent.call(
        "search_messages", inbox_id=inbox.id, query="report", limit="2", cursor=first["next_cursor"]
    )

    assert (2, 3, True) == (first["count"], first["total"], first["has_more"])
    assert (1, 3, False) == (rest["count"], rest["total"], rest["has_more"])


async def test_a_message_and_its_thread_are_read(agent, ctx, inbox):
    added = await deliver(ctx, inbox, mail("Plans", "Let us meet."))

    message = await agent.call("get_message", message_id=added.message_id)
    thread = await agent.call("get_thread", thread_id=added.thread_id)
    threads = await agent.call("list_threads", inbox_id=inbox.id)

    assert "Let us meet." == message["text"].strip()
    assert [added.message_id] == [row["id"] for row in thread["messages"]]
    assert [added.thread_id] == [row["id"] for row in threads["results"]]


async def test_attachments_are_listed_and_read_as_base64(agent, ctx, inbox):
    raw = mail("Bill", attachments=[("bill.pdf", "application/pdf", PDF)])
    added = await deliver(ctx, inbox, raw)

    page = await agent.call("list_attachments", message_id=added.message_id)
    [found] = page["results"]
    content = await agent.call("get_attachment_content", attachment_id=found["id"])

    assert ("bill.pdf", "application/pdf", len(PDF)) == tuple(
        found[name] for name in ("filename", "content_type", "size")
    )
    assert b64encode(PDF).decode() == content["content"]


async def test_attachments_without_a_filter_are_refused(agent):
    error = await agent.fail("list_attachments")

    assert "give at least one of message_id, thread_id, inbox_id" in error["message"]


async def test_an_unknown_attachment_is_not_found(agent):
    error = await agent.fail("get_attachment_content", attachment_id="att_none")

    assert ("NOT_FOUND", "not_found") == (error["code"], error["details"]["kind"])


async def test_mail_is_sent_to_a_local_inbox(agent, ctx, inbox):
    other = await new_inbox(ctx, "cy")

    sent = await agent.call(
        "send_email", inbox_id=inbox.id, recipient=other.address, subject="Hi", body="Hello."
    )

    assert "delivered" == sent["status"]
    page = await agent.call("list_messages", inbox_id=other.id)
    assert ["Hi"] == [row["subject"] for row in page["results"]]


async def test_attachments_are_sent_and_stored(agent, ctx, inbox):
    files = [{"filename": "a.txt", "content_type": "text/plain", "content": "SGk="}]

    sent = await agent.call(
        "send_email_with_attachments",
        inbox_id=inbox.id,
        recipient="x@example.com",
        subject="Hi",
        body="Hello.",
        attachments=files,
    )

    assert "captured" == sent["status"]
    page = await agent.call("list_attachments", message_id=sent["message_id"])
    assert ["a.txt"] == [row["filename"] for row in page["results"]]


async def test_send_email_points_to_the_tool_that_takes_attachments(agent, inbox):
    error = await agent.fail(
        "send_email",
        inbox_id=inbox.id,
        recipient="a@b.example",
        subject="",
        body="",
        attachments=[],
    )

    assert "use send_email_with_attachments" in error["message"]


async def test_bad_base64_is_named_and_nothing_is_sent(agent, inbox):
    error = await agent.fail(
        "send_email_with_attachments",
        inbox_id=inbox.id,
        recipient="x@example.com",
        subject="Hi",
        body="Hello.",
        attachments=[{"filename": "a.txt", "content": "SGk"}],
    )

    assert "attachments[0] (a.txt)" in error["message"]
    assert 0 == (await agent.call("list_messages", inbox_id=inbox.id))["total"]


async def test_a_reply_stays_in_its_thread(agent, ctx, inbox):
    added = await deliver(ctx, inbox, mail("Plans"))

    sent = await agent.call("reply_to_message", message_id=added.message_id, body_text="Yes.")

    assert added.thread_id == sent["thread_id"]


async def test_a_message_is_labelled_flagged_and_moved(agent, ctx, inbox):
    added = await deliver(ctx, inbox, mail("Plans"))
    ids = [added.message_id]

    labelled = await agent.call("apply_label", message_ids=[*ids, "msg_none"], label="Work")
    await agent.call("update_message", message_id=added.message_id, flags=["seen"])
    await agent.call("move_message", message_id=added.message_id, destination="Archive")

    assert ("partial", ids) == (labelled["status"], labelled["succeeded"])
    message = await agent.call("get_message", message_id=added.message_id)
    assert (["Work"], ["seen"], ["Archive"]) == (
        message["labels"],
        message["flags"],
        message["mailboxes"],
    )


async def test_send_message_needs_no_inbox_when_there_is_one(agent, inbox):
    sent = await agent.call(
        "send_message", to=["x@example.com"], subject="Hi", body_text="Hello.", cc=[]
    )

    assert "captured" == sent["status"]


async def test_an_unknown_argument_is_refused_with_a_suggestion(agent):
    error = await agent.fail("search_messages", quary="x")

    assert "did you mean query?" in error["message"]
    assert "quary" == error["details"]["problems"][0]["field"]


async def test_an_id_of_another_kind_is_refused_with_the_right_tool(agent):
    error = await agent.fail("get_message", message_id="thr_1")

    assert "use get_thread" in error["message"]


async def test_an_unknown_tool_is_a_protocol_error(agent):
    with pytest.raises(MCPError, match="unknown tool send_mail; did you mean send_email"):
        await agent.client.call_tool("send_mail", {})


async def test_a_key_without_the_scope_is_told_which_it_needs(app, ctx, inbox):
    async with acting(
        app,
        a_caller("key_1", frozenset({Scope.READ})),
    ) as reader:
        error = await reader.fail("create_inbox")

    assert ("PERMISSION_DENIED", "forbidden") == (error["code"], error["details"]["kind"])


async def test_a_rate_limited_call_has_a_retry_after(app, inbox):
    app.rates.clock = lambda: 0.0
    for _ in range(app.rates.burst):
        app.rates.take("key_1")

    async with acting(app, a_caller("key_1")) as hasty:
        error = await hasty.fail("list_inboxes")

    assert ("RATE_LIMIT_EXCEEDED", 1) == (error["code"], error["retry_after"])


@operation(Scope.READ)
async def stumble(ctx: RequestContext, request: ListInboxes) -> Page[Inbox]:
    raise ZeroDivisionError("a secret of the house")


async def test_an_internal_error_has_no_details(ctx, caplog):
    result = await call_tool(ctx, Tool(name="stumble", title="Stumble", operation=stumble), {})

    error = result["structuredContent"]["error"]
    assert ("INTERNAL_ERROR", "internal") == (error["code"], error["details"]["kind"])
    assert "secret" not in result["content"][0]["text"]
    assert "a secret of the house" in caplog.text


async def test_a_lone_surrogate_does_not_break_an_answer(ctx):
    tool = Tool(
        name="list_inboxes",
        title="List",
        operation=list_inboxes,
        shape_result=lambda body: {**body, "odd": "a\ud800b"},
    )

    result = await call_tool(ctx, tool, {})

    assert "a\ufffdb" == result["structuredContent"]["odd"]
    assert json.loads(result["content"][0]["text"].encode()) == result["structuredContent"]
