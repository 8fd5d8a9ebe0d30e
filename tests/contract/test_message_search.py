"""Contract 000: filtering and searching messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.requirements import requirement
from tests.contract.surface_clients import CallRefused, RestClient, SurfaceClient

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def subjects(page: dict[str, Any]) -> list[str]:
    return [row.get("subject", "") for row in page["results"]]


async def a_conversation(inbox: InboxFixture) -> str:
    """Three messages in one thread and one beside it; returns the thread."""
    root = await inbox.receive("Plan", "Shall we meet?", message_id=f"<root@{inbox.id}>", date=DAY)
    for number in (1, 2):
        await inbox.receive(
            f"Re: Plan {number}",
            "Yes, see the invoice." if number == 2 else "Perhaps.",
            in_reply_to=f"<root@{inbox.id}>",
            date=DAY + timedelta(hours=number),
        )
    await inbox.receive("Other", "No invoice here? Yes.", date=DAY + timedelta(hours=5))
    thread_id: str = root["thread_id"]
    return thread_id


@requirement("search:thread")
async def test_a_thread_filter_returns_all_of_its_messages(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    thread_id = await a_conversation(inbox)

    page = await client.call("list_messages", thread_id=thread_id)

    assert ["Re: Plan 2", "Re: Plan 1", "Plan"] == subjects(page)


@requirement("search:thread-in-inbox")
async def test_thread_and_inbox_narrow_together(
    client: SurfaceClient, inbox: InboxFixture, other: InboxFixture
) -> None:
    thread_id = await a_conversation(inbox)

    here = await client.call("list_messages", inbox_id=inbox.id, thread_id=thread_id)
    other_box = await client.call("list_messages", inbox_id=other.id, thread_id=thread_id)

    assert (3, 0) == (here["total"], other_box["total"])


@requirement("search:no-filter")
@pytest.mark.parametrize("arguments", [{}, {"inbox_id": ""}, {"inbox_id": "", "thread_id": ""}])
async def test_no_filter_is_refused(client: SurfaceClient, arguments: dict[str, str]) -> None:
    with pytest.raises(CallRefused) as refused:
        await client.call("list_messages", **arguments)

    assert "at least one filter (inbox_id or thread_id) is required" == str(refused.value)
    assert "invalid_input" == refused.value.kind


@requirement("search:no-filter")
async def test_no_filter_is_422_by_rest(rest: RestClient) -> None:
    response = await rest.http.get("/v1/messages")

    assert 422 == response.status_code
    assert "at least one filter (inbox_id or thread_id) is required" == response.json()["detail"]


@requirement("search:q-alone")
async def test_text_without_a_filter_is_refused(client: SurfaceClient) -> None:
    with pytest.raises(CallRefused, match="at least one filter"):
        await client.call("list_messages", q="invoice")


@requirement("search:q-in-inbox")
@pytest.mark.parametrize("q", ["QUARTERLY", "figures below", "ana@exa", "lee", "tables.XLSX"])
async def test_q_looks_at_subject_text_sender_and_file_names(
    client: SurfaceClient, inbox: InboxFixture, q: str
) -> None:
    files = [("Tables.xlsx", "application/octet-stream", b"x")]
    await inbox.receive("Quarterly report", "The figures\nbelow.", attachments=files)
    await inbox.receive("Nothing", "at all", sender="bo@b.org")

    page = await client.call("list_messages", inbox_id=inbox.id, q=q)

    assert ["Quarterly report"] == subjects(page)


@requirement("search:q-in-thread")
async def test_q_within_a_thread(client: SurfaceClient, inbox: InboxFixture) -> None:
    thread_id = await a_conversation(inbox)

    page = await client.call("list_messages", thread_id=thread_id, q="invoice")

    assert ["Re: Plan 2"] == subjects(page)


@requirement("search:attachment-filename")
async def test_a_search_finds_a_message_by_its_attachment_name(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    await inbox.receive("Hello", attachments=[("invoice.pdf", "application/pdf", b"%PDF-1.4")])

    page = await client.call("list_messages", inbox_id=inbox.id, q="INVOICE.pdf")

    assert ["Hello"] == subjects(page)


@requirement("search:no-match")
async def test_no_match_is_an_empty_list_with_count_0(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    await inbox.receive("Hello")

    page = await client.call("list_messages", inbox_id=inbox.id, q="zzzz")

    assert ([], 0, 0, False) == (page["results"], page["count"], page["total"], page["has_more"])


async def many(inbox: InboxFixture, count: int) -> list[str]:
    """Messages that all match `report`, the newest first."""
    for number in range(count):
        await inbox.receive(f"Report {number:03}", date=DAY + timedelta(minutes=number))
    return [f"Report {number:03}" for number in reversed(range(count))]


@requirement("search:default-page")
@requirement("search:custom-page")
@requirement("search:total")
@requirement("search:beyond")
async def test_pages_of_a_search(client: SurfaceClient, inbox: InboxFixture) -> None:
    expected = await many(inbox, 57)

    first = await client.call("list_messages", inbox_id=inbox.id, q="report")
    third = await client.call("list_messages", inbox_id=inbox.id, q="report", limit=10, offset=20)
    beyond = await client.call("list_messages", inbox_id=inbox.id, q="report", offset=99)

    assert (expected[:50], 50, 0) == (subjects(first), first["limit"], first["offset"])
    assert (50, 57, 57, True) == (
        first["count"],
        first["total"],
        first["total_count"],
        first["has_more"],
    )
    assert (expected[20:30], 57) == (subjects(third), third["total"])
    assert ([], 0, 57, False) == (
        beyond["results"],
        beyond["count"],
        beyond["total"],
        beyond["has_more"],
    )


@pytest.mark.parametrize(
    "arguments", [{"limit": 0}, {"limit": 101}, {"limit": -1}, {"offset": -1}, {"limit": "many"}]
)
async def test_a_page_out_of_range_is_refused_never_clamped(
    client: SurfaceClient, inbox: InboxFixture, arguments: dict[str, Any]
) -> None:
    with pytest.raises(CallRefused) as refused:
        await client.call("list_messages", inbox_id=inbox.id, **arguments)

    assert "invalid_input" == refused.value.kind
    assert next(iter(arguments)) in str(refused.value)


async def test_a_cursor_continues_while_mail_arrives_and_is_bound_to_its_question(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    expected = await many(inbox, 7)

    first = await client.call("list_messages", inbox_id=inbox.id, limit=3)
    await inbox.receive("Report new", date=DAY + timedelta(days=1))
    cursor = first["next_cursor"]
    second = await client.call("list_messages", inbox_id=inbox.id, limit=4, cursor=cursor)

    assert expected == subjects(first) + subjects(second)
    assert (8, 4, False) == (second["total"], second["offset"], second["has_more"])
    forged = ({"cursor": cursor.swapcase()}, {"cursor": "zz"})
    for wrong in ({"q": "x"}, {"offset": 0}, {"offset": 2}, *forged):
        with pytest.raises(CallRefused) as refused:
            await client.call("list_messages", **{"inbox_id": inbox.id, "cursor": cursor, **wrong})
        assert "invalid_input" == refused.value.kind


async def test_unknown_scopes_are_not_found(client: SurfaceClient) -> None:
    for arguments in ({"inbox_id": "inb_unknown"}, {"thread_id": "thr_unknown"}):
        with pytest.raises(CallRefused) as refused:
            await client.call("list_messages", **arguments)
        assert "not_found" == refused.value.kind


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("CAFÉ", 1),
        ("STRASSE", 1),
        ("over a line", 1),
        ("100%", 1),
        ("1_0", 0),
        ('"quoted"', 1),
        ("*", 1),
        ("é", 1),
        ("你好", 1),
        ("r", 1),
    ],
)
async def test_search_is_exact_in_every_script(
    client: SurfaceClient, inbox: InboxFixture, q: str, expected: int
) -> None:
    await inbox.receive("Café", 'Straße over\na line, 100% "quoted" * 你好')

    page = await client.call("search_messages", inbox_id=inbox.id, q=q)

    assert expected == page["total"]


@requirement("search:tool-thread")
@requirement("search:tool-combined")
async def test_the_tool_list_messages_filters_by_thread_inbox_and_text(
    mcp_client: SurfaceClient, inbox: InboxFixture
) -> None:
    thread_id = await a_conversation(inbox)

    whole = await mcp_client.call("list_messages", thread_id=thread_id)
    combined = await mcp_client.call(
        "list_messages", inbox_id=inbox.id, thread_id=thread_id, q="invoice"
    )

    assert (3, ["Re: Plan 2"]) == (whole["total"], subjects(combined))


@requirement("search:tool-search")
@requirement("search:tool-search-thread")
@requirement("search:tool-search-page")
async def test_the_tool_search_messages_searches_and_pages(
    mcp_client: SurfaceClient, inbox: InboxFixture
) -> None:
    thread_id = await a_conversation(inbox)

    everywhere = await mcp_client.call("search_messages", inbox_id=inbox.id, q="invoice")
    within = await mcp_client.call("search_messages", thread_id=thread_id, q="invoice")
    paged = await mcp_client.call(
        "search_messages", inbox_id=inbox.id, query="yes", limit=1, offset=0
    )

    assert ["Other", "Re: Plan 2"] == subjects(everywhere)
    assert ["Re: Plan 2"] == subjects(within)
    assert (1, 2, True) == (paged["count"], paged["total"], paged["has_more"])
    assert "invoice" in everywhere["results"][0]["excerpt"]


async def test_a_search_needs_a_criterion_and_one_text(mcp_client: SurfaceClient) -> None:
    for arguments in ({}, {"limit": 5}, {"q": "a", "query": "b"}, {"q": " \u200b "}):
        with pytest.raises(CallRefused) as refused:
            await mcp_client.call("search_messages", **arguments)
        assert "invalid_input" == refused.value.kind


async def test_html_only_and_sent_mail_are_found(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    await inbox.receive("Letter", None, html="<p>Dear <b>friend</b></p>")
    await client.call(
        "send_message",
        inbox_id=inbox.id,
        to=["x@example.com"],
        subject="Answer",
        body_text="My friend!",
    )

    page = await client.call("search_messages", inbox_id=inbox.id, q="friend")

    assert {"Letter", "Answer"} == set(subjects(page))


async def test_a_list_row_is_small_and_marked_as_untrusted(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    await inbox.receive("Big", "long text " * 5000)

    page = await client.call("list_messages", inbox_id=inbox.id)

    (row,) = page["results"]
    assert page["untrusted"] is True
    assert len(row["snippet"]) <= 120
    assert {"text", "html", "labels", "flags", "excerpt"}.isdisjoint(row)
