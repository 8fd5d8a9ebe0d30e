"""Contract 001: rules are created, planned and applied, on every surface."""

from __future__ import annotations

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.requirements import requirement
from tests.contract.surface_clients import CallRefused, SurfaceClient


def rule(inbox: InboxFixture, *, word: str = "invoice") -> str:
    return f"""
version: 1
name: Invoices
inbox: {inbox.id}
when: [{{subject: {{contains: {word}}}}}]
then: [{{apply_label: Bookkeeping}}, mark_read, {{move: Archive}}]
"""


@requirement("rules:create-dry-run")
async def test_create_rule_plans_by_default_and_saves_nothing(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    received = await inbox.receive("Invoice 7")
    await inbox.receive("Lunch")

    plan = await client.call("create_rule", rule_yaml=rule(inbox))

    assert (None, 1, True) == (plan["rule_id"], plan["total_matches"], plan["untrusted"])
    assert {"apply_label": 1, "mark_read": 1, "move": 1} == plan["actions_by_type"]
    (row,) = plan["matched_messages"]
    assert (received["message_id"], "Invoice 7", "ana@example.com") == (
        row["message_id"],
        row["subject"],
        row["from"],
    )
    assert {"type": "apply_label", "label": "Bookkeeping"} == row["actions"][0]
    assert ['subject contains "invoice"'] == row["why"]
    assert (1, 1, 1, 0, False) == (
        plan["count"], plan["total"], plan["total_count"], plan["offset"], plan["has_more"],
    )  # fmt: skip
    listed = await client.call("list_rules", limit=100)
    assert rule(inbox) not in [kept["yaml"] for kept in listed["results"]]
    message = await client.call("get_message", message_id=received["message_id"])
    assert [] == message["labels"]


@requirement("rules:create")
async def test_create_rule_saves_a_rule_that_runs_on_new_mail(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    kept = await client.call("create_rule", rule_yaml=rule(inbox), dry_run=False)

    received = await inbox.receive("Your invoice")

    fields = (
        "id",
        "name",
        "description",
        "enabled",
        "position",
        "yaml",
        "created_at",
        "updated_at",
    )
    assert set(fields) == set(kept)
    message = await client.call("get_message", message_id=received["message_id"])
    assert (["Bookkeeping"], ["seen"], ["Archive"]) == (
        message["labels"],
        message["flags"],
        message["mailboxes"],
    )
    gone = await client.call("delete_rule", rule_id=kept["id"])
    assert kept["id"] == gone["id"]


@requirement("rules:create-wrong")
async def test_a_wrong_rule_is_an_error_that_shows_the_place(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    with pytest.raises(
        CallRefused, match=r"line 2, column 9: unknown field `subjct`.*`subject`"
    ) as no:
        await client.call(
            "create_rule", rule_yaml="name: x\nwhen: [{subjct: {contains: x}}]\nthen: [mark_read]"
        )

    assert "invalid_input" == no.value.kind


@requirement("rules:plan")
async def test_run_rule_plan_shows_what_would_happen(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    kept = await client.call("create_rule", rule_yaml=rule(inbox), dry_run=False)
    await client.call("delete_rule", rule_id=kept["id"])
    for number in range(3):
        await inbox.receive(f"Invoice {number}")
    kept = await client.call("create_rule", rule_yaml=rule(inbox), dry_run=False)

    plan = await client.call("run_rule_plan", rule_id=kept["id"], limit=2)

    assert (kept["id"], 3, 2, True) == (
        plan["rule_id"],
        plan["total_matches"],
        plan["count"],
        plan["has_more"],
    )
    await client.call("delete_rule", rule_id=kept["id"])
    with pytest.raises(CallRefused) as no:
        await client.call("run_rule_plan", rule_id=kept["id"])
    assert "not_found" == no.value.kind


@requirement("rules:apply")
async def test_a_plan_is_applied_exactly_or_not_at_all(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    ids = [(await inbox.receive(f"Invoice {number}"))["message_id"] for number in range(2)]
    stale = await client.call("create_rule", rule_yaml=rule(inbox))
    await client.call("move_message", message_id=ids[0], destination="Projects")

    with pytest.raises(CallRefused, match=ids[0]) as no:
        await client.call("apply_rule_plan", plan_id=stale["plan_id"])
    plan = await client.call("create_rule", rule_yaml=rule(inbox))
    result = await client.call("apply_rule_plan", plan_id=plan["plan_id"])

    assert "conflict" == no.value.kind
    assert ("ok", set(ids), plan["plan_id"]) == (
        result["status"],
        set(result["succeeded"]),
        result["plan_id"],
    )
    found = await client.call("search_messages", inbox_id=inbox.id, labels=["Bookkeeping"])
    assert 2 == found["total"]
