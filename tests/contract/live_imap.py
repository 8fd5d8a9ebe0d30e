"""Live IMAP as an agent uses it: the official client, a Postroom, a real Dovecot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.imaplib_client import ImaplibMailbox, ImapServer, imaplib_mailbox
from tests.servers.postroom import Running, environment, forked_command, running

Body = dict[str, Any]


def account_variables(server: ImapServer, account: str, user: str) -> dict[str, str]:
    """The environment variables of a live account."""
    values = {
        "HOST": "127.0.0.1",
        "PORT": str(server.imaps),
        "USER": user,
        "PASS": PASSWORD,
        "CA_FILE": str(server.certificate),
    }
    return {f"MAIL_IMAP_{account}_{name}": value for name, value in values.items()}


@dataclass(frozen=True)
class Agent:
    """Calls tools, and checks properties that every answer must have."""

    client: Client

    async def call(self, tool: str, /, **arguments: Any) -> Body:
        """The complete result of a call, successful or not."""
        result = await self.client.call_tool(tool, arguments)
        body = result.structured_content
        assert body is not None
        assert body == json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert ("error" in body) is bool(result.is_error)
        listed = {tool.name: tool for tool in (await self.client.list_tools()).tools}
        jsonschema.validate(body, listed[tool].output_schema)
        return body

    async def data(self, tool: str, /, **arguments: Any) -> Body:
        """The data of a successful call, complete or partial."""
        body = await self.call(tool, **arguments)
        assert "error" not in body, body
        data: Body = body["data"]
        return data

    async def error(self, tool: str, /, **arguments: Any) -> Body:
        """The error of a refused call."""
        body = await self.call(tool, **arguments)
        assert "error" in body, body
        error: Body = body["error"]
        return error


@asynccontextmanager
async def agent_over_http(server: Running) -> AsyncIterator[Agent]:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport) as client:
            yield Agent(client)


@asynccontextmanager
async def agent_over_stdio(
    data: Path, variables: dict[str, str], *options: str
) -> AsyncIterator[Agent]:
    program, *words = forked_command("mcp", *options)
    parameters = StdioServerParameters(
        command=program, args=words, env=environment(data, variables)
    )
    async with Client(parameters) as client:
        yield Agent(client)


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot() as server:
        yield server


@pytest.fixture(scope="session")
def variables(dovecot: Dovecot) -> dict[str, str]:
    """Two accounts with changes enabled."""
    return {
        **account_variables(dovecot, "DEFAULT", "alice"),
        **account_variables(dovecot, "WORK", "bob"),
        "MAIL_IMAP_WRITE_ENABLED": "true",
    }


@pytest.fixture(scope="session")
def live_server(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]
) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("live") / "data", **variables) as started:
        yield started


@pytest.fixture
async def agent(live_server: Running) -> AsyncIterator[Agent]:
    """An agent over HTTP; one test shows that the tools over stdio are the same."""
    async with agent_over_http(live_server) as opened:
        yield opened


@pytest.fixture
def box(dovecot: Dovecot) -> Iterator[ImaplibMailbox]:
    """A mailbox for one test, in the account `default`."""
    with imaplib_mailbox(dovecot, "alice") as opened:
        yield opened


@pytest.fixture
def other_box(dovecot: Dovecot) -> Iterator[ImaplibMailbox]:
    """Another mailbox of the account `default`."""
    with imaplib_mailbox(dovecot, "alice") as opened:
        yield opened


@pytest.fixture
def work_box(dovecot: Dovecot) -> Iterator[ImaplibMailbox]:
    """A mailbox of the account `work`."""
    with imaplib_mailbox(dovecot, "bob") as opened:
        yield opened


def id_of(box: ImaplibMailbox, uid: int, account: str = "default") -> str:
    """The message_id of a message, in the form of the contract."""
    return f"imap:{account}:{box.name}:{box.uidvalidity}:{uid}"
