"""Contract 001: one interface over all mail. Rules have tests of their own."""

from __future__ import annotations

import secrets
from base64 import b64encode
from datetime import UTC, datetime

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.requirements import requirement
from tests.contract.surface_clients import CallRefused, McpClient, SurfaceClient

CODES = {
    "INVALID_REQUEST",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RATE_LIMIT_EXCEEDED",
    "PROVIDER_ERROR",
    "INTERNAL_ERROR",
}


@requirement("mail:search")
async def test_a_search_combines_its_filters(client: SurfaceClient, inbox: InboxFixture) -> None:
    word = secrets.token_hex(8)
    march, june = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    first = await inbox.receive(f"Plan {word}", sender="Ana <ana@work.example>", date=march)
    await inbox.receive(f"Plan {word}", sender="Bo <bo@home.example>", date=june)
    await inbox.receive(
        f"Plan {word}", sender="Ana <ana@work.example>", date=june, attachments=[("a", "a/b", b"")]
    )
    await client.call("apply_label", message_ids=[first["message_id"]], label="Work")

    found = await client.call(
        "search_messages",
        query=word,
        labels=["work"],
        **{"from": "@work.example", "to": inbox.address},
        has_attachment=False,
        after_date="2026-02-01",
        before_date="2026-04-01T00:00:00Z",
    )

    assert [first["message_id"]] == [row["id"] for row in found["results"]]
    assert 0 == (await client.call("search_messages", query=word, labels=["Wor"]))["total"]


@requirement("mail:search-page")
async def test_a_search_comes_in_pages(client: SurfaceClient, inbox: InboxFixture) -> None:
    word = secrets.token_hex(8)
    for number in range(5):
        await inbox.receive(f"{word} {number}")

    page = await client.call("search_messages", query=word, limit=2, offset=2)

    told = {name: page[name] for name in ("total_count", "limit", "offset", "has_more")}
    assert {"total_count": 5, "limit": 2, "offset": 2, "has_more": True} == told
    assert 2 == len(page["results"])


@requirement("mail:get-message")
async def test_a_message_is_read_whole(client: SurfaceClient, inbox: InboxFixture) -> None:
    received = await inbox.receive("Hello", "The text", attachments=[("a.txt", "text/plain", b"A")])

    message = await client.call(
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
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    first = await inbox.receive("A", message_id=f"<a@{inbox.id}>")
    second = await inbox.receive("Re: A", in_reply_to=f"<a@{inbox.id}>")

    thread = await client.call("get_thread", thread_id=first["thread_id"], limit=50)

    ids = [message["id"] for message in thread["messages"]]
    assert [first["message_id"], second["message_id"]] == ids


@requirement("mail:apply-label")
async def test_a_label_is_put_on_several_messages(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    ids = [(await inbox.receive(f"Mail {n}"))["message_id"] for n in range(2)]

    result = await client.call("apply_label", message_ids=[*ids, "msg_none"], label="Urgent")

    assert ("partial", ids) == (result["status"], result["succeeded"])
    assert ["msg_none"] == [failure["message_id"] for failure in result["failed"]]
    for message_id in ids:
        assert ["Urgent"] == (await client.call("get_message", message_id=message_id))["labels"]


@requirement("mail:move")
async def test_a_message_is_moved(client: SurfaceClient, inbox: InboxFixture) -> None:
    received = await inbox.receive("Hello")

    await client.call("move_message", message_id=received["message_id"], destination="Projects")

    message = await client.call("get_message", message_id=received["message_id"])
    assert ["Projects"] == message["mailboxes"]


@requirement("mail:send")
async def test_a_reply_is_sent_with_everything(
    client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    received = await inbox.receive("Question", sender=other.address)

    sent = await client.call(
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
    message = await client.call("get_message", message_id=sent["message_id"], include_html=True)
    assert "Re: Question" == message["subject"]
    assert "<p>The answer</p>" in message["html"]
    assert ["a.txt"] == [a["filename"] for a in message["attachments"]]


@requirement("mail:identities")
async def test_the_address_of_an_inbox_is_its_first_identity(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    page = await client.call("list_identities", inbox_id=inbox.id)

    (identity,) = page["results"]
    assert (inbox.address, True) == (identity["email"], identity["is_default"])
    assert inbox.id == identity["inbox_id"]


@requirement("mail:alias")
async def test_an_alias_sends_with_its_signature_and_receives(
    client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    email = f"sales-{secrets.token_hex(6)}@postroom.localhost"
    alias = await client.call(
        "create_alias",
        email=email,
        name="Sales",
        signature='<b>Sales team</b><script>alert("x")</script>',
        inbox_id=inbox.id,
    )
    sent = await client.call(
        "send_message",
        to=[email, other.address],
        subject="Offer",
        body_text="See below",
        body_html="<p>See below</p>",
        **{"from": email},
    )

    assert "<b>Sales team</b>" == alias["signature"]
    message = await client.call("get_message", message_id=sent["message_id"], include_html=True)
    assert (email, "Sales") == (message["from_address"], message["from_name"])
    assert "-- \nSales team" in message["text"]
    assert "<b>Sales team</b>" in message["html"]
    page = await client.call("list_messages", inbox_id=inbox.id, mailbox="Inbox")
    assert ["Offer"] == [row["subject"] for row in page["results"]]
    with pytest.raises(CallRefused) as refused:
        await client.call("create_alias", email=email, inbox_id=other.id)
    assert "conflict" == refused.value.kind
    with pytest.raises(CallRefused) as refused:
        await client.call("create_alias", email="x@elsewhere.example", inbox_id=other.id)
    assert "invalid_input" == refused.value.kind


@requirement("mail:errors")
async def test_an_error_has_a_code_of_the_contract(
    mcp_client: McpClient, inbox: InboxFixture
) -> None:
    codes = []
    for tool, arguments in (
        ("get_message", {"message_id": "msg_none"}),
        ("search_messages", {}),
        ("move_message", {"message_id": "msg_none", "destination": "*"}),
    ):
        result = await mcp_client.client.call_tool(tool, arguments)
        assert result.is_error
        error = (result.structured_content or {})["error"]
        assert error["message"]
        codes.append(error["code"])

    assert ["NOT_FOUND", "INVALID_REQUEST", "INVALID_REQUEST"] == codes
    assert set(codes) <= CODES


@requirement("mail:capabilities")
async def test_capabilities_are_listed(client: SurfaceClient) -> None:
    told = await client.call("get_capabilities")

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
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    received = await inbox.receive("Hello")
    message_id, thread_id = received["message_id"], received["thread_id"]

    for tool, arguments in (
        ("apply_label", {"message_ids": [message_id, thread_id], "label": "Wrong"}),
        ("move_message", {"message_id": thread_id, "destination": "Archive"}),
        ("update_message", {"message_id": thread_id, "flags": ["seen"]}),
    ):
        with pytest.raises(CallRefused, match="get_thread") as refused:
            await client.call(tool, **arguments)
        assert "invalid_input" == refused.value.kind
    assert [] == (await client.call("get_message", message_id=message_id))["labels"]
