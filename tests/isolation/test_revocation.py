"""Revoking or limiting a key takes effect at once, also for connected clients."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations import inboxes, keys
from tests.surfaces.mcp.stdio_client import TIMEOUT_S, StdioClient, started

Change = Callable[[App, str], Awaitable[object]]


async def revoke(app: App, key_id: str) -> None:
    await call(app.context(OWNER), keys.delete_key, {"key_id": key_id})


def changed(column: str, value: str | int) -> Change:
    """Changes one column of the row of the key."""

    async def change(app: App, key_id: str) -> None:
        def update(tx: Any) -> None:
            tx.run(f"UPDATE keys SET {column} = :value WHERE id = :id", value=value, id=key_id)
            tx.announce("keys")

        await app.services.store.engine.write(update)

    return change


CHANGES: dict[str, Change] = {
    "revoked": revoke,
    "without the scope": changed("scopes", '["write"]'),
    "without the inbox": changed("inboxes", "[]"),
    "expired": changed("expires_at", 1),
    "with another secret": changed("secret_hash", "other"),
}


def environ(key: str) -> dict[str, str]:
    return {**os.environ, "POSTROOM_KEY": key}


def ask(stdio: StdioClient, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return stdio.call(name, **arguments)


async def in_thread_of_client(stdio: StdioClient, name: str, **arguments: Any) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        return await asyncio.to_thread(ask, stdio, name, arguments)


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["isError"], answer
    error: dict[str, Any] = answer["structuredContent"]["error"]
    return error


async def keyed(app: App) -> tuple[str, Any]:
    """An inbox, and a key that may read it."""
    ctx = app.context(OWNER)
    inbox = await call(ctx, inboxes.create_inbox, {"username": "ana"})
    limits = {"name": "agent", "scopes": ["read", "write"], "inboxes": [inbox.id]}
    return inbox.id, await call(ctx, keys.create_key, limits)


@pytest.mark.parametrize("how", CHANGES)
async def test_a_client_on_stdio_has_the_current_rights_of_its_key(
    tmp_path: Path, how: str
) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings
    async with open_app(settings) as app:
        inbox_id, key = await keyed(app)
        with started(tmp_path, env=environ(key.key)) as stdio:
            await asyncio.to_thread(stdio.hello)
            before = await in_thread_of_client(stdio, "list_messages", inbox_id=inbox_id)

            await CHANGES[how](app, key.id)

            after = await in_thread_of_client(stdio, "list_messages", inbox_id=inbox_id)
    code = "NOT_FOUND" if how == "without the inbox" else "PERMISSION_DENIED"
    assert not before["isError"], before
    assert code == error_of(after)["code"]


@pytest.mark.parametrize("how", CHANGES)
async def test_a_wait_on_stdio_ends_with_the_rights_of_its_key(tmp_path: Path, how: str) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings
    async with open_app(settings) as app:
        inbox_id, key = await keyed(app)
        with started(tmp_path, env=environ(key.key)) as stdio:
            await asyncio.to_thread(stdio.hello)
            call = {"name": "wait_for_message", "arguments": {"inbox_id": inbox_id}}
            question = {"jsonrpc": "2.0", "id": "wait", "method": "tools/call", "params": call}
            stdio.write(json.dumps(question).encode())
            for _ in range(5):  # the wait has started
                await in_thread_of_client(stdio, "list_inboxes")

            await CHANGES[how](app, key.id)

            async with asyncio.timeout(TIMEOUT_S):
                answer = await asyncio.to_thread(stdio.read)
    assert "wait" == answer["id"]
    # An expiry is noticed with the change of the key, or when the wait reads the key again.
    messages = (
        "revoked or limited during",
        *(("this key expired at",) if how == "expired" else ()),
    )
    assert any(text in error_of(answer["result"])["message"] for text in messages)


@pytest.mark.parametrize("before", ["never", "1h"])
async def test_a_wait_on_stdio_ends_when_its_key_expires(tmp_path: Path, before: str) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings
    async with open_app(settings) as app:
        inbox_id, key = await keyed(app)
        owner = app.context(OWNER)
        await call(owner, keys.update_key, {"key_id": key.id, "expires_at": before})
        with started(tmp_path, env=environ(key.key)) as stdio:
            await asyncio.to_thread(stdio.hello)
            waiting = asyncio.create_task(
                in_thread_of_client(stdio, "wait_for_message", inbox_id=inbox_id)
            )
            soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat(timespec="seconds")
            await call(owner, keys.update_key, {"key_id": key.id, "expires_at": soon})

            answer = await waiting
            after = await in_thread_of_client(stdio, "list_inboxes")
    assert "this key expired" in error_of(answer)["message"]
    assert f"key update {key.id} --expires" in error_of(after)["message"]


async def test_a_new_key_of_the_owner_ends_the_rights_of_the_old_one(tmp_path: Path) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings
    async with open_app(settings) as app:
        key = await app.reset_owner_key()
        with started(tmp_path, env=environ(key)) as stdio:
            await asyncio.to_thread(stdio.hello)
            before = await in_thread_of_client(stdio, "list_inboxes")

            await app.reset_owner_key()

            after = await in_thread_of_client(stdio, "list_inboxes")
    assert not before["isError"]
    assert "PERMISSION_DENIED" == error_of(after)["code"]


async def test_a_live_tool_reports_it_in_the_form_of_its_contract(tmp_path: Path) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings
    async with open_app(settings) as app:
        _, key = await keyed(app)
        with started(tmp_path, "--toolsets", "imap", env=environ(key.key)) as stdio:
            await asyncio.to_thread(stdio.hello)
            await revoke(app, key.id)

            answer = await in_thread_of_client(stdio, "imap_verify_account", account_id="work")
    assert "auth_failed" == error_of(answer)["code"]
