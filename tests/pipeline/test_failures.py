"""Every failure is counted and logged, with enough detail to find its cause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.context import RequestContext
from postroom.calls.operation import call, operation
from postroom.config import read_settings
from postroom.errors import ProviderAuthFailed, ProviderTimeout, StorageFull
from postroom.model.account import Account
from postroom.model.key import OWNER, Scope
from postroom.model.page import Page
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import ListInboxes
from postroom.operations.mail.message_changes import move_message
from postroom.operations.outgoing.sending import send_message
from postroom.operations.webhooks import create_webhook
from postroom.pipeline.counters import FAILURE_COUNTERS
from postroom.pipeline.outbox import Outbox
from postroom.pipeline.sync import SyncScheduler
from postroom.pipeline.webhooks import Webhooks
from postroom.ports.provider import Provider
from postroom.providers.allowed_hosts import AddressGuard
from postroom.providers.http_clients import HttpWebhookClient
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from postroom.store.store import Store
from postroom.surfaces.mcp.call_tool import call_tool
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.smtp.server import listening
from tests.mails import SOME, deliver, mail, new_inbox
from tests.providers.accounts.conftest import add_synced_account
from tests.providers.accounts.remote_mailboxes import open_remote
from tests.servers.relay import CUT, Script, relaying
from tests.surfaces.rest.conftest import rest_client
from tests.surfaces.smtp.conftest import Client, connect

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"
MAIL = mail("Hello").replace(b"\n", b"\r\n")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@dataclass
class FailureScenario:
    """An installation in which one failure is caused."""

    app: App
    monkeypatch: pytest.MonkeyPatch
    now: datetime = NOON

    @property
    def ctx(self) -> RequestContext:
        return self.app.context(OWNER)

    def change(self, **changes: Any) -> None:
        self.app = replace(self.app, services=replace(self.app.services, **changes))

    async def until_counted(self, name: str) -> None:
        async with asyncio.timeout(50):
            while not self.app.services.counts[name]:  # noqa: ASYNC110 - a counter notifies nobody
                await asyncio.sleep(0.01)


@pytest.fixture
async def scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FailureScenario]:
    given = {"DATA_DIR": str(tmp_path / "data"), "RELAY_URL": "smtp://127.0.0.1:9"}
    given |= {"SMTP_LISTEN": "127.0.0.1:0", "SECRETS": "file"}
    settings = read_settings({f"POSTROOM_{name}": value for name, value in given.items()}).settings
    async with open_app(settings) as app:
        await new_inbox(app.services)
        scenario = FailureScenario(app, monkeypatch)
        scenario.change(clock=lambda: scenario.now)
        yield scenario


async def full(*_: object, **__: object) -> None:
    raise StorageFull("the disk is full; free some space and try again")


@asynccontextmanager
async def speaking(scenario: FailureScenario) -> AsyncIterator[Client]:
    async with listening(scenario.app) as listener:
        assert listener is not None
        client = await connect(listener)
        yield client
        client.writer.close()


async def bring(scenario: FailureScenario, data: bytes) -> None:
    async with speaking(scenario) as client:
        await client.begin()
        await client.send(data)


async def a_full_disk(scenario: FailureScenario) -> None:
    scenario.monkeypatch.setattr(scenario.app.services.blobs, "put", full)
    await bring(scenario, MAIL + b".\r\n")


async def a_bare_newline(scenario: FailureScenario) -> None:
    await bring(scenario, b"Subject: x\r\n\r\na\n.\nMAIL FROM:<b@c.d>\r\n.\r\n")


async def a_mail_loop(scenario: FailureScenario) -> None:
    await bring(scenario, b"Received: from x\r\n" * 51 + MAIL + b".\r\n")


async def too_many_mails(scenario: FailureScenario) -> None:
    scenario.change(limits=replace(scenario.app.services.limits, smtp_per_minute=1))
    async with speaking(scenario) as client:
        await client.reply()
        await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>", b"RSET", b"MAIL FROM:<a@b.c>")


async def a_mail_that_cannot_be_read(scenario: FailureScenario) -> None:
    scenario.app.services.parser.small_bytes, scenario.app.services.parser.timeout_s = 10, 0.001
    await bring(scenario, MAIL + b".\r\n")


async def transmit(scenario: FailureScenario, script: Script, name: str) -> None:
    async with relaying(script) as relay:
        relays = parse_relay_url(relay.url)
        worker = Outbox(scenario.ctx, SmtpRelay(relays, "postroom.localhost", response_s=2))
        working = asyncio.create_task(worker.run())
        try:
            await scenario.until_counted(name)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def sent(scenario: FailureScenario) -> str:
    outgoing_mail = {"to": ["ana@example.com"], "subject": "Hello", "body_text": "Good morning."}
    return (await call(scenario.ctx, send_message, outgoing_mail)).message_id


async def a_relay_that_refuses(scenario: FailureScenario) -> None:
    await sent(scenario)
    await transmit(scenario, {"RCPT": b"550 5.1.1 nobody"}, "outbox_failed")


async def a_relay_that_stops_responding(scenario: FailureScenario) -> None:
    await sent(scenario)
    await transmit(scenario, {"DOT": CUT}, "outbox_unknown")


async def a_relay_that_is_busy_for_two_days(scenario: FailureScenario) -> None:
    await sent(scenario)
    await transmit(scenario, {"RCPT": b"450 4.2.0 later"}, "outbox_deferred")
    scenario.now += timedelta(hours=49)
    await transmit(scenario, {"RCPT": b"450 4.2.0 later"}, "outbox_bounced")


async def missing_bytes(scenario: FailureScenario) -> None:
    message = await scenario.ctx.store.message(await sent(scenario), EVERYTHING)
    assert message is not None
    folder = scenario.app.settings.data_dir / "blobs"
    (folder / message.raw[:2] / message.raw[2:]).unlink()
    await transmit(scenario, {}, "outbox_errors")


async def another_worker(scenario: FailureScenario) -> None:
    async def taken(*_: object) -> bool:
        return False

    await sent(scenario)
    scenario.monkeypatch.setattr(scenario.ctx.store, "begin_transmission", taken)
    await transmit(scenario, {}, "outbox_claims_lost")


async def an_outcome_with_a_full_disk(scenario: FailureScenario) -> None:
    await sent(scenario)
    scenario.monkeypatch.setattr(scenario.ctx.store, "settle_mail", full)
    await transmit(scenario, {}, "outbox_unsettled")


async def a_worker_that_died(scenario: FailureScenario) -> None:
    await sent(scenario)
    until = scenario.now + timedelta(seconds=30)
    claimed = await scenario.ctx.store.claim_mail(
        "dead", now=scenario.now, until=until, free=SOME, max_per_domain=9
    )
    assert await scenario.ctx.store.begin_transmission(claimed.jobs[0], ["ana@example.com"])
    scenario.now = until
    await transmit(scenario, {}, "outbox_unknown")


async def fail_to_sync(scenario: FailureScenario, error: Exception) -> None:
    @asynccontextmanager
    async def fail(*_: object) -> AsyncIterator[Provider]:
        raise error
        yield

    inbox_id = scenario.ctx.new_id("inb")
    account = Account(
        "work", "imap", "bo@example.com", inbox_id, "new", "", 0, None, None, scenario.now
    )
    await scenario.ctx.store.add_account(account, "Work")
    scenario.monkeypatch.setattr(type(scenario.app.services.providers), "open", fail)
    scenario.app.services.providers.store_secret("work", {"password": "x"})
    syncing = asyncio.create_task(SyncScheduler(scenario.ctx, wait_s=60).run())
    try:
        await scenario.until_counted("sync_failed")
    finally:
        syncing.cancel()
        await asyncio.gather(syncing, return_exceptions=True)


async def an_unreachable_account(scenario: FailureScenario) -> None:
    await fail_to_sync(scenario, ProviderTimeout("no answer from mail.example.com"))


async def an_account_with_a_changed_password(scenario: FailureScenario) -> None:
    await fail_to_sync(scenario, ProviderAuthFailed("the server refused the login"))


async def an_account_with_a_fault(scenario: FailureScenario) -> None:
    await fail_to_sync(scenario, RuntimeError("a fault of our own"))


async def a_mail_that_the_database_refuses(scenario: FailureScenario) -> None:
    async with open_remote("imap") as remote:
        for subject in ("Before", "Refused", "After"):
            remote.deliver(mail(subject))
        synced = await add_synced_account(scenario.app, remote)
        await refuse_subject(scenario, "Refused")
        await synced.sync()
        assert {"Before", "After"} == {row.subject for row in await synced.rows()}


async def refuse_subject(scenario: FailureScenario, subject: str) -> None:
    """Make the database refuse a row, as PostgreSQL refuses a value too long for an index."""
    trigger = f"""CREATE TRIGGER refused BEFORE INSERT ON messages WHEN new.subject = '{subject}'
        BEGIN SELECT RAISE(ABORT, 'too long'); END"""
    store = scenario.app.services.store
    assert isinstance(store, Store)
    await store.engine.write(lambda tx: tx.put(trigger))


async def a_mailbox_with_an_impossible_name(scenario: FailureScenario) -> None:
    async with open_remote("imap") as remote:
        remote.deliver(mail("Hello"))
        synced = await add_synced_account(scenario.app, remote)
        await synced.sync()
        arguments = {
            "message_id": (await synced.message("Hello")).id,
            "destination": "\N{CJK UNIFIED IDEOGRAPH-540D}" * 250,
        }
        await call(scenario.ctx, move_message, arguments)
        await synced.sync()


async def tell(scenario: FailureScenario, name: str) -> None:
    poster = HttpWebhookClient(AddressGuard((ip_network("127.0.0.0/8"),)), timeout_s=2)
    scenario.change(webhook_client=poster)
    hook = {"url": "http://127.0.0.1:9/hook", "types": ["message.received"]}
    await call(scenario.ctx, create_webhook, hook)
    inbox = (await scenario.ctx.store.inboxes_at(["bo@postroom.localhost"])).popitem()[1]
    await deliver(scenario.ctx, inbox, mail("News"))
    if name == "webhooks_dead":
        scenario.now += timedelta(hours=25)
    telling = asyncio.create_task(Webhooks(scenario.ctx).run())
    try:
        await scenario.until_counted(name)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def an_unreachable_webhook(scenario: FailureScenario) -> None:
    await tell(scenario, "webhooks_failed")


async def an_abandoned_webhook(scenario: FailureScenario) -> None:
    await tell(scenario, "webhooks_dead")


async def not_ready(scenario: FailureScenario) -> None:
    scenario.monkeypatch.setattr(scenario.app.services.blobs, "put", full)
    async with rest_client(scenario.app, await scenario.app.owner_key()) as rest:
        await rest.problem("GET", "/readyz")
        await rest.problem("GET", "/readyz")


@operation(Scope.READ)
async def stumble(ctx: RequestContext, request: ListInboxes) -> Page[Any]:
    raise RuntimeError("a fault of our own")


async def a_tool_with_a_fault(scenario: FailureScenario) -> None:
    tool = Tool(name="stumble", title="Stumble", operation=stumble)
    await call_tool(scenario.ctx, tool, {})


SCENES: list[tuple[str, Callable[[FailureScenario], Awaitable[None]], str]] = [
    ("smtp_failed", a_full_disk, "session"),
    ("smtp_smuggled", a_bare_newline, "session"),
    ("smtp_looping", a_mail_loop, "session"),
    ("smtp_limited", too_many_mails, "session"),
    ("parsing_failed", a_mail_that_cannot_be_read, "bytes"),
    ("outbox_failed", a_relay_that_refuses, "message_id"),
    ("outbox_unknown", a_relay_that_stops_responding, "message_id"),
    ("outbox_unknown", a_worker_that_died, "message_id"),
    ("outbox_bounced", a_relay_that_is_busy_for_two_days, "message_id"),
    ("outbox_errors", missing_bytes, "message_id"),
    ("outbox_claims_lost", another_worker, "message_id"),
    ("outbox_unsettled", an_outcome_with_a_full_disk, "message_id"),
    ("sync_failed", an_unreachable_account, "account"),
    ("sync_failed", an_account_with_a_changed_password, "account"),
    ("sync_failed", an_account_with_a_fault, "account"),
    ("sync_skipped", a_mail_that_the_database_refuses, "account"),
    ("pushes_refused", a_mailbox_with_an_impossible_name, "message_id"),
    ("webhooks_failed", an_unreachable_webhook, "delivery_id"),
    ("webhooks_dead", an_abandoned_webhook, "delivery_id"),
    ("readiness_failed", not_ready, "request_id"),
    ("tools_failed", a_tool_with_a_fault, "tool"),
]
"""Each failure, its cause, and the fields of its log line."""


def test_every_failure_is_covered() -> None:
    assert set(FAILURE_COUNTERS) == {name for name, _, _ in SCENES}


@pytest.mark.parametrize(
    ("name", "happen", "named"), SCENES, ids=[happen.__name__ for _, happen, _ in SCENES]
)
async def test_a_failure_is_counted_and_in_the_log(
    scenario: FailureScenario,
    caplog: pytest.LogCaptureFixture,
    name: str,
    happen: Callable[[FailureScenario], Awaitable[None]],
    named: str,
) -> None:
    with caplog.at_level(logging.WARNING):
        await happen(scenario)

    event = name.replace("_", ".", 1)
    lines = [record for record in caplog.records if record.getMessage() == event]
    assert 1 == scenario.app.services.counts[name] == len(lines)
    assert getattr(lines[0], named)


async def test_a_request_that_fails_is_counted_and_in_the_log(
    scenario: FailureScenario, caplog: pytest.LogCaptureFixture
) -> None:
    scenario.monkeypatch.setattr(scenario.app.services.blobs, "put", full)
    async with rest_client(scenario.app, await scenario.app.owner_key()) as rest:
        path = "/v1/inbound?recipient=bo@postroom.localhost"
        problem = await rest.problem("POST", path, content=MAIL)
        metrics = (await rest.send("GET", "/metrics")).text

    [line] = [record for record in caplog.records if record.getMessage() == "request.failed"]
    assert (507, problem["request_id"]) == (problem["status"], line.request_id)
    assert 'postroom_http_errors_total{code="storage_full"} 1' in metrics


def test_each_failure_is_documented() -> None:
    rows = [line.split("|") for line in DOCUMENT.read_text("utf-8").splitlines()]
    listed = {row[1].strip(" `") for row in rows if len(row) > 2 and row[1].startswith(" `")}

    assert {f"postroom_{name}_total" for name in FAILURE_COUNTERS} <= listed
