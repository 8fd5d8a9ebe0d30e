"""Objects that a key may not see do not exist for it, on every route and for every argument."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from postroom.model.key import Scope
from postroom.model.view import EVERYTHING
from postroom.surfaces.rest.routes import ROUTES
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.rest.conftest import rest_client

OUTGOING = {"to": ["ana@example.com"], "subject": "Hi", "body_text": "Hello"}
NEEDED = {
    "send_message": OUTGOING,
    "reply_to_message": {"body_text": "Hello"},
    "forward_message": {"to": ["ana@example.com"]},
    "update_messages": {"trash": True},
    "update_message": {"flags": ["seen"]},
    "apply_label": {"label": "Work"},
    "move_message": {"destination": "Archive"},
    "rename_inbox": {"name": "Mine"},
    "split_thread": {"message_ids": ["msg_1"]},
    "create_key": {"name": "mine"},
    "create_draft": OUTGOING,
    "create_alias": {"email": "sales@postroom.localhost"},
    "create_webhook": {"url": "https://example.com/hook"},
    "wait_for_message": {"timeout_s": 1},
    "delete_inbox": {"force": "true"},
    "receive_message": {"raw": mail("Intruder")},
}
"""The required arguments beside the one under test."""

NAMING = {
    "inbox_id": "inbox",
    "message_id": "message",
    "thread_id": "thread",
    "attachment_id": "attachment",
    "before": "message",
    "in_reply_to": "message",
    "recipient": "address",
    "from": "address",
    "message_ids": "message",
    "thread_ids": "thread",
    "inboxes": "inbox",
    "attachments": "attachment",
}
"""Arguments that name an object, and its kind."""


@dataclass(frozen=True)
class Tenant:
    """One object of each kind."""

    inbox: str
    address: str
    message: str
    thread: str
    attachment: str


UNKNOWN = Tenant(
    "inb_" + "0" * 26,
    "unknown@postroom.localhost",
    "msg_" + "0" * 26,
    "thr_" + "0" * 26,
    "att_" + "0" * 26,
)


def cases():
    return [
        pytest.param(route, name, id=f"{route.method} {route.path} {name} {route.when or ''}")
        for route in ROUTES
        for name in route.locations
        if name in NAMING
        and route.operation.scope is not Scope.APPROVE  # always refused to this key
        and not (name == "from" and route.method == "GET")
        and "draft_id" not in route.path_arguments
    ]


async def tenant(ctx, username):
    inbox = await new_inbox(ctx, username)
    raw = mail(f"Secret of {username}", attachments=[(f"{username}.pdf", "application/pdf", b"x")])
    added = await deliver(ctx, inbox, raw)
    message = await ctx.store.message(added.message_id, EVERYTHING)
    return Tenant(
        inbox.id, inbox.address, added.message_id, added.thread_id, message.attachments[0].id
    )


def arguments_for(route, name, own, named):
    """A request of the tenant in which one argument names an object of either tenant."""
    value = getattr(named, NAMING[name])
    mine = {n: getattr(own, NAMING[n]) for n in route.path_arguments if n in NAMING}
    if name == "attachments":
        value = [{"attachment_id": value}]
    elif name == "thread_ids":
        value = [own.thread, value]
    elif name in ("message_ids", "inboxes"):
        value = [value]
    return {**NEEDED.get(route.operation.name, {}), **mine, name: value}


async def ask(rest, route, arguments):
    at = {place: {} for place in ("path", "query", "body", "raw")}
    for name, value in arguments.items():
        at[route.locations[name]][name] = value
    query = {**({route.when: "base64"} if route.when else {}), **at["query"]}
    content = {"json": at["body"]} if at["body"] else {}
    if route.raw:
        content = {"content": at["raw"][route.raw]}
    return await rest.send(route.method, route.path.format(**at["path"]), params=query, **content)


def told(response, named):
    """A response without the ids that the caller gave."""
    text = response.text
    for value in vars(named) if hasattr(named, "__dict__") else named.__slots__:
        text = text.replace(getattr(named, value), value)
    return response.status_code, re.sub(r'"(request_id|instance)":"[^"]*"', "", text)


@pytest.mark.parametrize(("route", "name"), cases())
async def test_hidden_objects_are_reported_as_unknown(app, ctx, rest, route, name):
    own, other = await tenant(ctx, "own"), await tenant(ctx, "other")
    scopes = ["read", "write", "send", "admin"]
    made = await rest.post("/v1/keys", name="tenant", scopes=scopes, inboxes=[own.inbox])
    before = await everything(rest, other)

    async with rest_client(app, made["key"]) as limited:
        foreign = await ask(limited, route, arguments_for(route, name, own, other))
        unknown = await ask(limited, route, arguments_for(route, name, own, UNKNOWN))

    assert told(unknown, UNKNOWN) == told(foreign, other)
    assert refuses(foreign)
    assert before == await everything(rest, other)


def refuses(response):
    if response.status_code == 200:
        return response.json()["status"] == "failed"
    is_about_keys = response.status_code == 403 and "manage keys" in response.text
    return response.status_code == 404 or is_about_keys


async def everything(rest, tenant):
    """All objects of a tenant."""
    pages = [
        await rest.get(path, inbox_id=tenant.inbox, **more)
        for path, more in [
            ("/v1/messages", {"mailbox": "*"}),
            ("/v1/threads", {}),
            ("/v1/attachments", {}),
        ]
    ]
    message = await rest.get(f"/v1/messages/{tenant.message}")
    return json.dumps([pages, message, await rest.get(f"/v1/inboxes/{tenant.inbox}")])


async def test_lists_searches_and_totals_leave_out_what_a_key_may_not_see(app, ctx, rest):
    own, other = await tenant(ctx, "own"), await tenant(ctx, "other")
    for message in (own.message, other.message):
        await rest.ask("PATCH", f"/v1/messages/{message}", json={"labels": [f"of {message}"]})
    made = await rest.post("/v1/keys", name="tenant", scopes=["read"], inboxes=[own.inbox])

    async with rest_client(app, made["key"]) as limited:
        for path, query in [
            ("/v1/inboxes", {}),
            ("/v1/labels", {}),
            ("/v1/threads", {}),
            ("/v1/search/messages", {"q": "secret"}),
            ("/v1/search/messages", {"mailbox": "*"}),
            ("/v1/search/messages", {"from": "ana@example.com"}),
        ]:
            page = await limited.get(path, **query)

            assert (1, 1) == (page["total"], page["count"]), path
            assert "other" not in json.dumps(page)
            assert other.message not in json.dumps(page)
