"""A tool that a key may not use is not listed, and names the missing scope when called."""

from __future__ import annotations

import json
import subprocess
from itertools import chain, combinations

import pytest
from mcp import Client

from postroom.model.key import ALL_SCOPES, Scope
from postroom.model.view import NOTHING
from postroom.operations.keys import CreateKey, create_key
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.tool_listing import BY_NAME, DEFAULT, ON_DEMAND
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.callers import a_caller
from tests.servers.postroom import forked_command
from tests.surfaces.mcp.conftest import Agent
from tests.surfaces.mcp.stdio_client import started
from tests.surfaces.mcp.test_http import NEWEST, connected, serving

TOOLS = choose_tools((*DEFAULT, *ON_DEMAND, *BY_NAME))
SCOPES = (Scope.READ, Scope.WRITE, Scope.SEND)
SUBSETS = list(chain.from_iterable(combinations(SCOPES, count) for count in range(4)))


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("scopes", SUBSETS, ids="-".join)
async def test_the_tools_of_other_scopes_are_not_listed(app, scopes):
    caller = a_caller("key_1", frozenset(scopes))

    async with Client(make_server(app, TOOLS, lambda _: caller)) as client:
        listed = await names(client)

    needed = {tool.name: {tool.operation.scope, tool.operation.other_scope} for tool in TOOLS}
    assert {name for name, enough in needed.items() if enough & {*scopes}} == listed


async def test_a_key_without_namespaces_sees_no_tools_of_memories(app):
    caller = a_caller("key_1", namespaces=NOTHING)

    async with Client(make_server(app, TOOLS, lambda _: caller)) as client:
        listed = await names(client)

    assert {"search_messages", "send_mail"} <= listed
    assert set() == listed & {"remember", "recall", "forget"}
    assert [] == [name for name in listed if name.startswith("memory_")]


async def test_calling_a_tool_that_is_not_listed_names_the_scope(app):
    caller = a_caller("key_1", frozenset({Scope.READ}))

    async with Client(make_server(app, TOOLS, lambda _: caller)) as client:
        error = await Agent(client).fail("send_mail", to=["ana@example.com"], body="Hi")

    assert "PERMISSION_DENIED" == error["code"]
    assert "this needs a key with the scope send; yours has read" == error["message"]


@pytest.fixture
async def reader(ctx):
    """A key that may only read."""
    return (await create_key(ctx, CreateKey(name="reader", scopes=[Scope.READ]))).key


async def test_over_http_each_key_has_its_own_list(app, ctx, reader):
    writer = await create_key(ctx, CreateKey(name="writer", scopes=list(ALL_SCOPES)))

    async with serving(app) as url:
        seen = [await listed_over_http(url, key) for key in (reader, writer.key, reader)]

    assert "send_email" not in seen[0]
    assert "send_email" in seen[1]
    assert seen[0] == seen[2]


async def listed_over_http(url: str, key: str) -> set[str]:
    async with connected(url, key, NEWEST) as client:
        return await names(client)


def test_over_stdio_a_key_has_its_own_list(tmp_path):
    with started(tmp_path) as stdio:
        everything = stdio.hello().ask("tools/list")["result"]["tools"]
    make_key = ["key", "create", "reader", "--data", str(tmp_path), "--output", "json"]
    made = subprocess.run(forked_command(*make_key), capture_output=True, check=True)
    key = json.loads(made.stdout)["key"]

    with started(tmp_path, "--toolsets", "agent", "--key", key) as stdio:
        tools = stdio.hello().ask("tools/list")["result"]["tools"]
        refused = stdio.call("undo", id="pln_1")

    assert "send_email" in {tool["name"] for tool in everything}
    assert {tool.name for tool in choose_tools(["agent"], read_only=True)} == {
        tool["name"] for tool in tools
    }
    assert "this needs a key with the scope write" in refused["content"][0]["text"]
