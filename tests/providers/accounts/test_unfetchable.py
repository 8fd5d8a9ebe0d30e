"""A mail that its provider does not give out stops no other, and comes once it can be had."""

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
from tests.providers.accounts.conftest import Desk, open_desk
from tests.providers.accounts.test_nonsense import JmapWorld
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, ImapWorld, World, open_world
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents
from tests.servers.web import HttpRequest, HttpResponse, WebServer

MB = 2**20
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Keeper:
    """Answers for a server, and keeps the mail named *Bad* to itself while it *is_shut*."""

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
def keeping(kind: str, status: int) -> Iterator[tuple[World, Keeper]]:
    """A mailbox at a provider that keeps one mail to itself."""
    if kind == "fastmail":
        jmap = JmapEvents()
        keeper = Keeper(jmap._answer, status)
        jmap.web = WebServer(keeper)
        with jmap:
            yield JmapWorld(jmap), keeper
        return
    server: Graph | Gmail = Graph() if kind == "outlook" else Gmail()
    keeper = Keeper(server._answer, status)
    server.web = WebServer(keeper)
    with server:
        yield GraphWorld(server) if isinstance(server, Graph) else GmailWorld(server), keeper


@asynccontextmanager
async def desk_at(world: World, folder: Path) -> AsyncIterator[Desk]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file", **world.settings}
    async with open_app(read_settings(values).settings) as app:
        yield await open_desk(app, world)


async def subjects(desk: Desk) -> set[str]:
    return {row.subject for row in await desk.rows()}


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
async def test_a_mail_that_cannot_be_fetched_stops_no_other(
    tmp_path: Path, kind: str, status: int
) -> None:
    with keeping(kind, status) as (world, keeper):
        async with desk_at(world, tmp_path) as desk:
            for subject in ("Before", "Bad", "After"):
                world.deliver(mail(subject))
            await desk.sync()
            world.deliver(mail("Later"))
            await desk.sync()

            assert {"Before", "After", "Later"} == await subjects(desk)
            assert 1 == desk.app.services.counts["sync_skipped"]
            (account,) = (await desk.app.services.store.accounts(EVERYTHING, Slice(limit=1))).rows
            assert "ready" == account.state

            keeper.is_shut = False
            await desk.sync()
            assert {"Before", "Bad", "After", "Later"} == await subjects(desk)
            assert () == await desk.app.services.store.unfetched("work")


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_a_mail_that_is_not_even_described_stops_no_other(tmp_path: Path, kind: str) -> None:
    with keeping(kind, 400) as (world, keeper):
        async with desk_at(world, tmp_path) as desk:
            for subject in ("Before", "Bad", "After"):
                world.deliver(mail(subject))
            await desk.sync()
            (one,) = await desk.app.services.store.unfetched("work")
            answer = keeper.answer

            def refuse(request: HttpRequest) -> HttpResponse:
                is_bad = request.path.endswith(f"/messages/{one.ref.key}")
                return (
                    HttpResponse(400, {"error": {"code": "ErrorX"}}) if is_bad else answer(request)
                )

            keeper.answer = refuse
            world.deliver(mail("Later"))
            await desk.sync()
            assert {"Before", "After", "Later"} == await subjects(desk)
            (again,) = await desk.app.services.store.unfetched("work")
            assert (one.ref, one.attempts + 1) == (again.ref, again.attempts)

            keeper.answer, keeper.is_shut = answer, False
            await desk.sync()
            assert {"Before", "Bad", "After", "Later"} == await subjects(desk)


def shut(file: Path) -> None:
    """Let nobody read a file; as root, Dovecot reads as another user."""
    file.chmod(0)
    if os.getuid() == 0:
        os.chown(file, 0, 0)


async def test_a_file_that_the_imap_server_cannot_read_stops_no_other(tmp_path: Path) -> None:
    async with open_world("imap") as world:
        assert isinstance(world, ImapWorld)
        async with desk_at(world, tmp_path) as desk:
            for subject in ("Before", "Bad", "After"):
                world.deliver(mail(subject))
            (file,) = [
                path
                for path in world.home.rglob("*")
                if path.is_file() and b"Subject: Bad" in path.read_bytes()
            ]
            shut(file)
            await desk.sync()

            assert {"Before", "After"} == await subjects(desk)
            (moved,) = world.home.rglob(f"{file.name.partition(',')[0]}*")
            moved.chmod(0o666)
            await desk.sync()
            assert {"Before", "Bad", "After"} == await subjects(desk)


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_large_mails_are_not_in_memory_together(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    store = AccountIngest.store

    async def counted(self: AccountIngest, mails: list[RemoteMail]) -> None:
        kept.append(sum(len(raw) for _, raw in mails))
        await store(self, mails)

    monkeypatch.setattr(AccountIngest, "store", counted)
    monkeypatch.setattr(pull, "BATCH_BYTES", MB)
    with keeping(kind, 500) as (world, keeper):
        async with desk_at(world, tmp_path) as desk:
            for number in range(4):
                world.deliver(mail(f"Large {number}", text="word " * (MB // 5)))
            world.deliver(mail("Small"))
            await desk.sync()

            assert 5 == len(await desk.rows())
            assert max(kept) < 2 * MB
            if kind == "gmail":
                forms = [a.query["format"] for a in keeper.requests if "format" in a.query]
                # The small one is read at once, the large ones first say how large they are.
                assert (5, 4) == (forms.count("raw"), forms.count("minimal"))


async def test_a_provider_that_is_down_keeps_no_mail_from_us(tmp_path: Path) -> None:
    with keeping("outlook", 500) as (world, keeper):
        async with desk_at(world, tmp_path) as desk:
            world.deliver(mail("Bad"))
            keeper.is_down = True
            with pytest.raises(ProviderError):
                await desk.sync()
            assert () == await desk.app.services.store.unfetched("work")

            keeper.is_down = keeper.is_shut = False
            await desk.sync()
            assert {"Bad"} == await subjects(desk)


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
