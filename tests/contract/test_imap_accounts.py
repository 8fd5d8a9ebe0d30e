"""Contract 002: the tools, their envelope, and accounts with their mailboxes."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.contract.live_imap import Agent, account_variables, agent_over_http, agent_over_stdio
from tests.contract.requirements import requirement
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.imaplib_client import ImaplibMailbox, imaplib_mailbox
from tests.servers.postroom import Running, environment

TOOLS = {
    "imap_list_accounts": set(),
    "imap_verify_account": {"account_id"},
    "imap_list_mailboxes": {"account_id"},
    "imap_search_messages": {
        *("account_id", "mailbox", "cursor", "query", "from", "to", "subject", "unread_only"),
        *("last_days", "start_date", "end_date", "limit", "include_snippet", "snippet_max_chars"),
    },
    "imap_get_message": {
        *("account_id", "message_id", "body_max_chars", "include_headers", "include_all_headers"),
        *("include_html", "extract_attachment_text", "attachment_text_max_chars"),
    },
    "imap_get_message_raw": {"account_id", "message_id", "max_bytes"},
    "imap_update_message_flags": {"account_id", "message_id", "add_flags", "remove_flags"},
    "imap_copy_message": {
        *("account_id", "message_id", "destination_mailbox", "destination_account_id"),
    },
    "imap_move_message": {"account_id", "message_id", "destination_mailbox"},
    "imap_delete_message": {"account_id", "message_id", "confirm"},
}
DEFAULTS = {
    ("imap_verify_account", "account_id"): "default",
    ("imap_list_mailboxes", "account_id"): "default",
    ("imap_search_messages", "account_id"): "default",
    ("imap_search_messages", "limit"): 10,
    ("imap_get_message", "body_max_chars"): 2000,
    ("imap_get_message", "include_headers"): True,
    ("imap_get_message_raw", "max_bytes"): 200_000,
}
REQUIRED = {
    "imap_search_messages": ["mailbox"],
    "imap_get_message": ["message_id"],
    "imap_get_message_raw": ["message_id"],
    "imap_update_message_flags": ["message_id"],
    "imap_copy_message": ["message_id", "destination_mailbox"],
    "imap_move_message": ["message_id", "destination_mailbox"],
    "imap_delete_message": ["message_id", "confirm"],
}
WRITES = {
    *("imap_update_message_flags", "imap_copy_message", "imap_move_message"),
    "imap_delete_message",
}
ISSUE = {"code", "stage", "message", "retryable"}


def is_meta(meta: dict[str, Any]) -> bool:
    stamp = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["now_utc"])
    return stamp is not None and meta["duration_ms"] >= 0 and 2 == len(meta)


@requirement("imap:tools")
async def test_the_ten_tools_have_the_arguments_and_defaults_of_the_contract(agent: Agent) -> None:
    listed = {t.name: t for t in (await agent.client.list_tools()).tools}
    live = {name: tool for name, tool in listed.items() if name.startswith("imap_")}

    properties = {name: tool.input_schema["properties"] for name, tool in live.items()}
    assert TOOLS == {name: set(arguments) for name, arguments in properties.items()}
    assert REQUIRED == {
        name: tool.input_schema["required"]
        for name, tool in live.items()
        if "required" in tool.input_schema
    }
    assert DEFAULTS == {
        (name, argument): schema["default"]
        for name, arguments in properties.items()
        for argument, schema in arguments.items()
        if "default" in schema
    }


@requirement("imap:tools")
async def test_stdio_has_the_same_tools_and_read_only_hides_the_changes(
    tmp_path: Path, variables: dict[str, str], agent: Agent
) -> None:
    over_http = (await agent.client.list_tools()).tools
    async with agent_over_stdio(tmp_path, variables) as one:
        over_stdio = (await one.client.list_tools()).tools
        accounts = await one.data("imap_list_accounts")
    async with agent_over_stdio(tmp_path, variables, "--read-only") as two:
        reading = {tool.name for tool in (await two.client.list_tools()).tools}

    assert over_http == over_stdio
    assert ["default", "work"] == [row["account_id"] for row in accounts["accounts"]]
    assert TOOLS.keys() - WRITES == {name for name in reading if name.startswith("imap_")}


@requirement("imap:environment")
async def test_without_an_account_the_tools_are_there_only_when_named(tmp_path: Path) -> None:
    async with agent_over_stdio(tmp_path, {}) as unnamed:
        hidden = [tool.name for tool in (await unnamed.client.list_tools()).tools]
    async with agent_over_stdio(tmp_path, {}, "--toolsets", "imap") as named:
        shown = [tool.name for tool in (await named.client.list_tools()).tools]
        accounts = await named.data("imap_list_accounts")
        error = await named.error("imap_list_mailboxes")

    assert not [name for name in hidden if name.startswith("imap_")]
    assert sorted(TOOLS) == sorted(shown)
    assert [] == accounts["accounts"]
    assert "not_found" == error["code"]
    assert "MAIL_IMAP_<ACCOUNT>_HOST" in error["message"]


@requirement("imap:envelope")
@requirement("imap:list-accounts")
async def test_accounts_are_listed_without_secrets(agent: Agent, dovecot: Dovecot) -> None:
    body = await agent.call("imap_list_accounts")

    assert {"summary", "data", "meta"} == body.keys()
    assert is_meta(body["meta"])
    assert "2 accounts configured" == body["summary"]
    row = {"host": "127.0.0.1", "port": dovecot.imaps, "secure": True}
    assert [{"account_id": "default", **row}, {"account_id": "work", **row}] == body["data"][
        "accounts"
    ]
    step = body["data"]["next_action"]
    assert {"instruction", "tool", "arguments"} == step.keys()
    assert ("imap_list_mailboxes", {"account_id": "default"}) == (step["tool"], step["arguments"])


@requirement("imap:verify-account")
async def test_an_account_that_works_is_verified(agent: Agent, dovecot: Dovecot) -> None:
    data = await agent.data("imap_verify_account", account_id="work")

    assert ("ok", [], "work", True) == tuple(
        data[name] for name in ("status", "issues", "account_id", "ok")
    )
    assert data["latency_ms"] >= 0
    assert {"host": "127.0.0.1", "port": dovecot.imaps, "secure": True} == data["server"]
    assert "IMAP4rev1" in data["capabilities"]
    assert len(data["capabilities"]) <= 256
    assert "imap_list_mailboxes" == data["next_action"]["tool"]


@requirement("imap:verify-account")
@requirement("imap:soft")
@requirement("imap:secrets")
@requirement("imap:tls")
async def test_accounts_that_do_not_work_say_why_in_data(
    tmp_path: Path, dovecot: Dovecot, variables: dict[str, str]
) -> None:
    wrong = {
        **account_variables(dovecot, "PASSWORD", "alice"),
        "MAIL_IMAP_PASSWORD_PASS": "canary-5521",
        **account_variables(dovecot, "PORT", "alice"),
        "MAIL_IMAP_PORT_PORT": "1",
        **account_variables(dovecot, "TRUST", "alice"),
        "MAIL_IMAP_TRUST_CA_FILE": "",
    }
    async with agent_over_stdio(tmp_path, wrong) as agent:
        found = {
            name: await agent.data("imap_verify_account", account_id=name)
            for name in ("password", "port", "trust")
        }
        searched = await agent.data("imap_search_messages", account_id="password", mailbox="INBOX")
        everything = str(found) + str(searched) + str(await agent.call("imap_list_accounts"))

    assert {("failed", False)} == {(data["status"], data["ok"]) for data in found.values()}
    codes = {name: data["issues"][0]["code"] for name, data in found.items()}
    assert {"password": "auth_failed", "port": "internal", "trust": "internal"} == codes
    assert "certificate" in found["trust"]["issues"][0]["message"]
    assert ISSUE <= found["port"]["issues"][0].keys()
    assert found["port"]["issues"][0]["retryable"]
    assert "imap_verify_account" == searched["next_action"]["tool"]
    assert ("failed", "auth_failed", []) == (
        searched["status"],
        searched["issues"][0]["code"],
        searched["messages"],
    )
    assert "canary-5521" not in everything
    assert PASSWORD not in everything


@requirement("imap:list-mailboxes")
async def test_mailboxes_are_listed_by_the_names_people_gave_them(
    agent: Agent, dovecot: Dovecot
) -> None:
    with imaplib_mailbox(dovecot, "alice", "Entwürfe: 日本", "Entw&APw-rfe: &ZeVnLA-") as box:
        data = await agent.data("imap_list_mailboxes")
        box.close()

    names = [row["name"] for row in data["mailboxes"]]
    assert ("ok", [], "default") == (data["status"], data["issues"], data["account_id"])
    assert "INBOX" == names[0]
    assert "Entwürfe: 日本" in names
    assert {"name": "Gesendet", "delimiter": "/", "special_use": "\\Sent"} in data["mailboxes"]
    step = data["next_action"]
    assert ("imap_search_messages", "INBOX") == (step["tool"], step["arguments"]["mailbox"])


@requirement("imap:list-mailboxes")
async def test_more_than_two_hundred_mailboxes_are_truncated_with_a_warning(
    tmp_path: Path, dovecot: Dovecot
) -> None:
    with imaplib_mailbox(dovecot, "dave") as box:
        for number in range(205):
            box.imap.create(f"many-{number:03}")
    async with agent_over_stdio(tmp_path, account_variables(dovecot, "DEFAULT", "dave")) as agent:
        data = await agent.data("imap_list_mailboxes")

    assert ("partial", 200) == (data["status"], len(data["mailboxes"]))
    assert ["truncated"] == [issue["code"] for issue in data["issues"]]
    assert "\\Trash" in [row.get("special_use") for row in data["mailboxes"]]


@requirement("imap:list-accounts")
async def test_more_than_fifty_accounts_are_truncated_with_a_warning(
    tmp_path: Path, dovecot: Dovecot
) -> None:
    many = {}
    for number in range(52):
        many |= account_variables(dovecot, f"A{number:02}", "alice")
    async with agent_over_stdio(tmp_path, many) as agent:
        data = await agent.data("imap_list_accounts")

    assert (50, "partial") == (len(data["accounts"]), data["status"])
    assert ["truncated"] == [issue["code"] for issue in data["issues"]]


@requirement("imap:error")
@requirement("imap:account-id")
@pytest.mark.parametrize("account_id", ["", "a b", "a" * 65, "ä", "a\n", "../x"])
async def test_an_invalid_account_id_is_refused(agent: Agent, account_id: str) -> None:
    for tool in ("imap_verify_account", "imap_list_mailboxes"):
        body = await agent.call(tool, account_id=account_id)

        assert {"error", "meta"} == body.keys()
        assert {"code", "message", "details"} == body["error"].keys()
        assert "invalid_input" == body["error"]["code"]
        assert body["error"]["message"].startswith("account_id")
        assert is_meta(body["meta"])


@requirement("imap:account-id")
async def test_an_account_that_is_not_configured_is_not_found(agent: Agent) -> None:
    error = await agent.error("imap_list_mailboxes", account_id="nobody")

    assert "not_found" == error["code"]
    assert "default, work" in error["message"]


@requirement("imap:environment")
async def test_wrong_variables_stop_the_start_and_are_named(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "postroom", "mcp"),
        env=environment(tmp_path, {"MAIL_IMAP_X_HOST": "a.example", "MAIL_IMAP_X_PROT": "1"}),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 120)

    assert process.returncode != 0
    assert "MAIL_IMAP_X_USER: is required" in err.decode()
    assert "did you mean MAIL_IMAP_X_PORT?" in err.decode()


async def test_a_key_that_is_limited_to_inboxes_sees_no_live_account(
    live_server: Running, box: ImaplibMailbox
) -> None:
    headers = {"Authorization": f"Bearer {live_server.key}"}
    async with httpx2.AsyncClient(base_url=live_server.url, headers=headers, timeout=60) as http:
        inbox = (await http.post("/v1/inboxes", json={})).json()
        key = (await http.post("/v1/keys", json={"name": "k", "inboxes": [inbox["id"]]})).json()
    async with agent_over_http(replace(live_server, key=key["key"])) as agent:
        accounts = await agent.data("imap_list_accounts")
        error = await agent.error("imap_search_messages", mailbox=box.name)

    assert [] == accounts["accounts"]
    assert "not_found" == error["code"]
