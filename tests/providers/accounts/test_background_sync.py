"""The sync worker: push notifications, failing accounts, missing logins and rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import ProviderAuthFailed, RateLimited
from postroom.model.account import Account
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations.accounts import add_account, check_account, list_accounts, log_in_account
from postroom.operations.mail.messages import search_messages, wait_for_message
from postroom.operations.outgoing.outbox import list_outbox
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline import sync as pipeline_syncing
from postroom.pipeline.outbox import NO_LOGIN_WAIT, Outbox
from postroom.pipeline.services import Services
from postroom.pipeline.sync import SyncScheduler, sync_once
from postroom.providers.accounts import Accounts
from postroom.providers.imap import client as imap_client
from postroom.providers.imap import connection as imap_connection
from postroom.providers.imap import provider as imap_account
from tests.mails import mail
from tests.providers.accounts.remote_mailboxes import (
    ADDRESS,
    ImapRemote,
    RemoteMailbox,
    open_remote,
)
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents
from tests.servers.proxy import proxied


@dataclass
class PushRemote:
    """A remote mailbox that only supports delivery."""

    settings: dict[str, str]
    arguments: dict[str, Any]


@asynccontextmanager
async def syncing_app(folder: Path, remote: RemoteMailbox | PushRemote) -> AsyncIterator[App]:
    """An installation that syncs the account of a remote mailbox in the background."""
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file", **remote.settings}
    async with open_app(read_settings(values).settings) as app:
        await call(app.context(OWNER), add_account, {"account_id": "work", **remote.arguments})
        work = asyncio.create_task(SyncScheduler(app.services, wait_s=0.1).run())
        try:
            yield app
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def account_when(app: App, state: str) -> Account:
    """Wait until the account is in a state, and return it."""
    async with asyncio.timeout(60):
        while True:
            page = await call(app.context(OWNER), list_accounts, {})
            if page.results[0].state == state:
                return page.results[0]
            await asyncio.sleep(0.05)


def outgoing_mail(subject: str) -> bytes:
    return mail(subject, to=ADDRESS, date=datetime.now(UTC) + timedelta(seconds=2))


async def wait_until(claim: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not await claim():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_idle_notifications_sync_new_mail_and_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no polling here: without IDLE the test would time out."""
    monkeypatch.setattr(imap_account, "POLL_S", 3_600)
    monkeypatch.setattr(imap_client, "IDLE_S", 3_600)
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(open_remote("imap"))
        remote.deliver(outgoing_mail("Before"))
        app = await stack.enter_async_context(syncing_app(tmp_path / "data", remote))
        account = await account_when(app, "ready")
        for subject in ("News of today", "News of tonight"):
            since = (await app.services.store.events_after(0, limit=1_000, visible=EVERYTHING))[
                -1
            ].id
            remote.deliver(outgoing_mail(subject))
            wanted = {"inbox_id": account.inbox_id, "subject": subject, "since": since}
            waited = await call(app.context(OWNER), wait_for_message, wanted)
            assert waited.message is not None, await account_when(app, "ready")
            found = await call(app.context(OWNER), search_messages, {"q": subject.upper()})
            assert [waited.message.id] == [row.id for row in found.results]
        remote.flag("News of today")

        async def is_flagged() -> bool:
            page = await call(app.context(OWNER), search_messages, {"q": "today"})
            return "flagged" in page.results[0].flags

        await wait_until(is_flagged)


async def test_jmap_push_syncs_new_mail(tmp_path: Path) -> None:
    with JmapEvents() as server:
        remote = PushRemote(
            {"POSTROOM_FASTMAIL_URL": server.web.url},
            {"provider": "fastmail", "address": ADDRESS, "password": "a-token"},
        )
        server.deliver(outgoing_mail("Old"))
        async with syncing_app(tmp_path / "data", remote) as app:
            account = await account_when(app, "ready")
            await asyncio.to_thread(server.listening.wait, 30)
            waiting = asyncio.create_task(
                call(
                    app.context(OWNER),
                    wait_for_message,
                    {"inbox_id": account.inbox_id, "subject": "News", "timeout_s": 25},
                )
            )
            await asyncio.sleep(0.2)
            server.deliver(outgoing_mail("News"))
            waited = await waiting

        assert waited.message is not None
        assert {"Bearer a-token"} == {a.headers.get("authorization") for a in server.web.requests}


async def test_an_expired_login_names_the_command_and_resumes_after_it(
    tmp_path: Path,
) -> None:
    with Graph() as graph:
        graph.deliver(outgoing_mail("One"))
        remote = PushRemote(
            {"POSTROOM_OUTLOOK_URL": graph.url, "POSTROOM_OUTLOOK_CLIENT_ID": "cid"},
            {"provider": "outlook", "address": ADDRESS, "access_token": graph.token},
        )
        async with syncing_app(tmp_path / "data", remote) as app:
            await account_when(app, "ready")
            graph.token = "another"
            graph.deliver(outgoing_mail("Two"))
            await app.services.store.request_sync("work", app.services.clock())
            account = await account_when(app, "needs_reauth")
            assert "postroom account login work" in account.detail
            wrong = {"account_id": "work", "access_token": "wrong"}
            with pytest.raises(ProviderAuthFailed):
                await call(app.context(OWNER), log_in_account, wrong)
            right = {"account_id": "work", "access_token": "another"}
            await call(app.context(OWNER), log_in_account, right)
            account = await account_when(app, "ready")
            assert 2 == account.synced


def without_logins(app: App, folder: Path) -> tuple[Services, list[str]]:
    """A machine on the same database without the logins, and the accounts that it tried."""
    looked_at: list[str] = []

    class Watched(Accounts):
        def has_secret(self, account_id: str) -> bool:
            looked_at.append(account_id)
            return super().has_secret(account_id)

    assert isinstance(app.services.providers, Accounts)
    here = vars(app.services.providers)
    there = Watched(folder, here["kind"], here["endpoints"], here["message_bytes"])
    return replace(app.services, providers=there), looked_at


def syncing(services: Services) -> AbstractAsyncContextManager[None]:
    return running(SyncScheduler(services, wait_s=0.1))


@asynccontextmanager
async def running(worker: SyncScheduler | Outbox) -> AsyncIterator[None]:
    work = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_a_machine_without_the_login_leaves_an_account_to_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_syncing, "LEASE", timedelta(seconds=2))
    values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
    async with open_remote("imap") as remote, open_app(read_settings(values).settings) as app:
        account = await call(
            app.context(OWNER), add_account, {"account_id": "work", **remote.arguments}
        )
        other, looked_at = without_logins(app, tmp_path / "other")

        async def has_looked_twice() -> bool:
            return len(looked_at) > 1

        async with syncing(other):
            await wait_until(has_looked_twice)
            with pytest.raises(ProviderAuthFailed):
                await sync_once(other, account)
            found = await app.services.store.account("work", EVERYTHING)
            assert found is not None
            assert "new" == found.state
            async with syncing(app.services):
                await account_when(app, "ready")


async def test_a_machine_without_the_login_leaves_its_mail_to_other_machines(
    tmp_path: Path,
) -> None:
    values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
    async with open_remote("imap") as remote, open_app(read_settings(values).settings) as app:
        account = await call(
            app.context(OWNER), add_account, {"account_id": "work", **remote.arguments}
        )
        outgoing_mail = {"inbox_id": account.inbox_id, "to": ["bo@b.org"], "body_text": "Hi"}
        await call(app.context(OWNER), send_message, {**outgoing_mail, "subject": "Out"})
        other, _ = without_logins(app, tmp_path / "other")

        events = await app.services.store.newest_event(visible=EVERYTHING)
        began = app.services.clock()

        async def is_left() -> bool:
            next_at = await app.services.store.next_mail_at()
            state = await call(app.context(OWNER), list_outbox, {})
            is_later = (
                next_at is not None and began < next_at <= app.services.clock() + NO_LOGIN_WAIT
            )
            return is_later and state.results[0].status == "queued"

        async with running(Outbox(other, None)):
            await wait_until(is_left)
        [entry] = (await call(app.context(OWNER), list_outbox, {})).results
        assert (0, events) == (
            entry.attempts,
            await app.services.store.newest_event(visible=EVERYTHING),
        )

        async def has_left() -> bool:
            return bool(remote.sent())

        later = replace(app.services, clock=lambda: datetime.now(UTC) + NO_LOGIN_WAIT)
        async with running(Outbox(later, None)):
            await wait_until(has_left)


async def test_a_missing_login_is_reported_and_sync_resumes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_syncing, "UNATTENDED_S", 0)
    values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
    async with open_remote("imap") as remote, open_app(read_settings(values).settings) as app:
        await call(app.context(OWNER), add_account, {"account_id": "work", **remote.arguments})
        async with syncing(without_logins(app, tmp_path / "other")[0]):
            account = await account_when(app, "needs_reauth")
            assert "postroom account login work" in account.detail
            async with syncing(app.services):
                await account_when(app, "ready")


async def test_a_hanging_server_affects_only_its_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(open_remote("imap-plain"))
        assert isinstance(remote, ImapRemote)
        proxy = await stack.enter_async_context(proxied(remote.port))
        remote.deliver(outgoing_mail("Before"))
        app = await stack.enter_async_context(syncing_app(tmp_path / "data", remote))
        await account_when(app, "ready")
        silent = {**remote.arguments, "account_id": "silent", "port": proxy.port}
        silent |= {"address": "alias@example.com", "security": "none"}
        await call(app.context(OWNER), add_account, silent)
        monkeypatch.setattr(imap_connection, "COMMAND_S", 0.5)
        proxy.stall_after = 1_000
        proxy.cut_all()

        async def has_failed() -> bool:
            account = await app.services.store.account("silent", EVERYTHING)
            return account is not None and "did not answer" in account.detail

        await wait_until(has_failed)
        remote.deliver(outgoing_mail("News for who listens"))

        async def is_here() -> bool:
            page = await call(app.context(OWNER), search_messages, {"q": "who listens"})
            return bool(page.results)

        await wait_until(is_here)


async def test_a_busy_provider_is_retried_later(tmp_path: Path) -> None:
    with Graph() as graph:
        for number in range(3):
            graph.deliver(outgoing_mail(f"Mail {number}"))
        remote = PushRemote(
            {"POSTROOM_OUTLOOK_URL": graph.url, "POSTROOM_OUTLOOK_CLIENT_ID": "cid"},
            {"provider": "outlook", "address": ADDRESS, "access_token": graph.token},
        )
        async with syncing_app(tmp_path / "data", remote) as app:
            graph.busy += [1, 1]
            account = await account_when(app, "ready")

            assert (3, []) == (account.synced, graph.busy)


async def test_a_caller_gets_the_retry_after_of_the_provider(tmp_path: Path) -> None:
    with Graph() as graph:
        remote = PushRemote(
            {"POSTROOM_OUTLOOK_URL": graph.url, "POSTROOM_OUTLOOK_CLIENT_ID": "cid"},
            {"provider": "outlook", "address": ADDRESS, "access_token": graph.token},
        )
        async with syncing_app(tmp_path / "data", remote) as app:
            await account_when(app, "ready")
            graph.busy += [120] * 20
            with pytest.raises(RateLimited) as refused:
                await call(app.context(OWNER), check_account, {"account_id": "work"})

    assert 120 == refused.value.retry_after
    assert 19 <= len(graph.busy)


async def test_sending_is_deferred_while_a_provider_wants_a_pause(tmp_path: Path) -> None:
    with Graph() as graph:
        remote = PushRemote(
            {"POSTROOM_OUTLOOK_URL": graph.url, "POSTROOM_OUTLOOK_CLIENT_ID": "cid"},
            {"provider": "outlook", "address": ADDRESS, "access_token": graph.token},
        )
        async with syncing_app(tmp_path / "data", remote) as app:
            await account_when(app, "ready")
            graph.busy.append(1200)
            with pytest.raises(RateLimited):
                await call(app.context(OWNER), check_account, {"account_id": "work"})
            asked = len(graph.requests)
            sent_mail = {"to": ["bo@else.example"], "subject": "Hello", "body_text": "Hello"}
            sent = await call(app.context(OWNER), send_message, sent_mail)
            handing_over = asyncio.create_task(app.outbox().run())

            async def is_deferred() -> bool:
                message = await app.services.store.message(sent.message_id, EVERYTHING)
                assert message is not None
                return "rate limit" in str(message.recipients)

            await wait_until(is_deferred)
            handing_over.cancel()
            await asyncio.gather(handing_over, return_exceptions=True)

    assert (asked, []) == (len(graph.requests), graph.sent)
