"""Mail, rules and tool calls are counted per day; each caller sees its own counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import InvalidInput, Unavailable
from postroom.model.event import Via
from postroom.model.health import Activity, CallCount, DayActivity, ToolUse
from postroom.model.key import OWNER
from postroom.model.view import NOTHING, View, only
from postroom.operations.health import get_activity
from postroom.operations.inboxes import delete_inbox
from postroom.operations.mail.message_changes import delete_message
from postroom.operations.outgoing.sending import send_message
from postroom.operations.rules import apply_rule_plan, create_rule, run_rule_plan, undo_rule_plan
from postroom.pipeline.counters import CallCounts
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.maintenance import remove_old_counts
from tests.callers import a_caller
from tests.isolation.tenants import rule_yaml
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.clock import Clock

TODAY = date(2026, 6, 1)
MAIL = {"to": ["x@example.com"], "subject": "S", "body_text": "B"}


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    if request.param == "postgres":
        given["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    async with open_app(read_settings(given).settings) as opened:
        yield replace(opened, services=replace(opened.services, clock=Clock()))


def at(app: App, moment: datetime) -> None:
    clock = app.services.clock
    assert isinstance(clock, Clock)
    clock.now = moment


async def activity(
    app: App, *, days: int = 14, key: str = "", inboxes: View | None = None
) -> Activity:
    caller = OWNER if inboxes is None else a_caller(key, inboxes=inboxes, namespaces=NOTHING)
    return await call(app.context(caller), get_activity, {"days": days})


async def test_mail_is_counted_on_its_day_in_utc(app: App) -> None:
    inbox = await new_inbox(app.services)
    for moment in (
        datetime(2026, 5, 30, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 5, 31, tzinfo=UTC),
        datetime(2026, 5, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 6, 1, 12, tzinfo=UTC),
    ):
        at(app, moment)
        await deliver(app.services, inbox, mail(f"Mail of {moment}", date=moment))

    found = await activity(app, days=3)

    assert [(30, 1), (31, 2), (1, 1)] == [(day.day.day, day.received) for day in found.days]
    assert TODAY == found.days[-1].day
    assert 3 == (await activity(app, days=2)).total("received")


async def test_sent_mail_is_counted_by_who_asked_for_it(app: App) -> None:
    await new_inbox(app.services)
    ways: list[Via] = ["mcp", "mcp-stdio", "rest", "web", "cli", "cli", "rule"]
    for number, via in enumerate(ways):
        arguments = {**MAIL, "subject": f"S{number}"}
        await call(app.context(OWNER, via), send_message, arguments)

    found = (await activity(app)).days[-1]

    assert DayActivity(TODAY, sent_by_agents=3, sent_by_people=3, sent_by_rules=1) == found
    assert 7 == found.sent


async def test_a_repeated_send_a_duplicate_and_imported_mail_are_not_counted(app: App) -> None:
    inbox = await new_inbox(app.services)
    once = {**MAIL, "idempotency_key": "one"}
    for _ in range(2):
        await call(app.context(OWNER, "mcp"), send_message, once)
        await deliver(app.services, inbox, mail("Once", message_id="<once@x>"))
    await receive(app.services, Arrival(mail("Old"), inbox.id, is_imported=True))

    day = (await activity(app)).days[-1]

    assert (1, 1) == (day.received, day.sent)


async def test_counts_stay_when_a_message_or_an_inbox_is_removed(app: App) -> None:
    inbox, other = await new_inbox(app.services), await new_inbox(app.services, "other")
    gone = await deliver(app.services, inbox, mail("One"))
    await deliver(app.services, other, mail("Two"))
    owner = app.context(OWNER)
    await call(owner, delete_message, {"message_id": gone.message_id, "permanent": True})
    await call(owner, delete_inbox, {"inbox_id": inbox.id, "force": True})

    limited = await activity(app, key="key_a", inboxes=only(inbox.id))
    assert (2, 0) == ((await activity(app)).total("received"), limited.total("received"))
    left = "SELECT count(*) FROM daily_mail WHERE inbox NOT IN (0, 2)"
    assert (0,) == await app.services.store.engine.read(lambda tx: tx.one(left))


async def test_a_rule_is_counted_for_each_message_that_it_is_applied_to(app: App) -> None:
    inbox, owner = await new_inbox(app.services), app.context(OWNER)
    await deliver(app.services, inbox, mail("Before"))
    made = {"rule_yaml": rule_yaml("All", "flag", inbox=inbox.id), "dry_run": False}
    rule: Any = await call(owner, create_rule, made)
    await deliver(app.services, inbox, mail("After"))
    plan = await call(owner, run_rule_plan, {"rule_id": rule.id})
    await call(owner, apply_rule_plan, {"plan_id": plan.plan_id})
    await call(owner, undo_rule_plan, {"plan_id": plan.plan_id})

    # the second mail has the flag already, so the plan changes the first one only
    assert 2 == (await activity(app)).total("rules")


async def test_held_mail_is_counted_as_sent_and_as_held(app: App) -> None:
    app = replace(app, services=replace(app.services, has_relay=True))
    await new_inbox(app.services)
    agent = replace(a_caller("key_a"), policy=replace(OWNER.policy, approval="always"))
    sent = await call(app.context(agent, "mcp"), send_message, MAIL)
    assert "held" == sent.status

    day = (await activity(app)).days[-1]

    assert (1, 1) == (day.sent_by_agents, day.held)


async def test_a_limited_key_sees_counts_of_its_inboxes_and_calls_of_its_own(app: App) -> None:
    mine, hidden = await new_inbox(app.services, "mine"), await new_inbox(app.services, "hidden")
    await deliver(app.services, mine, mail("One"))
    for number in range(3):
        await deliver(app.services, hidden, mail(f"Hidden {number}"))
    hidden_send = {**MAIL, "inbox_id": hidden.id}
    await call(app.context(OWNER, "web"), send_message, hidden_send)
    calls = [CallCount(TODAY, key, "mcp", f"tool_of_{key}", 5, 1) for key in ("key_a", "key_b")]
    await app.services.store.count_calls(calls)
    app.services.calls.add(app.services.clock(), "key_a", "mcp", "tool_of_key_a", is_error=False)
    app.services.calls.add(app.services.clock(), "key_b", "mcp", "tool_of_key_b", is_error=True)

    limited = await activity(app, key="key_a", inboxes=only(mine.id))
    blind = await activity(app, key="key_c", inboxes=NOTHING)

    assert DayActivity(TODAY, received=1, tool_calls=6, tool_errors=1) == limited.days[-1]
    assert (ToolUse("tool_of_key_a", 6, 1),) == limited.tools
    assert (DayActivity(TODAY), ()) == (blind.days[-1], blind.tools)
    whole = await activity(app)
    totals = [whole.total(n) for n in ("received", "sent", "tool_calls", "tool_errors")]
    assert [4, 1, 12, 3] == totals


async def test_calls_are_written_when_the_program_closes(app: App) -> None:
    calls = CallCounts(app.services.store.count_calls)
    for is_error in (False, True, False):
        calls.add(app.services.clock(), "agent", "mcp-stdio", "search", is_error=is_error)
    await calls.close()

    assert [] == calls.pending()
    assert (ToolUse("search", 3, 1),) == (await activity(app)).tools


async def test_calls_that_could_not_be_written_are_written_later(app: App) -> None:
    is_down = True

    async def write(calls: Any) -> None:
        if is_down:
            raise Unavailable("the database does not answer", retry_after=1)
        await app.services.store.count_calls(calls)

    calls = CallCounts(write)
    calls.add(app.services.clock(), "agent", "mcp", "search", is_error=True)
    await calls.write()
    assert [CallCount(TODAY, "agent", "mcp", "search", 1, 1)] == calls.pending()
    is_down = False
    await calls.close()

    assert (ToolUse("search", 1, 1),) == (await activity(app)).tools


async def test_old_counts_are_removed(app: App) -> None:
    inbox = await new_inbox(app.services)
    await deliver(app.services, inbox, mail("Long ago"))
    await app.services.store.count_calls([CallCount(TODAY, "agent", "mcp", "search", 1, 0)])
    at(app, datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=89))
    await remove_old_counts(app.services)
    kept = await activity(app, days=90)
    assert (1, 1) == (kept.total("received"), kept.total("tool_calls"))
    at(app, datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=93))
    await remove_old_counts(app.services)

    store = app.services.store
    assert ([], []) == (
        await store.mail_counts(date(2026, 1, 1), OWNER.inboxes),
        await store.call_counts(date(2026, 1, 1)),
    )


@pytest.mark.parametrize("days", [0, 91, "many"])
async def test_only_stored_days_can_be_requested(app: App, days: object) -> None:
    with pytest.raises(InvalidInput, match="days"):
        await call(app.context(OWNER), get_activity, {"days": days})
