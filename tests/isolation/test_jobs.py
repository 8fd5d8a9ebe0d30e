"""Background jobs do nothing for a key that no longer sees the inbox."""

from __future__ import annotations

import pytest

from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.model.mail.message import Message
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations import rules, webhooks
from postroom.pipeline.maintenance import background_tasks
from tests.isolation.conftest import SharedInstallation
from tests.isolation.tenants import rule_yaml
from tests.isolation.test_matrix import ALL
from tests.isolation.test_rules import rule_jobs
from tests.mails import deliver, mail

NOT_FOR_A_CALLER = {
    "compact",
    "compact beside",
    "embed",
    "vectors",
    "leases",
    "counts",
    "sweep",
    "tokens",
}
"""Maintenance of the whole store, independent of keys and rules."""


async def rule_of_a_key(shared: SharedInstallation, action: str) -> str:
    """Create a rule with a key that sees the other tenant's inbox; returns the id of the key."""
    key = await shared.key(ALL, {"inboxes": [shared.other.inbox], "namespaces": ["default"]})
    caller = await shared.app.authenticate(key)
    request = {"rule_yaml": rule_yaml("Late", action), "dry_run": False}
    await call(shared.app.context(caller), rules.create_rule, request)
    return caller.key_id


async def blind(shared: SharedInstallation, key_id: str) -> None:
    engine = shared.app.services.store.engine  # type: ignore[attr-defined]
    await engine.write(
        lambda tx: tx.run(
            "UPDATE keys SET inboxes = '[]', namespaces = '[]' WHERE id = :id", id=key_id
        )
    )


async def arrival(shared: SharedInstallation) -> Message:
    ctx = shared.app.context(OWNER)
    inbox = await ctx.store.inbox(shared.other.inbox, EVERYTHING)
    assert inbox is not None
    added = await deliver(ctx, inbox, mail("Late"))
    message = await ctx.store.message(added.message_id, EVERYTHING)
    assert message is not None
    return message


async def sent(shared: SharedInstallation) -> int:
    query = MessageQuery(EVERYTHING, inbox_id=shared.other.inbox, mailbox="Sent")
    return (await shared.app.services.store.messages(query)).total


async def failures(shared: SharedInstallation, message: Message) -> list[str]:
    asked = {"message_id": message.id, "types": ["rule.failed"]}
    told = await call(shared.app.context(OWNER), webhooks.list_events, asked)
    return [event.data["detail"] for event in told.results]


@pytest.mark.parametrize("action", ["{forward: thief@example.com}", "{reply: Gone.}"])
@pytest.mark.parametrize("is_blind", [True, False])
async def test_a_pending_job_runs_only_if_its_key_still_sees_the_inbox(
    shared: SharedInstallation, action: str, is_blind: bool
) -> None:
    key_id = await rule_of_a_key(shared, action)
    message, before = await arrival(shared), await sent(shared)
    assert 1 == len(await rule_jobs(shared))
    if is_blind:
        await blind(shared, key_id)

    await shared.app.rule_jobs().run_due("proc_1")

    assert (0 if is_blind else 1) == await sent(shared) - before
    assert is_blind == any("may not see" in why for why in await failures(shared, message))


@pytest.mark.parametrize(
    "action", ["delete", "flag", "{apply_label: Taken}", "{remember: {key: k, text: Taken}}"]
)
async def test_a_rule_of_a_key_without_inboxes_ignores_arriving_mail(
    shared: SharedInstallation, action: str
) -> None:
    await call(shared.app.context(OWNER), rules.delete_rule, {"rule_id": shared.other.rule})
    await blind(shared, await rule_of_a_key(shared, action))

    message = await arrival(shared)

    assert ((), (), ("Inbox",)) == (message.labels, message.flags, message.mailboxes)
    assert any("may not see" in why for why in await failures(shared, message))


async def test_every_job_of_maintenance_is_known(shared: SharedInstallation) -> None:
    assert {task.name for task in background_tasks(shared.app.services)} == NOT_FOR_A_CALLER
