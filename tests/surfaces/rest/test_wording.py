"""Errors over REST name endpoints and headers."""

from __future__ import annotations

import re

import pytest

from postroom.surfaces.rest.routes import ROUTES

OPERATIONS = {route.operation.name for route in ROUTES}
IDS = {
    "account_id": "nowhere",
    "attachment_id": "att_none",
    "delivery_id": "dlv_none",
    "draft_id": "drf_none",
    "identity_id": "idn_none",
    "inbox_id": "inb_none",
    "key": "none",
    "key_id": "key_none",
    "label": "none",
    "message_id": "msg_none",
    "plan_id": "pln_none",
    "rule_id": "rul_none",
    "thread_id": "thr_none",
    "webhook_id": "whk_none",
}
NAMED = [
    route
    for route in ROUTES
    if set(route.path_arguments) & IDS.keys() and not route.posted
    if route.method in ("GET", "DELETE")
]


@pytest.mark.parametrize("route", NAMED, ids=lambda route: f"{route.method} {route.path}")
async def test_an_operation_that_an_error_names_comes_with_its_endpoint(rest, inbox, route):
    path = route.path.format(**{name: IDS[name] for name in route.path_arguments})

    problem = await rest.problem(route.method, path)

    named = OPERATIONS & set(re.findall(r"\w+", problem["detail"]))
    assert named == set(problem.get("see", {}))


@pytest.mark.parametrize(
    ("path", "see"),
    [
        ("/v1/inboxes/inb_none", {"list_inboxes": "GET /v1/inboxes"}),
        ("/v1/attachments/att_none", {"list_attachments": "GET /v1/attachments"}),
        ("/v1/rules/rul_none", {"list_rules": "GET /v1/rules"}),
        ("/v1/messages/thr_none", {"get_thread": "GET /v1/threads/{thread_id}"}),
        ("/v1/messages?inbox_id=thr_none", {"get_thread": "GET /v1/threads/{thread_id}"}),
    ],
)
async def test_advice_has_the_endpoint(rest, inbox, path, see):
    problem = await rest.problem("GET", path)

    assert see == problem["see"]


async def test_the_header_is_named(rest, inbox):
    body = {"inbox_id": inbox.id, "to": ["ana@example.com"], "subject": "Hi", "body_text": "Hi"}

    problem = await rest.problem(
        "POST", "/v1/messages", json=body, headers={"Idempotency-Key": "x" * 300}
    )

    assert problem["detail"].startswith("Idempotency-Key: ")


async def test_a_rule_that_never_matches_is_created_with_a_warning(rest, inbox):
    rule = "name: Builds\nwhen: [{from: builds.example}]\nthen: [archive]\n"

    made = await rest.post("/v1/rules", rule_yaml=rule, dry_run=False)
    plan = await rest.post(f"/v1/rules/{made['id']}/plan")
    good = await rest.post(
        "/v1/rules", rule_yaml=rule.replace("builds.example", '"@builds.example"'), dry_run=True
    )

    [warning] = made["warnings"]
    assert 'write "@builds.example" for the domain' in warning
    assert [warning] == plan["warnings"]
    assert [] == good["warnings"]


async def test_the_words_of_a_rule_are_not_operations(rest, inbox):
    rule = "name: Builds\nwhen: [{from: builds.example}]\nthen: [arcive]\n"

    problem = await rest.problem("POST", "/v1/rules", json={"rule_yaml": rule})

    assert "apply_label" in problem["detail"]
    assert "see" not in problem
