"""Contract 004: attachments listed, read and sent."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import Any

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.requirements import requirement
from tests.contract.surface_clients import CallRefused, RestClient, SurfaceClient

PDF = b"%PDF-1.4 not much of one"
TEXT = "plain text, 你好".encode()
FILES = [("report.pdf", "application/pdf", PDF), ("notes.txt", "text/plain", TEXT)]


def names(page: dict[str, Any]) -> list[str]:
    return [row["filename"] for row in page["results"]]


@requirement("attachments:by-message")
async def test_the_attachments_of_a_message(client: SurfaceClient, inbox: InboxFixture) -> None:
    received = await inbox.receive("Files", attachments=FILES)

    page = await client.call("list_attachments", message_id=received["message_id"])

    assert ["report.pdf", "notes.txt"] == names(page)
    first = page["results"][0]
    assert ("application/pdf", len(PDF)) == (first["content_type"], first["size"])
    assert hashlib.sha256(PDF).hexdigest() == first["sha256"]
    assert first["id"].startswith("att_")


@requirement("attachments:by-thread")
async def test_the_attachments_of_a_thread(client: SurfaceClient, inbox: InboxFixture) -> None:
    received = await inbox.receive("A", attachments=FILES[:1], message_id=f"<a@{inbox.id}>")
    await inbox.receive("B", attachments=FILES[1:], in_reply_to=f"<a@{inbox.id}>")
    await inbox.receive("C", attachments=FILES)

    page = await client.call("list_attachments", thread_id=received["thread_id"])

    assert {"report.pdf", "notes.txt"} == set(names(page))
    assert 2 == page["total"]


@requirement("attachments:by-inbox")
async def test_the_attachments_of_an_inbox_come_in_pages(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    for number in range(3):
        await inbox.receive(f"Mail {number}", attachments=FILES)

    first = await client.call("list_attachments", inbox_id=inbox.id, limit=4)
    rest = await client.call(
        "list_attachments", inbox_id=inbox.id, limit=4, cursor=first["next_cursor"]
    )

    assert (4, 6, True) == (first["count"], first["total"], first["has_more"])
    assert (2, 4, False) == (rest["count"], rest["offset"], rest["has_more"])
    ids = [row["id"] for row in first["results"] + rest["results"]]
    assert 6 == len(set(ids))


@requirement("attachments:no-filter")
async def test_attachments_without_a_filter_are_refused(client: SurfaceClient) -> None:
    with pytest.raises(CallRefused, match="at least one of message_id, thread_id, inbox_id"):
        await client.call("list_attachments")


@requirement("attachments:content")
@requirement("attachments:always-base64")
async def test_content_is_base64_whatever_the_type(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    received = await inbox.receive("Files", attachments=FILES)
    page = await client.call("list_attachments", message_id=received["message_id"])

    contents = [
        await client.call("get_attachment_content", attachment_id=row["id"])
        for row in page["results"]
    ]

    assert [PDF, TEXT] == [b64decode(content["content"], validate=True) for content in contents]
    assert [("report.pdf", "application/pdf"), ("notes.txt", "text/plain")] == [
        (content["filename"], content["content_type"]) for content in contents
    ]


@requirement("attachments:content-missing")
async def test_an_unknown_attachment_is_not_found(client: SurfaceClient) -> None:
    with pytest.raises(CallRefused, match="no attachment att_unknown") as refused:
        await client.call("get_attachment_content", attachment_id="att_unknown")

    assert "not_found" == refused.value.kind


async def test_a_large_attachment_is_read_in_parts(
    client: SurfaceClient, rest: RestClient, inbox: InboxFixture
) -> None:
    content = bytes(range(256)) * 5000
    received = await inbox.receive("Big", attachments=[("b.bin", "application/x-bin", content)])
    page = await client.call("list_attachments", message_id=received["message_id"])
    attachment_id = page["results"][0]["id"]

    with pytest.raises(CallRefused, match="max_bytes") as refused:
        await client.call("get_attachment_content", attachment_id=attachment_id)
    part = await client.call(
        "get_attachment_content", attachment_id=attachment_id, offset=1_200_000, max_bytes=50_000
    )
    whole = await rest.http.get(f"/v1/attachments/{attachment_id}/content")

    assert "too_large" == refused.value.kind
    assert content[1_200_000:1_250_000] == b64decode(part["content"])
    assert 1_250_000 == part["next_offset"]
    assert content == whole.content


def enclosed(*files: tuple[str, str, bytes]) -> list[dict[str, str]]:
    return [
        {"filename": name, "content_type": kind, "content": b64encode(content).decode()}
        for name, kind, content in files
    ]


@requirement("attachments:send-one")
@requirement("attachments:send-several")
@pytest.mark.parametrize("count", [1, 2])
async def test_files_are_sent_delivered_and_stored(
    mcp_client: SurfaceClient, inbox: InboxFixture, other: InboxFixture, count: int
) -> None:
    sent = await mcp_client.call(
        "send_email_with_attachments",
        inbox_id=inbox.id,
        recipient=other.address,
        subject="Files",
        body="See attached.",
        attachments=enclosed(*FILES[:count]),
    )

    mine = await mcp_client.call("list_attachments", message_id=sent["message_id"])
    theirs = await mcp_client.call("list_attachments", inbox_id=other.id)
    assert {"message_id", "thread_id", "status"} <= sent.keys()
    assert "delivered" == sent["status"]
    expected = [hashlib.sha256(content).hexdigest() for _, _, content in FILES[:count]]
    assert expected == [row["sha256"] for row in mine["results"]]
    assert expected == [row["sha256"] for row in theirs["results"]]


@requirement("attachments:bad-base64")
@pytest.mark.parametrize("content", ["not base64!", "QQ", "QR==", "QQ==\n", "Q Q=="])
async def test_bad_base64_is_named_and_nothing_is_sent(
    mcp_client: SurfaceClient, inbox: InboxFixture, content: str
) -> None:
    good = enclosed(FILES[0])[0]
    bad = {"filename": "bad.bin", "content_type": "application/x-bin", "content": content}

    with pytest.raises(CallRefused, match=r"attachments\[1\] \(bad\.bin\)") as refused:
        await mcp_client.call(
            "send_email_with_attachments",
            inbox_id=inbox.id,
            recipient="x@example.com",
            subject="Files",
            body="See attached.",
            attachments=[good, bad],
        )

    assert "invalid_input" == refused.value.kind
    assert 0 == (await mcp_client.call("list_messages", inbox_id=inbox.id))["total"]


@requirement("attachments:send-reply")
async def test_a_reply_with_files_joins_the_thread_and_says_so_to_the_recipient(
    mcp_client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    first = await mcp_client.call(
        "send_email", inbox_id=other.id, recipient=inbox.address, subject="Ask", body="May I?"
    )
    (asked,) = (await mcp_client.call("list_messages", inbox_id=inbox.id))["results"]

    sent = await mcp_client.call(
        "send_email_with_attachments",
        inbox_id=inbox.id,
        recipient=other.address,
        subject="Ask",
        body="Here it is.",
        thread_id=asked["thread_id"],
        attachments=enclosed(FILES[0]),
    )

    reply = await mcp_client.call("get_message", message_id=sent["message_id"])
    asked_full = await mcp_client.call("get_message", message_id=asked["id"])
    other_box = await mcp_client.call("get_thread", thread_id=first["thread_id"])
    assert asked["thread_id"] == sent["thread_id"]
    assert asked_full["internet_message_id"] == reply["in_reply_to"]
    assert [asked_full["internet_message_id"]] == reply["references"]
    assert "Re: Ask" == reply["subject"]
    assert ["Ask", "Re: Ask"] == [message["subject"] for message in other_box["messages"]]


async def test_a_thread_of_another_inbox_is_not_found(
    mcp_client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    theirs = await other.receive("Private")

    with pytest.raises(CallRefused, match="no thread") as refused:
        await mcp_client.call(
            "send_email",
            inbox_id=inbox.id,
            recipient="x@example.com",
            subject="Hi",
            body="Hi",
            thread_id=theirs["thread_id"],
        )

    assert "not_found" == refused.value.kind


@requirement("attachments:send-email")
async def test_send_email_works_and_refuses_attachments(
    mcp_client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    mail = {"inbox_id": inbox.id, "recipient": other.address, "subject": "Hi", "body": "Hello."}

    sent = await mcp_client.call("send_email", **mail)
    with pytest.raises(CallRefused, match="send_email_with_attachments") as refused:
        await mcp_client.call("send_email", **mail, attachments=enclosed(FILES[0]))

    assert "invalid_input" == refused.value.kind
    message = await mcp_client.call("get_message", message_id=sent["message_id"])
    assert ([], "Hello.") == (message["attachments"], message["text"].strip())
    assert 1 == (await mcp_client.call("list_messages", inbox_id=other.id))["total"]


async def test_an_attachment_we_hold_is_sent_by_its_id(
    mcp_client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    received = await inbox.receive("Files", attachments=FILES[:1])
    page = await mcp_client.call("list_attachments", message_id=received["message_id"])

    await mcp_client.call(
        "send_email_with_attachments",
        inbox_id=inbox.id,
        recipient=other.address,
        subject="Passed on",
        body="As you asked.",
        attachments=[{"attachment_id": page["results"][0]["id"]}],
    )

    other_box = await mcp_client.call("list_attachments", inbox_id=other.id)
    assert [("report.pdf", hashlib.sha256(PDF).hexdigest())] == [
        (row["filename"], row["sha256"]) for row in other_box["results"]
    ]


async def test_a_retry_sends_once_and_says_so(
    mcp_client: SurfaceClient, inbox: InboxFixture
) -> None:
    mail = {"inbox_id": inbox.id, "recipient": "x@example.com", "subject": "Once", "body": "Hi"}

    first = await mcp_client.call("send_email", **mail)
    again = await mcp_client.call("send_email", **mail)
    keyed = await mcp_client.call("send_email", **mail, idempotency_key="k1")
    keyed_again = await mcp_client.call("send_email", **mail, idempotency_key="k1")

    assert (first["message_id"], True) == (again["message_id"], again["deduplicated"])
    assert keyed == keyed_again
    assert first["message_id"] != keyed["message_id"]
    assert "captured" == first["status"]
    with pytest.raises(CallRefused) as refused:
        await mcp_client.call("send_email", **{**mail, "body": "Other"}, idempotency_key="k1")
    assert "conflict" == refused.value.kind
