"""One server on each database for all contract tests; each test has its own inboxes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.contract.live_imap import (
    agent,
    box,
    dovecot,
    live_server,
    other_box,
    variables,
    work_box,
)
from tests.contract.sample_memories import NOTES
from tests.contract.surface_clients import RestClient, SurfaceClient, open_client
from tests.mails import mail
from tests.servers.postroom import Running, running

__all__ = ["agent", "box", "dovecot", "live_server", "other_box", "variables", "work_box"]


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of MCP on PostgreSQL only `make fuzz` runs all: REST is tested there, and MCP on SQLite."""
    for item in items:
        case = getattr(item, "callspec", None)
        given = case.params if case else {}
        surface = str(given.get("client") or given.get("kind"))
        if given.get("server") == "postgres" and surface.startswith("mcp"):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    extra = {}
    if request.param == "postgres":
        extra["POSTROOM_DATABASE_URL"] = request.getfixturevalue("postgres_server").new_database()
    with running(tmp_path_factory.mktemp("contract") / "data", **extra) as started:
        yield started


@pytest.fixture
async def rest(server: Running) -> AsyncIterator[RestClient]:
    client = RestClient(server)
    async with client.http:
        yield client


@pytest.fixture(params=["rest", "mcp-http"])
async def client(request: pytest.FixtureRequest, server: Running) -> AsyncIterator[SurfaceClient]:
    """Contract tests run on every surface."""
    async with open_client(request.param, server) as opened:
        yield opened


@pytest.fixture
async def mcp_client(server: Running) -> AsyncIterator[SurfaceClient]:
    """For operations that only MCP has."""
    async with open_client("mcp-http", server) as opened:
        yield opened


class InboxFixture:
    """An inbox for one test, and a method that delivers mail to it."""

    def __init__(self, rest: RestClient, shape: dict[str, Any]) -> None:
        self._rest = rest
        self.id: str = shape["id"]
        self.address: str = shape["address"]

    async def receive(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Deliver a mail; the arguments are those of `tests.mails.mail`."""
        response = await self._rest.http.post(
            "/v1/inbound",
            params={"recipient": self.address},
            content=mail(*args, **kwargs, to=self.address),
            headers={"Content-Type": "message/rfc822"},
        )
        assert response.status_code in (200, 201), response.text
        body: dict[str, Any] = response.json()
        return body


async def new_inbox(rest: RestClient) -> InboxFixture:
    return InboxFixture(rest, await rest.call("create_inbox", username=f"t-{secrets.token_hex(6)}"))


@pytest.fixture
async def inbox(rest: RestClient) -> InboxFixture:
    return await new_inbox(rest)


@pytest.fixture
async def other(rest: RestClient) -> InboxFixture:
    return await new_inbox(rest)


@pytest.fixture
async def namespace(rest: RestClient) -> str:
    """A namespace for one test, with a few memories."""
    name = f"ns-{secrets.token_hex(6)}"
    for key, text in NOTES.items():
        await rest.call("memory_add", key=key, text=text, namespace=name)
    return name
