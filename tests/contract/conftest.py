"""One server on each database for all contract tests; each test has inboxes of its own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.contract.doors import AccessControl, RestDoor, open_door
from tests.contract.live import agent, at_work, box, dovecot, live_server, there, variables
from tests.contract.notes import NOTES
from tests.mails import mail
from tests.servers.postroom import Running, running

__all__ = ["agent", "at_work", "box", "dovecot", "live_server", "there", "variables"]


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
async def rest(server: Running) -> AsyncIterator[RestDoor]:
    door = RestDoor(server)
    async with door.http:
        yield door


@pytest.fixture(params=["rest", "mcp-http"])
async def door(request: pytest.FixtureRequest, server: Running) -> AsyncIterator[AccessControl]:
    """A claim of a contract holds whichever way one enters."""
    async with open_door(request.param, server) as opened:
        yield opened


@pytest.fixture
async def tools(server: Running) -> AsyncIterator[AccessControl]:
    """For what only an agent asks for."""
    async with open_door("mcp-http", server) as opened:
        yield opened


class ThisInbox:
    """An inbox of the test's own, and a way to let mail arrive in it."""

    def __init__(self, rest: RestDoor, shape: dict[str, Any]) -> None:
        self._rest = rest
        self.id: str = shape["id"]
        self.address: str = shape["address"]

    async def receive(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Let a mail arrive; the arguments are those of `tests.mails.mail`."""
        response = await self._rest.http.post(
            "/v1/inbound",
            params={"recipient": self.address},
            content=mail(*args, **kwargs, to=self.address),
            headers={"Content-Type": "message/rfc822"},
        )
        assert response.status_code in (200, 201), response.text
        body: dict[str, Any] = response.json()
        return body


async def new_inbox(rest: RestDoor) -> ThisInbox:
    return ThisInbox(rest, await rest.call("create_inbox", username=f"t-{secrets.token_hex(6)}"))


@pytest.fixture
async def inbox(rest: RestDoor) -> ThisInbox:
    return await new_inbox(rest)


@pytest.fixture
async def other(rest: RestDoor) -> ThisInbox:
    return await new_inbox(rest)


@pytest.fixture
async def namespace(rest: RestDoor) -> str:
    """A namespace of the test's own, with a few memories."""
    name = f"ns-{secrets.token_hex(6)}"
    for key, text in NOTES.items():
        await rest.call("memory_add", key=key, text=text, namespace=name)
    return name
