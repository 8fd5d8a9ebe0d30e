"""Rate limits of the agent on stdio, and of callers without a key."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.operation import call
from postroom.errors import RateLimited
from postroom.model.key import AGENT, OWNER
from postroom.operations.outgoing import drafts, outbox, sending
from postroom.store.sqlite.connection import Role, connect
from postroom.store.upgrade import SENDS_OF_AGENT
from postroom.surfaces.rest.server import build
from tests.mails import deliver, mail, new_inbox
from tests.servers.postroom import forked_command
from tests.surfaces.mcp.stdio_client import StdioClient, started
from tests.surfaces.rest.conftest import rest_client

OUTGOING = {"subject": "Hi", "body": "Hello"}


def limits(**given: int) -> dict[str, str]:
    named = {f"POSTROOM_LIMIT_{name.upper()}": str(value) for name, value in given.items()}
    return {**os.environ, **named}


def cli(folder: Path, *words: str, env: dict[str, str] | None = None) -> Any:
    line = forked_command("--data", str(folder), "-o", "json", *words)
    done = subprocess.run(line, capture_output=True, check=False, timeout=300, env=env)
    return json.loads(done.stdout or done.stderr)


def send(stdio: StdioClient, inbox_id: str, to: str, **more: Any) -> dict[str, Any]:
    said = stdio.call("send_email", inbox_id=inbox_id, recipient=to, **OUTGOING, **more)
    body: dict[str, Any] = said["structuredContent"]
    return body


def test_an_agent_on_stdio_has_the_hourly_limit_of_sends(tmp_path: Path) -> None:
    env = limits(sends_per_hour=2)
    with started(tmp_path, env=env) as stdio, started(tmp_path, env=env) as beside:
        made = stdio.hello().call("create_inbox", username="ana")["structuredContent"]
        told = [send(stdio, made["id"], "x@example.com", idempotency_key="k") for _ in range(2)]
        told.append(send(beside.hello(), made["id"], "x1@example.com"))
        refused = [
            send(one, made["id"], f"y{n}@example.com") for n, one in enumerate((stdio, beside))
        ]
    with started(tmp_path, env=env) as later:
        refused.append(send(later.hello(), made["id"], "z@example.com"))
    said = ("--subject", "x", "--body-text", "x")
    by_hand = [cli(tmp_path, "send", "--to", f"c{n}@example.com", *said, env=env) for n in range(3)]

    assert 2 == len({one["message_id"] for one in told})
    assert ["RATE_LIMIT_EXCEEDED"] * 3 == [one["error"]["code"] for one in refused]
    assert all(0 < one["error"]["retry_after"] <= 3600 for one in refused)
    assert all("message_id" in one for one in by_hand)
    actors = {
        entry["action"]: (entry["actor"], entry["via"])
        for entry in cli(tmp_path, "audit", "list")["results"]
    }
    agent = ("agent", "mcp-stdio")
    by_owner = ("owner", "cli")
    assert {"create_inbox": agent, "send_email": agent, "send_message": by_owner} == actors
    only = cli(tmp_path, "audit", "list", "--via", "cli")["results"]
    assert [by_owner] * 3 == [(entry["actor"], entry["via"]) for entry in only]


def test_an_agent_on_stdio_with_a_key_has_the_limits_of_the_key(tmp_path: Path) -> None:
    env = limits(sends_per_hour=1)
    made = cli(tmp_path, "inbox", "create", "--username", "ana")
    scopes = [word for name in ("read", "write", "send") for word in ("--scope", name)]
    key = cli(tmp_path, "key", "create", "--name", "k", *scopes)
    with (
        started(tmp_path, "--key", key["key"], env=env) as named,
        started(tmp_path, env=env) as agent,
    ):
        first = [send(one.hello(), made["id"], "x@example.com") for one in (named, agent)]
        then = [send(one, made["id"], "y@example.com") for one in (named, agent)]

    assert 2 == len({one["message_id"] for one in first})
    assert {"RATE_LIMIT_EXCEEDED"} == {one["error"]["code"] for one in then}
    actors = {entry["actor"] for entry in cli(tmp_path, "audit", "list")["results"]}
    assert {"owner", "agent", key["id"]} == actors


def test_an_agent_on_stdio_is_rate_limited_with_a_retry_after(tmp_path: Path) -> None:
    env = limits(requests_per_second=1, requests_burst=3)
    with started(tmp_path, env=env) as stdio:
        stdio.hello()
        told = [stdio.call("list_inboxes")["structuredContent"] for _ in range(5)]

    assert [False, False, False] == ["error" in one for one in told[:3]]
    assert ("RATE_LIMIT_EXCEEDED", 1) == (told[4]["error"]["code"], told[4]["error"]["retry_after"])


async def test_without_auth_all_callers_share_the_limits_of_the_agent(app: App) -> None:
    few = _few(app, 2)
    inbox = await new_inbox(app.services, "ana")
    outgoing_mail = {"subject": "Hi", "body_text": "Hello", "inbox_id": inbox.id}
    await call(few.context(AGENT), sending.send_message, {**outgoing_mail, "to": ["a@example.com"]})
    async with rest_client(few, None, asgi=build(few, no_auth=True)) as anybody:
        told = [
            await anybody.send(
                "POST", "/v1/messages", json={**outgoing_mail, "to": [f"x{n}@example.com"]}
            )
            for n in range(3)
        ]

    assert [201, 429, 429] == [one.status_code for one in told]
    assert 0 < int(told[-1].headers["retry-after"]) == told[-1].json()["retry_after"] <= 3600


def _few(app: App, sends: int) -> App:
    services = replace(app.services, limits=replace(app.services.limits, sends_per_hour=sends))
    return replace(app, services=services)


async def test_every_way_of_sending_counts_once(app: App) -> None:
    inbox = await new_inbox(app.services, "ana")
    added = await deliver(app.services, inbox, mail("Hello"))
    ctx = _few(app, 6).context(AGENT)
    outgoing_mail = {"subject": "Hi", "body_text": "Hello", "inbox_id": inbox.id}
    about = {"message_id": added.message_id}
    one = await call(ctx, drafts.create_draft, {**outgoing_mail, "to": ["a@example.com"]})
    at = (ctx.clock() + timedelta(days=9)).isoformat()
    scheduled = {**outgoing_mail, "to": ["b@example.com"], "send_at": at}
    later = await call(ctx, drafts.create_draft, scheduled)
    await call(
        ctx, sending.send_message, {**outgoing_mail, "to": ["c@example.com", "d@example.com"]}
    )
    await call(
        ctx, sending.send_email, {"inbox_id": inbox.id, "recipient": "e@example.com", **OUTGOING}
    )
    await call(ctx, sending.reply_to_message, {**about, "body_text": "Yes"})
    await call(ctx, sending.forward_message, {**about, "to": ["f@example.com"]})
    for _ in range(2):
        await call(ctx, drafts.send_draft, {"draft_id": one.id})
        await call(ctx, drafts.send_draft, {"draft_id": later.id})

    with pytest.raises(RateLimited) as refused:
        await call(ctx, sending.send_message, {**outgoing_mail, "to": ["g@example.com"]})
    again = await call(
        app.context(OWNER), sending.send_message, {**outgoing_mail, "to": ["g@example.com"]}
    )

    assert again.message_id
    assert 0 < refused.value.retry_after <= 3600
    waiting = await call(ctx, outbox.list_outbox, {"status": "held"})
    assert 1 == waiting.total


@pytest.mark.parametrize("more", [{}, {"idempotency_key": "order-1"}], ids=str)
def test_a_repeated_send_of_an_earlier_version_is_recognised(
    tmp_path: Path, more: dict[str, str]
) -> None:
    with started(tmp_path) as stdio:
        made = stdio.hello().call("create_inbox", username="ana")["structuredContent"]
        first = send(stdio, made["id"], "x@example.com", **more)
        stdio.close()
    _upgrade(tmp_path / "postroom.db")

    with started(tmp_path, env=limits(sends_per_hour=1)) as stdio:
        again = send(stdio.hello(), made["id"], "x@example.com", **more)
        other = send(stdio, made["id"], "y@example.com")

    assert first["message_id"] == again["message_id"]
    assert (not more) == again.get("deduplicated", False)
    assert "message_id" in other


def _upgrade(file: Path) -> None:
    """Make the store as after an upgrade: earlier sends belong to the owner."""
    connection = connect(file, Role.WRITER)
    connection.execute("UPDATE sends SET caller = 'owner'")
    for statement in SENDS_OF_AGENT:
        connection.execute(statement)
    connection.close()
