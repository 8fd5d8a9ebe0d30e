"""Contract 001: one interface over all mail. Rules have tests of their own."""

from __future__ import annotations

import secrets
from base64 import b64encode
from datetime import UTC, datetime

import pytest

from tests.contract.conftest import ThisInbox
from tests.contract.doors import AccessControl, McpDoor, Refused
from tests.contract.requirements import requirement

CODES = {
    "INVALID_REQUEST",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RATE_LIMIT_EXCEEDED",
    "PROVIDER_ERROR",
    "INTERNAL_ERROR",
}


@requirement("mail:search")
async def test_a_search_combines_its_filters(door: AccessControl, inbox: ThisInbox) -> None:
    word = secrets.token_hex(8)
    march, june = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    first = await inbox.receive(f"Plan {word}", sender="Ana <ana@work.example>", date=march)
    await inbox.receive(f"Plan {word}", sender="Bo <bo@home.example>", date=june)
    await inbox.receive(
        f"Plan {word}", sender="Ana <ana@work.example>", date=june, attachments=[("a", "a/b", b"")]
    )
    await door.call("apply_label", message_ids=[first["message_id"]], label="Work")

    found = await door.call(
        "search_messages",
        query=word,
        labels=["work"],
        **{"from": "@work.example", "to": inbox.address},
        has_attachment=False,
        after_date="2026-02-01",
        before_date="2026-04-01T00:00:00Z",
    )

    assert [first["message_id"]] == [row["id"] for row in found["results"]]
    assert 0 == (await door.call("search_messages", query=word, labels=["Wor"]))["total"]


@requirement("mail:search-page")
async def test_a_search_comes_in_pages(door: AccessControl, inbox: ThisInbox) -> None:
    word = secrets.token_hex(8)
    for number in range(5):
        await inbox.receive(f"{word} {number}")

    page = await door.call("search_messages", query=word, limit=2, offset=2)

    told = {name: page[name] for name in ("total_count", "limit", "offset", "has_more")}
    assert {"total_count": 5, "limit": 2, "offset": 2, "has_more": True} == told
    assert 2 == len(page["results"])


@requirement("mail:get-message")
async def test_a_message_is_read_whole(door: AccessControl, inbox: ThisInbox) -> None:
    received = await inbox.receive("Hello", "The text", attachments=[("a.txt", "text/plain", b"A")])

    message = await door.call(
        "get_message",
        message_id=received["message_id"],
        include_attachments=True,
        include_headers=True,
    )

    assert ("Hello", "The text") == (message["subject"], message["text"].strip())
    assert "Subject" in {header["name"] for header in message["headers"]}
    (attachment,) = message["attachments"]
    assert ("a.txt", b64encode(b"A").decode()) == (attachment["filename"], attachment["content"])


@requirement("mail:get-thread")
async def test_a_thread_has_its_messages_oldest_first(
    door: AccessControl, inbox: ThisInbox
) -> None:
    first = await inbox.receive("A", message_id=f"<a@{inbox.id}>")
    second = await inbox.receive("Re: A", in_reply_to=f"<a@{inbox.id}>")

    thread = await door.call("get_thread", thread_id=first["thread_id"], limit=50)

    ids = [message["id"] for message in thread["messages"]]
    assert [first["message_id"], second["message_id"]] == ids


@requirement("mail:apply-label")
async def test_a_label_is_put_on_several_messages(door: AccessControl, inbox: ThisInbox) -> None:
    ids = [(await inbox.receive(f"Mail {n}"))["message_id"] for n in range(2)]

    result = await door.call("apply_label", message_ids=[*ids, "msg_none"], label="Urgent")

    assert ("partial", ids) == (result["status"], result["succeeded"])
    assert ["msg_none"] == [failure["message_id"] for failure in result["failed"]]
    for message_id in ids:
        assert ["Urgent"] == (await door.call("get_message", message_id=message_id))["labels"]


@requirement("mail:move")
async def test_a_message_is_moved(door: AccessControl, inbox: ThisInbox) -> None:
    received = await inbox.receive("Hello")

    await door.call("move_message", message_id=received["message_id"], destination="Projects")

    message = await door.call("get_message", message_id=received["message_id"])
    assert ["Projects"] == message["mailboxes"]


@requirement("mail:send")
async def test_a_reply_is_sent_with_everything(
    door: AccessControl, inbox: ThisInbox, other: ThisInbox
) -> None:
    received = await inbox.receive("Question", sender=other.address)

    sent = await door.call(
        "send_message",
        to=[other.address],
        bcc=["hidden@elsewhere.example"],
        subject="Question",
        body_text="The answer",
        body_html="<p>The answer</p>",
        in_reply_to=received["message_id"],
        attachments=[{"filename": "a.txt", "content_type": "text/plain", "content": "QQ=="}],
    )

    assert received["thread_id"] == sent["thread_id"]
    states = {r["address"]: r["status"] for r in sent["recipients"]}
    assert {other.address: "delivered", "hidden@elsewhere.example": "captured"} == states
    message = await door.call("get_message", message_id=sent["message_id"], include_html=True)
    assert "Re: Question" == message["subject"]
    assert "<p>The answer</p>" in message["html"]
    assert ["a.txt"] == [a["filename"] for a in message["attachments"]]


@requirement("mail:identities")
async def test_the_address_of_an_inbox_is_its_first_identity(
    door: AccessControl, inbox: ThisInbox
) -> None:
    page = await door.call("list_identities", inbox_id=inbox.id)

    (identity,) = page["results"]
    assert (inbox.address, True) == (identity["email"], identity["is_default"])
    assert inbox.id == identity["inbox_id"]


@requirement("mail:alias")
async def test_an_alias_sends_with_its_signature_and_receives(
    door: AccessControl, inbox: ThisInbox, other: ThisInbox
) -> None:
    email = f"sales-{secrets.token_hex(6)}@postroom.localhost"
    alias = await door.call(
        "create_alias",
        email=email,
        name="Sales",
        signature='<b>Sales team</b><script>alert("x")</script>',
        inbox_id=inbox.id,
    )
    sent = await door.call(
        "send_message",
        to=[email, other.address],
        subject="Offer",
        body_text="See below",
        body_html="<p>See below</p>",
        **{"from": email},
    )

    assert "<b>Sales team</b>" == alias["signature"]
    message = await door.call("get_message", message_id=sent["message_id"], include_html=True)
    assert (email, "Sales") == (message["from_address"], message["from_name"])
    assert "-- \nSales team" in message["text"]
    assert "<b>Sales team</b>" in message["html"]
    page = await door.call("list_messages", inbox_id=inbox.id, mailbox="Inbox")
    assert ["Offer"] == [row["subject"] for row in page["results"]]
    with pytest.raises(Refused) as refused:
        await door.call("create_alias", email=email, inbox_id=other.id)
    assert "conflict" == refused.value.kind
    with pytest.raises(Refused) as refused:
        await door.call("create_alias", email="x@elsewhere.example", inbox_id=other.id)
    assert "invalid_input" == refused.value.kind


@requirement("mail:errors")
async def test_an_error_has_a_code_of_the_contract(tools: McpDoor, inbox: ThisInbox) -> None:
    codes = []
    for tool, arguments in (
        ("get_message", {"message_id": "msg_none"}),
        ("search_messages", {}),
        ("move_message", {"message_id": "msg_none", "destination": "*"}),
    ):
        result = await tools.client.call_tool(tool, arguments)
        assert result.is_error
        error = (result.structured_content or {})["error"]
        assert error["message"]
        codes.append(error["code"])

    assert ["NOT_FOUND", "INVALID_REQUEST", "INVALID_REQUEST"] == codes
    assert set(codes) <= CODES


@requirement("mail:capabilities")
async def test_capabilities_are_told(door: AccessControl) -> None:
    told = await door.call("get_capabilities")

    assert ("local", True, False) == (
        told["provider"],
        told["has_threading"],
        told["has_server_side_rules"],
    )
    assert 25 == told["max_attachment_size_mb"]
    assert {"requests_per_second": 500, "burst": 2000} == told["rate_limits"]
    assert [] == told["accounts"]


@requirement("mail:errors")
async def test_an_id_of_another_kind_is_refused_with_the_tool_that_takes_it(
    door: AccessControl, inbox: ThisInbox
) -> None:
    received = await inbox.receive("Hello")
    message_id, thread_id = received["message_id"], received["thread_id"]

    for tool, arguments in (
        ("apply_label", {"message_ids": [message_id, thread_id], "label": "Wrong"}),
        ("move_message", {"message_id": thread_id, "destination": "Archive"}),
        ("update_message", {"message_id": thread_id, "flags": ["seen"]}),
    ):
        with pytest.raises(Refused, match="get_thread") as refused:
            await door.call(tool, **arguments)
        assert "invalid_input" == refused.value.kind
    assert [] == (await door.call("get_message", message_id=message_id))["labels"]
