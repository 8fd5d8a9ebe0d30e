"""A mail that its provider cannot return blocks no other, and is fetched once it is available."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.model.account import RemoteRef
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline import pull
from postroom.pipeline.pull import AccountIngest, RemoteMail
from tests.mails import mail
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import (
    GmailRemote,
    GraphRemote,
    ImapRemote,
    RemoteMailbox,
    open_remote,
)
from tests.providers.accounts.test_malformed_responses import JmapRemote
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents
from tests.servers.web import HttpRequest, HttpResponse, WebServer

MB = 2**20
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class WithholdingServer:
    """Passes on responses, and withholds the mail with the subject *Bad* while *is_shut*."""

    answer: Callable[[HttpRequest], HttpResponse]
    status: int
    is_shut: bool = True
    is_down: bool = False
    requests: list[HttpRequest] = field(default_factory=list)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.answer(request)
        self.requests.append(request)
        if self.is_down and "/messages/AAk" in request.path:
            return HttpResponse(500, {"error": {"code": "InternalServerError"}})
        if self.is_shut and b"Subject: Bad" in _content(request, answer):
            return HttpResponse(
                self.status, {"error": {"code": "ErrorMimeContentConversionFailed"}}
            )
        return answer


def _content(request: HttpRequest, answer: HttpResponse) -> bytes:
    body = answer.body if isinstance(answer.body, bytes) else b""
    if request.query.get("format") == "raw":
        return urlsafe_b64decode(json.loads(body)["raw"] + "==")
    return body if request.path.endswith("$value") or request.path.startswith("/blob/") else b""


@contextmanager
def withholding_remote(kind: str, status: int) -> Iterator[tuple[RemoteMailbox, WithholdingServer]]:
    """A remote mailbox whose provider withholds one mail."""
    if kind == "fastmail":
        jmap = JmapEvents()
        withholding = WithholdingServer(jmap._answer, status)
        jmap.web = WebServer(withholding)
        with jmap:
            yield JmapRemote(jmap), withholding
        return
    server: Graph | Gmail = Graph() if kind == "outlook" else Gmail()
    withholding = WithholdingServer(server._answer, status)
    server.web = WebServer(withholding)
    with server:
        yield GraphRemote(server) if isinstance(server, Graph) else GmailRemote(server), withholding


@asynccontextmanager
async def synced_account_at(remote: RemoteMailbox, folder: Path) -> AsyncIterator[SyncedAccount]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file", **remote.settings}
    async with open_app(read_settings(values).settings) as app:
        yield await add_synced_account(app, remote)


async def subjects(synced: SyncedAccount) -> set[str]:
    return {row.subject for row in await synced.rows()}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("outlook", 400),
        ("outlook", 404),
        ("outlook", 500),
        ("gmail", 404),
        ("gmail", 500),
        ("fastmail", 404),
    ],
)
async def test_an_unfetchable_mail_does_not_block_others(
    tmp_path: Path, kind: str, status: int
) -> None:
    with withholding_remote(kind, status) as (remote, withholding):
        async with synced_account_at(remote, tmp_path) as synced:
            for subject in ("Before", "Bad", "After"):
                remote.deliver(mail(subject))
            await synced.sync()
            remote.deliver(mail("Later"))
            await synced.sync()

            assert {"Before", "After", "Later"} == await subjects(synced)
            assert 1 == synced.app.services.counts["sync_skipped"]
            (account,) = (await synced.app.services.store.accounts(EVERYTHING, Slice(limit=1))).rows
            assert "ready" == account.state

            withholding.is_shut = False
            await synced.sync()
            assert {"Before", "Bad", "After", "Later"} == await subjects(synced)
            assert () == await synced.app.services.store.unfetched("work")


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_a_mail_without_metadata_does_not_block_others(tmp_path: Path, kind: str) -> None:
    with withholding_remote(kind, 400) as (remote, withholding):
        async with synced_account_at(remote, tmp_path) as synced:
            for subject in ("Before", "Bad", "After"):
                remote.deliver(mail(subject))
            await synced.sync()
            (one,) = await synced.app.services.store.unfetched("work")
            answer = withholding.answer

            def refuse(request: HttpRequest) -> HttpResponse:
                is_bad = request.path.endswith(f"/messages/{one.ref.key}")
                return (
                    HttpResponse(400, {"error": {"code": "ErrorX"}}) if is_bad else answer(request)
                )

            withholding.answer = refuse
            remote.deliver(mail("Later"))
            await synced.sync()
            assert {"Before", "After", "Later"} == await subjects(synced)
            (again,) = await synced.app.services.store.unfetched("work")
            assert (one.ref, one.attempts + 1) == (again.ref, again.attempts)

            withholding.answer, withholding.is_shut = answer, False
            await synced.sync()
            assert {"Before", "Bad", "After", "Later"} == await subjects(synced)


def shut(file: Path) -> None:
    """Make a file unreadable for Dovecot, which reads as another user if started by root."""
    file.chmod(0)
    if os.getuid() == 0:
        os.chown(file, 0, 0)


async def test_an_unreadable_file_of_the_imap_server_does_not_block_others(tmp_path: Path) -> None:
    async with open_remote("imap") as remote:
        assert isinstance(remote, ImapRemote)
        async with synced_account_at(remote, tmp_path) as synced:
            for subject in ("Before", "Bad", "After"):
                remote.deliver(mail(subject))
            (file,) = [
                path
                for path in remote.home.rglob("*")
                if path.is_file() and b"Subject: Bad" in path.read_bytes()
            ]
            shut(file)
            await synced.sync()

            assert {"Before", "After"} == await subjects(synced)
            (moved,) = remote.home.rglob(f"{file.name.partition(',')[0]}*")
            moved.chmod(0o666)
            await synced.sync()
            assert {"Before", "Bad", "After"} == await subjects(synced)


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_large_mails_are_fetched_one_at_a_time(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    store = AccountIngest.store

    async def counted(self: AccountIngest, mails: list[RemoteMail]) -> None:
        kept.append(sum(len(raw) for _, raw in mails))
        await store(self, mails)

    monkeypatch.setattr(AccountIngest, "store", counted)
    monkeypatch.setattr(pull, "BATCH_BYTES", MB)
    with withholding_remote(kind, 500) as (remote, withholding):
        async with synced_account_at(remote, tmp_path) as synced:
            for number in range(4):
                remote.deliver(mail(f"Large {number}", text="word " * (MB // 5)))
            remote.deliver(mail("Small"))
            await synced.sync()

            assert 5 == len(await synced.rows())
            assert max(kept) < 2 * MB
            if kind == "gmail":
                forms = [a.query["format"] for a in withholding.requests if "format" in a.query]
                # The small one is read at once; of the large ones, the size is read first.
                assert (5, 4) == (forms.count("raw"), forms.count("minimal"))


async def test_mail_is_fetched_once_a_failing_provider_recovers(tmp_path: Path) -> None:
    with withholding_remote("outlook", 500) as (remote, withholding):
        async with synced_account_at(remote, tmp_path) as synced:
            remote.deliver(mail("Bad"))
            withholding.is_down = True
            with pytest.raises(ProviderError):
                await synced.sync()
            assert () == await synced.app.services.store.unfetched("work")

            withholding.is_down = withholding.is_shut = False
            await synced.sync()
            assert {"Bad"} == await subjects(synced)


def test_unfetched_messages_are_retried_with_growing_intervals() -> None:
    unfetched, ref, waits = pull.UnfetchedMessages(), RemoteRef("", "1"), []
    for attempt in range(20):
        assert unfetched.defer(ref, NOW) is (attempt == 0)
        waits.append(unfetched.entries[ref].next_at - NOW)

    assert (timedelta(seconds=10), timedelta(seconds=20)) == (waits[0], waits[1])
    assert timedelta(days=1) == waits[-1] == max(waits)
    assert [] == unfetched.due(NOW)
    assert [ref] == unfetched.due(None) == unfetched.due(NOW + timedelta(days=1))
    for number in range(1, pull.MAX_UNFETCHED):
        unfetched.defer(RemoteRef("", f"other-{number}"), NOW)
    with pytest.raises(ProviderError):
        unfetched.defer(RemoteRef("", "one too many"), NOW)
