"""Objects that a key may not see do not exist for it, for every tool."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.model.view import EVERYTHING, only
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.conftest import acting

FILE = ("bill.pdf", "application/pdf", b"%PDF-1.4")
REACH = ("message_id", "message_ids", "thread_id", "inbox_id", "attachment_id", "in_reply_to")
"""The arguments that can name an object of another tenant."""

REST: dict[str, Any] = {
    "subject": "Hi",
    "body": "Hello.",
    "body_text": "Hello.",
    "recipient": "x@example.com",
    "to": ["x@example.com"],
    "email": "sales@postroom.localhost",
    "label": "Work",
    "destination": "Trash",
    "flags": ["seen"],
    "attachments": [{"filename": "a.txt", "content": "SGk="}],
}

UNKNOWN: dict[str, Any] = {
    "inbox_id": "inb_none",
    "message_id": "msg_none",
    "message_ids": ["msg_none"],
    "in_reply_to": "msg_none",
    "thread_id": "thr_none",
    "attachment_id": "att_none",
}


def tries() -> list[Any]:
    """Every tool with every argument that could name an object of another inbox."""
    return [
        pytest.param(tool.name, argument, id=f"{tool.name}-{argument}")
        for tool in choose_tools()
        for argument in REACH
        if argument in tool.operation.request.model_fields
    ]


@pytest.fixture
async def theirs(ctx):
    """An inbox of another tenant, with one object of each kind."""
    inbox = await new_inbox(ctx, "theirs")
    added = await deliver(ctx, inbox, mail("Their secret", attachments=[FILE]))
    message = await ctx.store.message(added.message_id, EVERYTHING)
    return {
        "inbox_id": inbox.id,
        "message_id": added.message_id,
        "message_ids": [added.message_id],
        "in_reply_to": added.message_id,
        "thread_id": added.thread_id,
        "attachment_id": message.attachments[0].id,
    }


@pytest.fixture
async def limited_agent(app, inbox):
    """An agent whose key has every scope, for one inbox of its own."""
    async with acting(
        app,
        a_caller("key_1", inboxes=only(inbox.id)),
    ) as agent:
        yield agent


@pytest.mark.parametrize(("name", "argument"), tries())
async def test_another_tenant_s_id_is_an_unknown_id(
    name, argument, theirs, limited_agent, inbox, ctx
):
    before = await ctx.store.message(theirs["message_id"], EVERYTHING)
    needed = _needed(name, argument, inbox.id)

    seen = await limited_agent.try_call(name, {**needed, argument: theirs[argument]})
    unknown = await limited_agent.try_call(name, {**needed, argument: UNKNOWN[argument]})

    assert _without_ids(seen, theirs) == _without_ids(unknown, UNKNOWN)
    assert "secret" not in str(seen)
    assert before == await ctx.store.message(theirs["message_id"], EVERYTHING)


async def test_lists_and_searches_omit_hidden_objects(theirs, limited_agent):
    found = await limited_agent.call("search_messages", q="secret")
    inboxes = await limited_agent.call("list_inboxes")
    threads = await limited_agent.call("list_threads")

    assert (0, 1, 0) == (found["total"], inboxes["total"], threads["total"])


def _needed(name: str, argument: str, inbox_id: str) -> dict[str, Any]:
    """The required arguments beside the one under test."""
    taken = next(
        tool for tool in choose_tools() if tool.name == name
    ).operation.request.model_fields
    rest = {"inbox_id": inbox_id, **REST}
    wanted = [key for key in taken if taken[key].is_required() or key in ("body_text", "flags")]
    return {key: rest[key] for key in wanted if key != argument}


def _without_ids(answer: tuple[bool, dict[str, Any]], ids: dict[str, Any]) -> str:
    text = str(answer)
    for value in ids.values():
        for one in value if isinstance(value, list) else [value]:
            text = text.replace(one, "ID")
    return text
