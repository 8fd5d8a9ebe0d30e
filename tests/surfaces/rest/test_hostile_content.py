"""In every response, text of senders is marked as untrusted and has no invisible characters."""

from __future__ import annotations

import json

from postroom.model.event import Event
from postroom.pipeline.webhooks import payload
from postroom.surfaces.rest.routes import ROUTES
from tests.hostile_content import (
    ARGUMENTS,
    CANARY,
    ELSEWHERE,
    HIDING,
    NOW,
    arguments_of,
    changes_last,
    has_sender_content,
    hostile_installation,
    problems_with,
)
from tests.surfaces.rest.test_visibility import ask

CARRY = {
    "get_message", "list_messages", "search_messages", "get_thread", "list_threads",
    "list_attachments", "get_attachment", "list_labels", "list_drafts",
    "get_draft", "create_draft", "list_events", "list_accounts", "list_identities",
    "reply_to_message", "run_rule_plan", "get_rule_plan", "wait_for_message", "list_audit",
}  # fmt: skip
"""Operations that must return text of senders here for the test to be significant."""


def test_every_operation_has_sample_arguments():
    assert {route.operation.name for route in ROUTES} <= ARGUMENTS.keys() | ELSEWHERE


async def test_every_route_marks_and_cleans_text_of_senders(rest, ctx):
    things = await hostile_installation(ctx)
    found, carried = [], set()
    routes = [route for route in ROUTES if route.operation.name not in ELSEWHERE]
    for route in sorted(routes, key=lambda route: changes_last(route.operation.name)):
        name = f"{route.method} {route.path} {route.when or ''}"
        given = arguments_of(route.operation.name, things)
        response = await ask(rest, route, {n: v for n, v in given.items() if n in route.locations})
        is_elsewhere = "POSTROOM_ACCOUNT_ALLOW" in response.text
        if response.status_code in (405, 422, 500) and not is_elsewhere:
            found.append(f"{name}: it was not tried: {response.text}")
        assert HIDING not in str(response.headers)
        if "json" in response.headers.get("content-type", ""):
            found += problems_with(name, response.json())
            carried |= {route.operation.name} if has_sender_content(response.json()) else set()
    assert not found, "\n".join(found)
    assert set() == CARRY - carried


def test_webhook_payloads_are_marked_and_clean():
    event = Event("evt_1", "message.received", NOW, "inb_1", data={"subject": HIDING})

    told = json.loads(payload(event))

    assert [] == problems_with("webhook", told["data"])
    assert CANARY == told["data"]["data"]["subject"]
