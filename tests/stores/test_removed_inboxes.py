"""A removed inbox leaves no pending work, in any table that references an inbox."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.errors import NotFound
from postroom.model.event import Webhook, new_webhook_secret
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.mail.message import MessageState, Recipient
from postroom.model.mail.storage import ReplyLimit
from postroom.model.page import Slice
from postroom.model.rule import Action, Plan, PlanItem, RuleEffect
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.ingest import Arrival
from postroom.pipeline.services import Services
from postroom.store.maintenance.migration import tables
from postroom.store.transaction import Transaction
from tests.mails import mail, new_inbox, prepare
from tests.stores.accounts import new_account
from tests.stores.sends import a_send

KEPT = {
    "audit": "the log says what was done, for good",
    "audit_pending": "what the log is about to say",
    "removed_events": "whoever saw one last goes on from its place",
}
"""Tables that may reference a removed inbox, with the reason."""

WITH_INBOX = [table.name for table in tables() if "inbox" in table.columns]


async def rows_of(services: Services, inbox_id: str, number: int) -> dict[str, int]:
    """The number of rows in each table that reference an inbox, by number or id."""

    def count(tx: Transaction) -> dict[str, int]:
        found = {}
        for name in WITH_INBOX:
            is_text = name in ("plan_items", "audit", "audit_pending")
            value = inbox_id if is_text else number
            (rows,) = tx.one(f"SELECT count(*) FROM {name} WHERE inbox = :inbox", inbox=value)
            found[name] = rows
        return found

    return await services.store.engine.read(count)  # type: ignore[attr-defined]


async def number_of(services: Services, inbox_id: str) -> int:
    engine = services.store.engine  # type: ignore[attr-defined]
    sql = "SELECT number FROM inboxes WHERE id = :id"
    return (await engine.read(lambda tx: tx.one(sql, id=inbox_id)))[0]


async def ruled(services: Services, inbox: Inbox, *acts: Action) -> str:
    """Run a rule on an arriving mail; returns the id of the mail."""
    message = await prepare(services, Arrival(mail("Invoice"), inbox.id))
    effect = RuleEffect("rul_1", "r", acts)
    (added,) = await services.store.add_messages([replace(message, effects=(effect,))])
    return added.message_id


async def fill(services: Services, inbox: Inbox) -> str:
    """Add objects of every kind to an inbox; returns the id of its mail."""
    url = "https://example.com/hook"
    now = services.clock()
    hook = Webhook("whk_1", url, (), EVERYTHING, now, secret=new_webhook_secret())
    await services.store.add_webhook(hook)
    forward, reply = Action("forward", "x@example.com"), Action("reply", "Thanks")
    message = await ruled(services, inbox, forward, reply, Action("webhook", "whk_1"))
    send = await a_send(services, inbox)
    to = (Recipient("x@example.com", "queued"),)
    sent = replace(send.message, recipients=to, labels=("L",))
    await services.store.record_send(replace(send, message=sent, reply_limit=ReplyLimit(1, 5)))
    return message


def a_plan(
    services: Services, plan_id: str, *messages: tuple[str, Inbox]
) -> tuple[Plan, tuple[PlanItem, ...]]:
    stored = tuple(
        PlanItem(
            m,
            i.id,
            "s",
            "x",
            services.clock(),
            MessageState(),
            MessageState(),
            (Action("flag"),),
            (),
        )
        for m, i in messages
    )
    now = services.clock()
    inboxes = only(*sorted({inbox.id for _, inbox in messages}))
    counts = {"flag": len(stored)}
    plan = Plan(
        plan_id, None, "r", now, now.replace(year=2027), "open", len(stored), len(stored), counts,
        (), 9, True, inboxes,
    )  # fmt: skip
    return plan, stored


async def test_an_inbox_leaves_no_row_of_its_own_in_any_table(
    services: Services, inbox: Inbox
) -> None:
    kept = await new_inbox(services, "kept")
    message, other = (
        await fill(services, inbox),
        await ruled(services, kept, Action("forward", "x@y.org")),
    )
    await services.store.save_plan(*a_plan(services, "pln_1", (message, inbox)))
    await services.store.save_plan(*a_plan(services, "pln_2", (message, inbox), (other, kept)))
    await services.store.save_plan(*a_plan(services, "pln_3", (other, kept)))
    number, kept_number = await number_of(services, inbox.id), await number_of(services, kept.id)
    before = await rows_of(services, inbox.id, number)
    beside = await rows_of(services, kept.id, kept_number)

    await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)

    for table in ("rule_jobs", "plan_items", "automatic_replies", "webhook_deliveries", "outbox"):
        assert before[table], table
    left = await rows_of(services, inbox.id, number)
    assert {} == {name: rows for name, rows in left.items() if rows and name not in KEPT}
    after = await rows_of(services, kept.id, kept_number)
    assert {**beside, "plan_items": 1} == after
    for plan_id in ("pln_1", "pln_2"):
        with pytest.raises(NotFound):
            await services.store.plan_actions(plan_id, EVERYTHING)
    assert "pln_3" == (await services.store.plan_items("pln_3", EVERYTHING, Slice()))[0].id
    assert () == await services.store.problems()


async def test_an_account_leaves_no_row_of_its_own_in_any_table(services: Services) -> None:
    account = await new_account(services)
    inbox = await services.store.inbox(account.inbox_id, EVERYTHING)
    assert inbox is not None
    await fill(services, inbox)
    number = await number_of(services, inbox.id)

    await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)

    left = await rows_of(services, inbox.id, number)
    assert {} == {name: rows for name, rows in left.items() if rows and name not in KEPT}


async def test_removing_a_message_removes_its_rule_jobs(services: Services, inbox: Inbox) -> None:
    gone = await ruled(
        services, inbox, Action("forward", "x@example.com"), Action("reply", "Thanks")
    )
    kept = await ruled(services, inbox, Action("forward", "y@example.com"))

    await services.store.remove_message(gone, EVERYTHING)

    now = services.clock()
    left = await services.store.claim_rule_jobs("proc_1", now=now, until=now, limit=9)
    assert [kept] == [job.message_id for job in left]


async def test_a_plan_is_undone_in_the_remaining_inboxes(services: Services, inbox: Inbox) -> None:
    kept = await new_inbox(services, "kept")
    message, other = await ruled(services, inbox), await ruled(services, kept)
    await services.store.save_plan(*a_plan(services, "pln_1", (message, inbox), (other, kept)))
    await services.store.apply_plan("pln_1", OWNER, authority="owner", now=services.clock())

    await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)
    undone = await services.store.undo_plan(
        "pln_1", EVERYTHING, actor="owner", now=services.clock()
    )

    assert ((other,), ()) == (undone.succeeded, undone.failed)
