"""The same call has the same result on REST, MCP and the command line, including types."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.surface_clients import CallRefused, SurfaceClient, open_client
from tests.servers.postroom import Running

DOORS = ("rest", "mcp-http", "mcp-stdio", "cli")
FILES = [("plan 你好.pdf", "application/pdf", b"%PDF-1.4"), ("a.txt", "text/plain", b"a")]


@pytest.fixture
async def clients(server: Running) -> AsyncIterator[dict[str, SurfaceClient]]:
    async with AsyncExitStack() as stack:
        yield {kind: await stack.enter_async_context(open_client(kind, server)) for kind in DOORS}


async def answer(client: SurfaceClient, tool: str, arguments: dict[str, Any]) -> str:
    """The result of a call as JSON text, so that 1, 1.0 and true differ."""
    try:
        body = await client.call(tool, **arguments)
    except CallRefused as refused:
        body = {"refused": refused.kind, "because": str(refused)}
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


async def differences(
    clients: dict[str, SurfaceClient], calls: list[tuple[str, dict[str, Any]]]
) -> list[tuple[str, str, str, str]]:
    """The calls whose result on some surface differs from REST."""
    found = []
    for tool, arguments in calls:
        expected = await answer(clients["rest"], tool, arguments)
        for kind in DOORS[1:]:
            actual = await answer(clients[kind], tool, arguments)
            if actual != expected:
                found.append((tool, kind, expected, actual))
    return found


async def test_every_surface_reads_the_same(
    clients: dict[str, SurfaceClient], inbox: InboxFixture
) -> None:
    root = await inbox.receive(
        "Plan: 'Straße' \"北京\"",
        "Shall we?\n\nAna",
        html="<p>Shall <b>we</b>?</p>",
        cc="cy@c.org",
        attachments=FILES,
        message_id=f"<root@{inbox.id}>",
    )
    await inbox.receive("Re: Plan", "> Shall we?\nYes.", in_reply_to=f"<root@{inbox.id}>")
    message, thread = root["message_id"], root["thread_id"]
    listed = await clients["rest"].call("list_attachments", message_id=message)
    text_file = listed["results"][1]["id"]

    calls = [
        ("list_messages", {"inbox_id": inbox.id}),
        ("list_messages", {"inbox_id": inbox.id, "limit": 1, "offset": 1}),
        ("list_messages", {"inbox_id": inbox.id, "q": "strasse"}),
        ("search_messages", {"inbox_id": inbox.id, "from": "@example.com", "has_attachment": True}),
        ("search_messages", {"inbox_id": inbox.id, "after_date": "2026-03-01", "labels": ["x"]}),
        ("get_message", {"message_id": message}),
        (
            "get_message",
            {
                "message_id": message,
                "include_html": True,
                "include_headers": True,
                "include_quoted": True,
                "include_attachments": True,
                "max_chars": 5,
            },
        ),
        ("list_threads", {"inbox_id": inbox.id}),
        ("get_thread", {"thread_id": thread, "include_text": True}),
        ("list_attachments", {"thread_id": thread}),
        ("get_attachment_content", {"attachment_id": listed["results"][0]["id"]}),
        ("get_attachment_content", {"attachment_id": text_file, "format": "text", "max_chars": 5}),
    ]

    assert [] == await differences(clients, calls)


async def test_every_surface_refuses_the_same(
    clients: dict[str, SurfaceClient], inbox: InboxFixture
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_messages", {"q": "x"}),
        ("list_messages", {"inbox_id": "inb_unknown"}),
        ("list_messages", {"inbox_id": inbox.id, "limit": 101}),
        ("list_messages", {"inbox_id": inbox.id, "cursor": "forged"}),
        ("search_messages", {"inbox_id": inbox.id, "after_date": "yesterday"}),
        ("get_message", {"message_id": "msg_unknown"}),
        ("get_message", {"message_id": "thr_wrong"}),
        ("get_thread", {"thread_id": "thr_unknown"}),
        ("list_attachments", {}),
        ("create_inbox", {"address": "a@elsewhere.example"}),
        ("create_inbox", {"address": inbox.address}),
        ("send_message", {"to": ["nobody"], "subject": "x", "body_text": "y"}),
    ]

    assert [] == await differences(clients, calls)


async def test_a_change_on_one_surface_is_visible_on_the_others(
    clients: dict[str, SurfaceClient], inbox: InboxFixture
) -> None:
    received = await inbox.receive("Shared")
    message_id = received["message_id"]

    for number, client in enumerate(clients.values()):
        await client.call("apply_label", message_ids=[message_id], label=f"L{number}")
        await client.call("move_message", message_id=message_id, destination=f"Box {number}")

    seen = [await client.call("get_message", message_id=message_id) for client in clients.values()]
    assert [["L0", "L1", "L2", "L3"]] * 4 == [message["labels"] for message in seen]
    assert [["Box 3"]] * 4 == [message["mailboxes"] for message in seen]


async def test_every_surface_has_the_same_memories(
    clients: dict[str, SurfaceClient], inbox: InboxFixture
) -> None:
    name = {"namespace": inbox.id}
    received = await inbox.receive("Bank", "We are paid to 7.", sender="eve@evil.example")
    link = [{"type": "source", "to": received["message_id"], "weight": 0.5}]
    for kind, client in clients.items():
        text = f"Said {kind}: the café pays <b>invoices</b> late."
        extras = {"tags": ["x", kind]} if kind != "cli" else {}
        await client.call("memory_add", key=f"by/{kind} é", text=text, **extras, **name)
    await clients["rest"].call("memory_add", key="bank", text="They are 7.", links=link, **name)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_list", {}),
        ("memory_list", {"limit": 2, "offset": 1}),
        ("memory_list", {"tags": ["x", "rest"]}),
        ("memory_list", {"linked_to": received["message_id"]}),
        ("memory_get", {"key": "by/cli é"}),
        ("memory_get", {"key": "bank", "include_history": True}),
        ("memory_search", {"query": "who is late with a bill?"}),
        ("memory_search", {"query": "invoice", "limit": 1, "offset": 1}),
        ("memory_fulltext_search", {"keywords": 'invoice,"the café"', "operator": "AND"}),
        ("memory_fulltext_search", {"keywords": "rest,cli"}),
        ("memory_search", {"query": "x", "limit": 101}),
        ("memory_fulltext_search", {"keywords": ","}),
        ("memory_fulltext_search", {"keywords": "x", "operator": "NOR"}),
        ("memory_get", {"key": "nothing"}),
        ("memory_update", {"key": "nothing", "text": "x"}),
        ("memory_delete", {"key": "nothing"}),
    ]

    assert [] == await differences(clients, [(tool, {**asked, **name}) for tool, asked in calls])
    beside = {"message_id": received["message_id"], "include_memories": True}
    hybrid = {"q": "where do they get paid?", "inbox_id": inbox.id, "mode": "hybrid"}
    assert [] == await differences(clients, [("get_message", beside), ("search_messages", hybrid)])
