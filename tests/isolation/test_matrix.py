"""Every operation called with limited keys: objects of others do not exist for them.

The requests are generated from the request classes, so that new operations are covered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from mcp import Client

from postroom.surfaces.cli.command_table import COMMANDS, OperationCommand
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.tool_listing import BY_NAME, DEFAULT, ON_DEMAND
from postroom.surfaces.mcp.toolsets import choose_tools
from postroom.surfaces.rest.routes import ROUTES, Route
from tests.isolation.conftest import SharedInstallation
from tests.isolation.request_variants import Arguments, every_operation, requests_of
from tests.isolation.tenants import Tenant, belongings, unknown
from tests.page_operations import ON_PAGES
from tests.surfaces.rest.conftest import RestClient, rest_client

ALL = ["read", "write", "send", "admin"]
LIMITS: dict[str, Callable[[Tenant], dict[str, Any]]] = {
    "nothing": lambda own: {"inboxes": [], "accounts": [], "namespaces": []},
    "no inbox": lambda own: {"inboxes": [], "namespaces": []},
    "no account": lambda own: {"accounts": [], "namespaces": []},
    "a live account": lambda own: {"accounts": [own.live], "namespaces": []},
    "one inbox": lambda own: {"inboxes": [own.inbox], "namespaces": []},
    "one account": lambda own: {"accounts": [own.account], "namespaces": []},
    "one inbox, no word of memory": lambda own: {"inboxes": [own.inbox]},
    "no inbox, no word of memory": lambda own: {"inboxes": []},
    "one namespace": lambda own: {"inboxes": [], "namespaces": [own.namespace]},
}
BLIND = {"nothing", "no inbox", "no account", "no inbox, no word of memory"}
"""Keys that do not see their own tenant either."""

TOOLS = choose_tools((*DEFAULT, *ON_DEMAND, *BY_NAME))

Ask = Callable[[Arguments], Awaitable[tuple[bool, str]]]
"""Sends a request; returns whether it succeeded, and the response as text."""


async def over_rest(rest: RestClient, route: Route, arguments: Arguments) -> tuple[bool, str]:
    at: dict[str, Arguments] = {place: {} for place in ("path", "query", "body", "raw", "headers")}
    for name, value in arguments.items():
        at[route.locations[name]][name] = value
    query = {**({route.when: "base64"} if route.when else {}), **at["query"]}
    content: Arguments = {"json": at["body"]} if at["body"] else {}
    if route.raw:
        content = {"content": at["raw"][route.raw]}
    path = route.path.format(**{name: quote(value, "") for name, value in at["path"].items()})
    answer = await rest.send(route.method, path, params=query, **content)
    assert answer.status_code < 500 or answer.status_code in (502, 503, 504), answer.text
    return answer.status_code < 300, answer.text


async def over_mcp(client: Client, tool: Tool, arguments: Arguments) -> tuple[bool, str]:
    words = {theirs: ours for ours, theirs in tool.rename.items()}
    taken = {words.get(k, k): v for k, v in arguments.items() if k not in tool.pin}
    result = await client.call_tool(tool.name, taken)
    return not result.is_error, result.content[0].text


async def walk(
    shared: SharedInstallation, steps: list[tuple[str, Any, Ask]], hidden: list[Tenant]
) -> list[str]:
    """Make every request; returns what was revealed or changed although it should not be."""
    before = [await belongings(shared.app, tenant) for tenant in hidden]
    nobody = unknown(shared.other)
    found: list[str] = []
    for name, operation, ask in steps:
        for asked in requests_of(operation, shared.own, shared.other):
            is_taken, answer = await ask(asked.arguments)
            where = f"{name} {_shown(asked.arguments)}"
            found += [f"{where}: {leak}" for leak in _leaks(answer, asked.arguments, hidden)]
            found += [f"{where}: {wrong}" for wrong in _wrong_counts(answer, is_taken)]
            same = _renamed(asked.arguments, shared.other, nobody)
            if same != asked.arguments and asked.about is not None:
                apart = _told((is_taken, answer), shared.other) != _told(await ask(same), nobody)
                found += [f"{where}: unlike one that is not there: {answer[:200]}"] if apart else []
        for tenant, rows in zip(hidden, before, strict=True):
            now = await belongings(shared.app, tenant)
            changed = [table for table in now if now[table] != rows[table]]
            assert not changed, f"{name}: changed {changed} of {tenant.word}"
    return sorted(found)


def _shown(arguments: Arguments) -> str:
    return str({name: str(value)[:80] for name, value in arguments.items() if name != "raw"})


def _leaks(answer: str, arguments: Arguments, hidden: list[Tenant]) -> list[str]:
    given = str(arguments)
    tokens = {token for tenant in hidden for token in tenant.tokens}
    return [f"{t} came back" for t in sorted(tokens) if t in answer and t not in given]


def _wrong_counts(answer: str, is_taken: bool) -> list[str]:
    """Counts of a page that exceed the visible objects; all of these fit in one page."""
    body = json.loads(answer) if is_taken and answer.startswith("{") else {}
    shown = body.get("results", body.get("matched_messages"))
    if shown is None or body.get("total", len(shown)) == len(shown):
        return []
    return [f"{body['total']} in all, but {len(shown)} are shown"]


def _renamed(arguments: Arguments, tenant: Tenant, other: Tenant) -> Arguments:
    """The same request for the ids of another tenant."""
    text = repr(arguments)
    for name, value in sorted(vars(tenant).items(), key=lambda item: -len(item[1])):
        text = text.replace(value, getattr(other, name))
    renamed: Arguments = eval(text)  # text of this request
    return renamed


def _told(answer: tuple[bool, str], tenant: Tenant) -> tuple[bool, str]:
    """An answer without the ids of the objects."""
    is_taken, text = answer
    for name, value in sorted(vars(tenant).items(), key=lambda item: -len(item[1])):
        text = text.replace(value, name)
    text = re.sub(
        r'"(request_id|instance)":"[^"]*"|"duration_ms":\d+|\d{4}-\d\d-\d\dT[\d:]+Z', "", text
    )
    return is_taken, re.sub(r"\b([a-z]{3})_[0-9a-z]{12,26}\b", r"\1", text)


def steps_of_rest(rest: RestClient) -> list[tuple[str, Any, Ask]]:
    def ask(route: Route) -> Ask:
        return lambda arguments: over_rest(rest, route, arguments)

    routes = [route for route in ROUTES if route.produces != "text/event-stream"]
    return [(f"{r.method} {r.path}", r.operation, ask(r)) for r in routes]


def steps_of_mcp(client: Client) -> list[tuple[str, Any, Ask]]:
    def ask(tool: Tool) -> Ask:
        return lambda arguments: over_mcp(client, tool, arguments)

    return [(tool.name, tool.operation, ask(tool)) for tool in TOOLS]


def test_every_operation_is_covered() -> None:
    """Every operation that a surface binds is found by the walk."""
    walked = {route.operation.name for route in ROUTES} | {tool.operation.name for tool in TOOLS}
    bound = {c.operation.rpartition(".")[2] for c in COMMANDS if isinstance(c, OperationCommand)}

    assert set(every_operation()) - ON_PAGES == walked
    assert bound <= walked


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_limited_key_reaches_nothing_of_others_over_rest(
    shared: SharedInstallation, limits: str
) -> None:
    key = await shared.key(ALL, LIMITS[limits](shared.own))
    hidden = [shared.other, *([shared.own] if limits in BLIND else [])]

    async with rest_client(shared.app, key) as rest:
        found = await walk(shared, steps_of_rest(rest), hidden)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scope", ALL)
async def test_a_key_with_one_scope_reaches_nothing_of_others(
    shared: SharedInstallation, scope: str
) -> None:
    limits = {"inboxes": [shared.own.inbox], "namespaces": [shared.own.namespace]}
    key = await shared.key([scope], limits)

    async with rest_client(shared.app, key) as rest:
        found = await walk(shared, steps_of_rest(rest), [shared.other])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_limited_key_reaches_nothing_of_others_over_mcp(
    shared: SharedInstallation, limits: str
) -> None:
    caller = await shared.app.authenticate(await shared.key(ALL, LIMITS[limits](shared.own)))
    hidden = [shared.other, *([shared.own] if limits in BLIND else [])]

    async with Client(make_server(shared.app, TOOLS, lambda _: caller)) as client:
        found = await walk(shared, steps_of_mcp(client), hidden)
    assert not found, "\n".join(found)


CHOICES: dict[str, dict[str, Callable[[Tenant], list[str]] | None]] = {
    "inboxes": {"any inbox": None, "no inbox": lambda own: [], "an inbox": lambda own: [own.inbox]},
    "accounts": {
        "any account": None,
        "no account": lambda own: [],
        "an account": lambda own: [own.account],
        "a live account": lambda own: [own.live],
        "both accounts": lambda own: [own.account, own.live],
    },
    "namespaces": {
        "any memory": None,
        "no memory": lambda own: [],
        "a namespace": lambda own: [own.namespace],
    },
}
COMBINED = [c for c in product(*CHOICES.values()) if c[:2] != ("any inbox", "any account")]
IN_EVERY_RUN = {"an inbox, an account, a namespace", "no inbox, both accounts, any memory"}


@pytest.mark.long_cases(*({", ".join(c) for c in COMBINED} - IN_EVERY_RUN))
@pytest.mark.parametrize("chosen", COMBINED, ids=", ".join)
async def test_limits_of_several_kinds_reach_nothing_of_others(
    shared: SharedInstallation, chosen: tuple[str, ...]
) -> None:
    named = {kind: CHOICES[kind][name] for kind, name in zip(CHOICES, chosen, strict=True)}
    key = await shared.key(ALL, {kind: of(shared.own) for kind, of in named.items() if of})

    async with rest_client(shared.app, key) as rest:
        found = await walk(shared, steps_of_rest(rest), [shared.other])
    assert not found, "\n".join(found)
