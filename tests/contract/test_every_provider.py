"""Contract 001 with an external MCP client: an account of each kind, and a local inbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.requirements import requirement
from tests.contract.surface_clients import RestClient, SurfaceClient, open_client
from tests.mails import mail
from tests.providers.accounts.conftest import needs_root
from tests.providers.accounts.remote_mailboxes import RemoteMailbox, open_remote
from tests.servers.postroom import running

KINDS = ("imap", "fastmail", "gmail", "outlook")
TURNS = 3


@dataclass
class AllAccounts:
    """A server with an account of each kind, their remote mailboxes, and two clients."""

    remotes: dict[str, RemoteMailbox]
    inboxes: dict[str, str]
    rest: RestClient
    agent: SurfaceClient


@asynccontextmanager
async def all_accounts(folder: Path) -> AsyncIterator[AllAccounts]:
    async with AsyncExitStack() as stack:
        remotes = {k: await stack.enter_async_context(open_remote(k)) for k in KINDS}
        settings = {"POSTROOM_SECRETS": "file", "POSTROOM_DOMAIN": "local.example"}
        settings |= {"POSTROOM_ACCOUNT_ALLOW": "127.0.0.0/8,::1/128"}
        begin = datetime.now(UTC) - timedelta(days=1)
        for number, (kind, remote) in enumerate(remotes.items()):
            settings |= remote.settings
            remote.rename(f"ana@{kind}.example")
            for turn in range(TURNS):
                date = begin + timedelta(minutes=turn * 10 + number)
                remote.deliver(mail(f"Report {turn} {kind}", date=date, to=f"ana@{kind}.example"))
        server = stack.enter_context(running(folder / "data", **settings))
        rest = RestClient(server)
        await stack.enter_async_context(rest.http)
        agent = await stack.enter_async_context(open_client("mcp-http", server))
        accounts = AllAccounts(remotes, await added_accounts(rest, remotes), rest, agent)
        local = await agent.call("create_inbox", address="ana@local.example")
        accounts.inboxes["local"] = local["id"]
        for turn in range(TURNS):
            raw = mail(f"Report {turn} local", date=begin + timedelta(minutes=turn * 10 + 5))
            to = {"recipient": "ana@local.example"}
            headers = {"Content-Type": "message/rfc822"}
            answer = await rest.http.post("/v1/inbound", params=to, content=raw, headers=headers)
            assert 201 == answer.status_code
        yield accounts


async def added_accounts(rest: RestClient, remotes: dict[str, RemoteMailbox]) -> dict[str, str]:
    """Add the accounts and wait until each was synced once; returns their inboxes."""
    for kind, remote in remotes.items():
        answer = await rest.http.post("/v1/accounts", json={"account_id": kind, **remote.arguments})
        assert 201 == answer.status_code, answer.text

    async def all_are_read() -> dict[str, str] | None:
        rows = (await rest.http.get("/v1/accounts")).json()["results"]
        is_done = all((row["state"], row["synced"]) == ("ready", TURNS) for row in rows)
        return {row["id"]: row["inbox_id"] for row in rows} if is_done else None

    return await poll(all_are_read)


async def poll(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call until its result is not empty."""
    async with asyncio.timeout(120):
        while not (found := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return found


@requirement("mail:search-page")
@pytest.mark.may_skip("Cyrus starts only as root")
async def test_a_search_over_every_kind_of_account_is_one_page_with_one_total(
    tmp_path: Path,
) -> None:
    needs_root()
    async with all_accounts(tmp_path) as accounts:
        page = await accounts.agent.call("search_messages", q="REPORT", limit=50)
        parts, cursor = [], {}
        while not parts or parts[-1]["has_more"]:
            parts.append(
                await accounts.agent.call("search_messages", q="report", limit=4, **cursor)
            )
            cursor = {"cursor": parts[-1].get("next_cursor")}
        removed = await accounts.rest.http.delete("/v1/accounts/outlook")
        left = await accounts.agent.call("search_messages", q="report")

        newest_first = [
            f"Report {turn} {kind}" for turn in (2, 1, 0) for kind in ("local", *reversed(KINDS))
        ]
        assert newest_first == [row["subject"] for row in page["results"]]
        assert (15, 15, 15) == (page["count"], page["total"], page["total_count"])
        assert {*accounts.inboxes.values()} == {row["inbox_id"] for row in page["results"]}
        assert newest_first == [row["subject"] for part in parts for row in part["results"]]
        assert {15} == {part["total"] for part in parts}
        assert (204, 12) == (removed.status_code, left["total"])


@requirement("mail:capabilities")
@pytest.mark.may_skip("Cyrus starts only as root")
async def test_every_tool_works_on_every_kind_of_account(tmp_path: Path) -> None:
    needs_root()
    async with all_accounts(tmp_path) as accounts:
        for kind in KINDS:
            await read_with_every_tool(accounts, kind)
            await change_with_every_tool(accounts, kind)
            await send_with_every_tool(accounts, kind)
        told = await accounts.agent.call("get_capabilities")

        assert ("local", {*KINDS}) == (told["provider"], {a["provider"] for a in told["accounts"]})


async def read_with_every_tool(accounts: AllAccounts, kind: str) -> None:
    agent, inbox_id = accounts.agent, accounts.inboxes[kind]
    own = {"inbox_id": inbox_id, "from": "ana@example.com", "after_date": "2020-01-01"}
    found = await agent.call("search_messages", q="report", **own)
    assert TURNS == found["total"]
    row = found["results"][0]
    message = await agent.call("get_message", message_id=row["id"], include_headers=True)
    assert (row["subject"], "Good morning.") == (message["subject"], message["text"].strip())
    assert "Subject" in {header["name"] for header in message["headers"]}
    thread = await agent.call("get_thread", thread_id=row["thread_id"])
    assert [row["id"]] == [m["id"] for m in thread["messages"]]
    told = await agent.call("get_capabilities", account_id=kind)
    assert (kind, True) == (told["provider"], told["can_send"])


async def change_with_every_tool(accounts: AllAccounts, kind: str) -> None:
    agent, remote = accounts.agent, accounts.remotes[kind]
    subject = f"Report 1 {kind}"
    found = await agent.call("search_messages", q=subject)
    ids = [row["id"] for row in found["results"]]
    labelled = await agent.call("apply_label", message_ids=ids, label="Agenda")
    flagged = await agent.call("update_message", message_id=ids[0], flags=["seen", "flagged"])
    moved = await agent.call("move_message", message_id=ids[0], destination="Archive")
    assert [ids] * 3 == [result["succeeded"] for result in (labelled, flagged, moved)]

    async def is_there() -> bool:
        other_box = await asyncio.to_thread(remote.find, subject)
        if other_box is None:  # moved between the two requests
            return False
        is_marked = {"seen", "flagged"} == other_box.flags and "agenda" in other_box.labels
        return is_marked and "Archive" == other_box.mailbox

    await poll(is_there)


async def send_with_every_tool(accounts: AllAccounts, kind: str) -> None:
    agent, remote, inbox_id = accounts.agent, accounts.remotes[kind], accounts.inboxes[kind]
    alias = {"email": f"ana+sales@{kind}.example", "name": "Sales", "signature": "<b>The desk</b>"}
    made = await agent.call("create_alias", inbox_id=inbox_id, **alias)
    listed = await agent.call("list_identities", inbox_id=inbox_id)
    emails = {row["email"] for row in listed["results"]}
    assert {f"ana@{kind}.example", made["email"]} <= emails
    outgoing_mail = {
        "to": ["bo@elsewhere.example"],
        "subject": f"From {kind}",
        "body_text": "Hello Bo",
    }
    sent = await agent.call("send_message", **{"from": made["email"]}, **outgoing_mail)

    async def has_left() -> list[bytes]:
        return [raw for raw in remote.sent() if f"From {kind}".encode() in raw]

    (raw,) = await poll(has_left)
    assert made["email"].encode() in raw
    assert b"The desk" in raw
    message = await agent.call("get_message", message_id=sent["message_id"])
    assert (inbox_id, "outbound") == (message["inbox_id"], message["direction"])
