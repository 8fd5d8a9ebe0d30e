"""Overview, events, audit and health: their content, its visibility, and invalid input."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import pytest

from postroom import checks
from postroom.calls.operation import call
from postroom.model.health import CallCount, CheckResult, ok
from postroom.operations.outgoing.outbox import pause_outbox
from postroom.operations.outgoing.sending import send_message
from postroom.operations.webhooks import create_webhook
from postroom.store.sql.installation import MAX_COUNTED
from tests.mails import deliver, mail
from tests.pipeline.clock import Clock
from tests.surfaces.web.activity.conftest import HOSTILE
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

_EVENT = re.compile(r'<li id="(evt_\w+)">')
_CURSOR = re.compile(r'href="(/\w+\?[^"]*cursor=[^"]+)"')


@asynccontextmanager
async def session_of_key(
    installation: WebInstallation, *scopes: str, **limits: Any
) -> AsyncIterator[WebUser]:
    """A user who signed in with a key."""
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key(*scopes, **limits))
        yield person


async def arrive(installation: WebInstallation, subject: str, username: str = "me") -> str:
    services, address = installation.app.services, f"{username}@postroom.localhost"
    inbox = (await services.store.inboxes_at([address]))[address]
    return (await deliver(services, inbox, mail(subject))).message_id


async def test_a_new_installation_has_no_open_tasks(owner: WebUser) -> None:
    page = words(await owner.read("/"))

    assert "All clear." in page
    assert 4 == page.count("No activity in this period.")


async def test_open_tasks_link_to_their_pages(busy: WebInstallation, owner: WebUser) -> None:
    webhook = await call(busy.owner, create_webhook, {"url": "https://hook.example/x"})
    await arrive(busy, "For the webhook")
    store = busy.app.services.store
    await store.engine.write(
        lambda tx: tx.run("UPDATE webhook_deliveries SET attempts = 2, detail = 'refused'")
    )
    await call(busy.owner, pause_outbox, {})

    page = await owner.read("/")

    for link, what in {
        "/outgoing": "1 message is waiting for your approval",
        "/accounts": "work@example.com needs you to sign in",
        "/rules": "The rule “Invoices” has stopped",
        "/keys": "The key “k” expires soon",
        "/webhooks": f"The webhook {webhook.url} is failing",
    }.items():
        assert f'<a class="what" href="{link}">{what}</a>' in page
    assert "The outbox is paused" in words(page)
    assert "All clear" not in page


async def test_the_charts_have_their_numbers_in_tables(
    busy: WebInstallation, owner: WebUser
) -> None:
    page = await owner.read("/")

    assert "Mail in 157" in words(page)
    assert '<desc id="desc-in">157 in 14 days; most on 19 May: 22.</desc>' in page
    assert "<title>31 May: 5 by agents</title>" in page
    assert re.search(r"31 May</th><td>5</td><td>1</td><td>1</td><td>0</td>", page)
    assert "style=" not in page
    assert "Mail in 334" in words(await owner.read("/?days=30"))
    assert page.count("<rect") == (await owner.read("/?days=%00'1")).count("<rect")


async def test_the_overview_of_a_limited_key_counts_what_it_sees(busy: WebInstallation) -> None:
    other = await busy.new_inbox("other")
    await arrive(busy, "Mine", "other")

    async with session_of_key(busy, "read", "admin", inboxes=[other]) as limited:
        page = words(await limited.read("/"))

    assert "Mail in 1 " in page
    assert "All clear." in page
    for hidden in (
        "work@example.com",
        "Invoices",
        "expires soon",
        "Tool calls 828",
        "Capacity",
    ):
        assert hidden not in page


async def test_a_user_who_only_approves_sees_held_mail_and_no_counts(
    busy: WebInstallation,
) -> None:
    async with session_of_key(busy, "approve") as approver:
        page = words(await approver.read("/"))
        answers = [(await approver.get(p)).status_code for p in ("/events", "/audit", "/health")]

    assert "1 message is waiting for your approval" in page
    assert "Activity" not in page
    assert "More Sessions" in page
    assert [403, 403, 403] == answers


async def test_long_queues_and_a_full_disk_are_named(
    installation: WebInstallation, owner: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"n": n} for n in range(MAX_COUNTED + 1)]
    sql = "INSERT INTO search_buffer (message, inbox) VALUES (:n, 1)"
    await installation.app.services.store.engine.write(lambda tx: tx.many(sql, rows))
    monkeypatch.setattr("postroom.surfaces.web.overview.LITTLE_SPACE", 2**60)

    page = words(await owner.read("/"))

    assert "10,000+ mail to index long queue" in page
    assert "disk space free almost full" in page


async def test_events_are_listed_newest_first_with_their_mail(
    installation: WebInstallation, owner: WebUser
) -> None:
    ids = [await arrive(installation, f"Mail {number} {HOSTILE}") for number in range(3)]

    page = await owner.read("/events")

    assert page.index("Mail 2") < page.index("Mail 1") < page.index("Mail 0")
    assert f'<a class="event" href="/mail/{ids[2]}">' in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "\u202e" not in page


async def test_events_are_chosen_by_type_and_inbox_and_read_page_by_page(
    installation: WebInstallation, owner: WebUser
) -> None:
    other = await installation.new_inbox("other")
    for number in range(60):
        await arrive(installation, f"Mail {number}", "other")
    await arrive(installation, "Elsewhere")
    await installation.hold(inbox_id=other)

    first = await owner.read(f"/events?type=message.received&inbox={other}")
    (older,) = _CURSOR.findall(first)
    second = await owner.read(older.replace("&amp;", "&"))

    assert (50, 10) == (len(_EVENT.findall(first)), len(_EVENT.findall(second)))
    assert 60 == len({*_EVENT.findall(first), *_EVENT.findall(second)})
    assert "Elsewhere" not in first + second
    assert 1 == len(_EVENT.findall(await owner.read("/events?type=message.held")))
    assert "data-live" in first
    assert 'id="events" data-live' not in second


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("type=message.eaten", "there is no event type message.eaten"),
        ("inbox=inb_no", "no inbox inb_no"),
        ("inbox=<script>", "no inbox <script>"),
        ("cursor=forged", "cursor: not valid for this list"),
        ("type=message.held", "No events match."),
        ("nonsense=1&type=&inbox=", "No events yet."),
    ],
)
async def test_invalid_filters_of_events_are_explained(
    owner: WebUser, query: str, says: str
) -> None:
    page = await owner.read(f"/events?{query}")

    assert says in words(page)
    assert "<script>" not in page


async def test_a_limited_key_sees_events_of_its_inboxes(installation: WebInstallation) -> None:
    other = await installation.new_inbox("other")
    await arrive(installation, "Hidden")
    await arrive(installation, "Mine", "other")

    async with session_of_key(installation, "read", inboxes=[other]) as limited:
        page = words(await limited.read("/events"))
        asked = words(await limited.read("/events?inbox=me@postroom.localhost"))

    assert "1 event," in page
    assert "Mine" in page
    assert "Hidden" not in page + asked
    assert "no inbox me@postroom.localhost" in asked


async def test_the_audit_log_is_filtered_by_who_way_action_target_and_date(
    installation: WebInstallation, owner: WebUser, clock: Clock
) -> None:
    agent = await installation.agent("read", "write", "send")
    sent = await call(
        agent, send_message, {"to": ["a@b.example"], "subject": "S", "body_text": "B"}
    )
    clock.now += timedelta(hours=10)
    await installation.key("read")

    async def actions(query: str) -> list[str]:
        page = await owner.read(f"/audit?{query}")
        return re.findall(r'href="/audit\?action=(\w+)"', page)

    assert ["send_message"] == await actions("via=mcp")
    assert ["send_message"] == await actions(f"actor={agent.caller.key_id}")
    assert ["send_message"] == await actions(f"target={sent.message_id}&action=send_message")
    assert ["create_key", "create_key"] == await actions("action=create_key")
    assert ["create_key"] == await actions("action=create_key&after_date=2026-06-01T06:00:00Z")
    assert ["create_key"] == await actions("action=create_key&before_date=2026-06-01T06:00:00Z")
    assert [] == await actions("action=create_key&target=key_no")
    page = await owner.read(f"/audit?target={sent.message_id}")
    assert f'<a href="/mail/{sent.message_id}">' in page
    assert "a@b.example" in words(page)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("via=telepathy", "via:"),
        ("after_date=tomorrow", "after_date:"),
        ("cursor=forged", "cursor: not valid for this list"),
        ("actor=%00", "actor"),
        ("target=" + "x" * 600, "target"),
        ("action=nothing", "No entries match."),
        ("verified=whole+7", "newest first"),
    ],
)
async def test_invalid_filters_of_the_audit_log_are_explained(
    owner: WebUser, query: str, says: str
) -> None:
    page = words(await owner.read(f"/audit?{query}"))

    assert says in page
    assert "The log is intact" not in page


async def test_the_audit_log_is_read_page_by_page(
    installation: WebInstallation, owner: WebUser
) -> None:
    for _ in range(55):
        await installation.key("read")

    first = await owner.read("/audit?action=create_key")
    (older,) = _CURSOR.findall(first)
    second = await owner.read(older.replace("&amp;", "&"))

    assert "55 entries" in words(first)
    assert (50, 5) == (first.count('data-name="Who"'), second.count('data-name="Who"'))


async def test_the_log_is_verified_in_plain_words(
    installation: WebInstallation, owner: WebUser
) -> None:
    response = await owner.post("/audit/verify")
    page = words(await owner.read(response.headers["location"]))
    assert re.search(r"The log is intact: all \d+ entries are unchanged\. Checked 1 Jun", page)

    db = apsw.Connection(str(installation.app.settings.data_dir / "postroom.db"))
    db.execute("DROP TRIGGER audit_no_update; UPDATE audit SET actor = 'nobody' WHERE number = 1")
    db.close()
    response = await owner.post("/audit/verify")

    assert 409 == response.status_code
    assert "The audit log was changed outside Postroom. audit: entry 1" in words(response.text)


async def test_a_log_that_is_too_long_to_verify_in_time_is_verified_in_part(
    installation: WebInstallation, owner: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.operations.health.VERIFY_S", 0.0)
    monkeypatch.setattr("postroom.store.maintenance.lifecycle._BATCH_SIZE", 2)

    response = await owner.post("/audit/verify")

    page = words(await owner.read(response.headers["location"]))
    assert "The first 2 entries are unchanged" in page


async def test_the_result_of_a_check_is_shown_to_its_user_only(
    installation: WebInstallation, owner: WebUser
) -> None:
    location = (await owner.post("/audit/verify")).headers["location"]

    async with session_of_key(installation, "read", "admin") as other:
        assert "The log is intact" not in words(await other.read(location))


async def test_a_limited_administrator_sees_a_part_of_the_log_and_verifies_nothing(
    installation: WebInstallation,
) -> None:
    await installation.hold()
    other = await installation.new_inbox("other")

    async with session_of_key(installation, "read", "admin", inboxes=[other]) as limited:
        page = await limited.read("/audit")
        refused = await limited.post("/audit/verify")
        health = await limited.get("/health")

    assert "send_message" not in words(page)
    assert "Verify log" not in page
    assert (403, 403) == (refused.status_code, health.status_code)
    assert "whole installation" in words(health.text)


async def test_a_user_who_only_reads_has_no_link_to_audit_and_health(
    installation: WebInstallation,
) -> None:
    async with session_of_key(installation, "read") as reader:
        page = await reader.read("/")
        answers = [(await reader.get(path)).status_code for path in ("/audit", "/health")]
        verified = await reader.post("/audit/verify")

    assert 'href="/events"' in page
    assert 'href="/audit"' not in page
    assert 'href="/health"' not in page
    assert ([403, 403], 403) == (answers, verified.status_code)


async def test_health_says_what_doctor_says_problems_first(
    installation: WebInstallation, owner: WebUser
) -> None:
    page = words(await owner.read("/health"))

    assert "2 problems" in page  # the relay, and the clock of the test
    assert "no connection to the relay 127.0.0.1:9" in page
    assert "Fix: check POSTROOM_RELAY_URL" in page
    assert page.index("relay") < page.index("reads and writes work")
    for part in (
        "Postroom 0",
        "SQLite 3",
        "Mail to index 0",
        "No failures since the start.",
    ):
        assert part in page


async def test_a_check_that_hangs_or_fails_does_not_affect_the_others(
    installation: WebInstallation, owner: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> CheckResult:
        await asyncio.Event().wait()
        return ok("keys", "")

    async def fail(*_: object) -> CheckResult:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(checks, "MAX_CHECK_S", 0.2)
    monkeypatch.setitem(checks.INSTALLATION, "keys", hang)
    monkeypatch.setitem(checks.INSTALLATION, "blobs", fail)

    page = words(await owner.read("/health"))

    assert "keys no answer within" in page
    assert "blobs the disk is on fire" in page
    assert "schema is current" in page


async def test_health_names_leases_and_failures(
    installation: WebInstallation, owner: WebUser
) -> None:
    services = installation.app.services
    now = services.clock()
    await services.store.claim("sweep", "proc_1", now=now, lifetime=timedelta(hours=1))
    services.counts.failed("sync_failed", {}, count=3)

    page = words(await owner.read("/health"))

    assert "sweep until 1 Jun 2026, 01:00 UTC" in page
    assert "3 Sync passes that failed" in page
    assert "3 Sync passes that failed" in words(await owner.read("/"))


async def test_calls_of_tools_are_shown_by_tool(
    installation: WebInstallation, owner: WebUser
) -> None:
    today = datetime(2026, 6, 1, tzinfo=UTC).date()
    await installation.app.services.store.count_calls(
        [CallCount(today, "agent", "mcp", "read_mail", 7, 2)]
    )

    page = words(await owner.read("/"))

    assert "Tool Calls Errors read_mail 7 2" in page
