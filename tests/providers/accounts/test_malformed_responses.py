"""Malformed responses of providers are typed errors, and lose nothing once the server recovers.

`MALFORMED_RUNS=2500 pytest tests/providers/accounts/test_malformed_responses.py` is the long run:
10,000 passes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import MailError
from postroom.model.account import RateLimits
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.sync import sync_once
from tests.providers.accounts.conftest import add_synced_account
from tests.providers.accounts.remote_mailboxes import (
    ADDRESS,
    GmailRemote,
    GraphRemote,
    RemoteMailbox,
)
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.providers.imap.memory import MB, growth_below
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.imap_script import ImapCommand, ScriptedImap, scripted
from tests.servers.imap_script import Mail as ImapMail
from tests.servers.jmap_events import JmapEvents
from tests.servers.web import HttpRequest, HttpResponse, WebServer

CASES = int(os.environ.get("MALFORMED_RUNS", "15"))
COUNT = 5
CAPABILITIES = "IMAP4rev1 UIDPLUS IDLE"
DEEP: Any = json.loads("[" * 90 + "]" * 90)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**70, 1e300, "", "x", "\ud800\x00", "9" * 5_000, [], {}, [[]]),
    *([None] * 50, {"": None}, {"id": {}}, DEEP, "2026-99-99T99:99:99Z", "http://127.0.0.1:1/"),
)
BYTES = (
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"{",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b"<html>",
    b"1" * 9_999,
)
STATUSES = (200, 204, 301, 400, 404, 409, 410, 418, 500, 502)


class ResponseCorruptor:
    """Corrupts some responses of a server at random.

    The bytes of mails are left alone: a change in them cannot be detected.
    """

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse]) -> None:
        self.answer = answer
        self.chance: random.Random | None = None

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.answer(request)
        chance = self.chance
        if chance is None or answer.pieces is not None or chance.random() < 0.7:
            return answer
        body = answer.body
        if isinstance(body, bytes) and body[:1] == b"{":
            body = json.loads(body)
        if not isinstance(body, (dict, list)):
            return HttpResponse(chance.choice(STATUSES[3:]), chance.choice(BYTES))
        way = chance.random()
        if way < 0.15:
            return HttpResponse(chance.choice(STATUSES), chance.choice(BYTES))
        if way < 0.25:
            return HttpResponse(chance.choice(STATUSES), body, answer.headers)
        return HttpResponse(answer.status, corrupted(body, chance), answer.headers)


def corrupted(body: Any, chance: random.Random) -> Any:
    """A copy of a value with random members replaced or removed."""
    copy = json.loads(json.dumps(body))
    places = list(_places(copy))
    for _ in range(chance.randint(1, 3)):
        if places:
            holder, key = chance.choice(places)
            if isinstance(holder, dict) and chance.random() < 0.4:
                holder.pop(key, None)
            else:
                holder[key] = chance.choice(ODD)
    return copy


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(inside):
        if key == "raw":
            continue
        yield value, key
        if isinstance(one, (dict, list)):
            yield from _places(one)


class JmapRemote(RemoteMailbox):
    """Our JMAP server."""

    def __init__(self, jmap: JmapEvents) -> None:
        self.jmap = jmap
        self.settings = {"POSTROOM_FASTMAIL_URL": jmap.web.url}
        self.arguments = {"provider": "fastmail", "address": ADDRESS, "password": "a-token"}

    def deliver(self, raw: bytes) -> None:
        self.jmap.deliver(raw)

    def expire(self) -> None:
        self.jmap.forgets = True

    def _unsupported(self, *_: str) -> Any:
        raise NotImplementedError

    copies = flag = remove = archive = find = sent = _unsupported


@contextmanager
def corrupting_server(kind: str) -> Iterator[tuple[RemoteMailbox, ResponseCorruptor]]:
    """A remote mailbox whose server is corrupted."""
    if kind == "fastmail":
        jmap = JmapEvents()
        corruptor = ResponseCorruptor(jmap._answer)
        jmap.web = WebServer(corruptor)
        with jmap:
            yield JmapRemote(jmap), corruptor
        return
    server: Graph | Gmail = Graph() if kind == "outlook" else Gmail()
    corruptor = ResponseCorruptor(server._answer)
    server.web = WebServer(corruptor)
    with server:
        yield GraphRemote(server) if isinstance(server, Graph) else GmailRemote(server), corruptor


class ImapCorruptor:
    """Corrupts IMAP replies byte by byte; mails and the login are left alone."""

    def __init__(self) -> None:
        self.chance: random.Random | None = None
        self.corrupted = 0

    def __call__(self, command: ImapCommand, answer: bytes) -> bytes:
        chance = self.chance
        if (
            chance is None
            or b"BODY.PEEK" in command.rest
            or command.name in ("LOGIN", "CAPABILITY")
        ):
            return answer
        if chance.random() < 0.7:
            return answer
        self.corrupted += 1
        data = bytearray(answer)
        for _ in range(chance.randint(1, 4)):
            at, size = chance.randrange(len(data) or 1), chance.randint(1, 40)
            way = chance.randrange(4)
            if way == 0:
                del data[at : at + size]
            elif way == 1:
                data[at:at] = data[at : at + size]
            else:
                data[at:at] = chance.choice(WORDS)
        return bytes(data)


WORDS = (
    *(b"(", b")", b'"', b"{5}\r\n", b"{99999999999}\r\n", b"\r\n", b"NIL", b"\0", b"\xff", b"*"),
    *(b"0", b"9" * 12, b"* 3 EXPUNGE\r\n", b"* 0 EXISTS\r\n", b"* OK [UIDVALIDITY 9] x\r\n"),
    *(b"* BYE bye\r\n", b"{tag} OK done\r\n", b"{tag} NO no\r\n", b"* SEARCH 7 8 9\r\n"),
    b"* 1 FETCH (UID 1 FLAGS (\\Seen x) RFC822.SIZE 1)\r\n",
)


class ImapRemote(RemoteMailbox):
    """Our scripted IMAP server."""

    def __init__(self, imap: ScriptedImap) -> None:
        self.imap = imap
        self.settings = {}
        self.arguments = {
            "provider": "imap",
            "address": ADDRESS,
            "password": "secret",
            "host": "127.0.0.1",
            "port": imap.port,
            "security": "none",
            "insecure": True,
        }

    def deliver(self, raw: bytes) -> None:
        box = self.imap.mailboxes[b"INBOX"]
        box[max(box, default=0) + 1] = ImapMail(raw)

    def expire(self) -> None:
        self.imap.uidvalidity += 1

    def _unsupported(self, *_: str) -> Any:
        raise NotImplementedError

    copies = flag = remove = archive = find = sent = _unsupported


@asynccontextmanager
async def corrupting_remote(
    kind: str,
) -> AsyncIterator[tuple[RemoteMailbox, ResponseCorruptor | ImapCorruptor]]:
    if kind != "imap":
        with corrupting_server(kind) as pair:
            yield pair
        return
    corruptor = ImapCorruptor()
    boxes: dict[bytes, Any] = {b"INBOX": {}, b"Work": {}}
    async with scripted(mailboxes=boxes, spoil=corruptor, capabilities=CAPABILITIES) as server:
        yield ImapRemote(server), corruptor


async def one_case(app: App, account_id: str, number: int) -> None:
    """One sync pass with a local change; it succeeds or raises a typed error."""
    services = app.services
    account = await services.store.account(account_id, EVERYTHING)
    assert account is not None
    found = (await open_rows(app))[:1]
    change = Change(flags=("flagged",) if number % 2 else (), add_labels=(f"L{number % 3}",))
    await services.store.change_messages(found, change, EVERYTHING)
    try:
        async with asyncio.timeout(60):
            await sync_once(services, account)
    except MailError:
        pass


async def open_rows(app: App) -> list[str]:
    found = await app.services.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))
    return [row.id for row in found.rows]


@pytest.mark.parametrize("kind", ["imap", "outlook", "fastmail", "gmail"])
async def test_a_malformed_response_is_a_provider_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fast = RateLimits(requests_per_second=100_000, burst=100_000)
    for module in ("gmail", "graph", "jmap"):
        monkeypatch.setattr(f"postroom.providers.web.{module}_client.RATES", fast)
    async with corrupting_remote(kind) as (remote, corruptor):
        values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
        values |= remote.settings
        async with open_app(read_settings(values).settings) as app:
            for number in range(COUNT):
                remote.deliver(outgoing_mail(f"Letter {number}"))
            synced = await add_synced_account(app, remote)
            await synced.sync()
            with growth_below(64 * MB), monkeypatch.context() as patch:
                patch.setattr("postroom.providers.imap.connection.COMMAND_S", 0.3)
                for number in range(CASES):
                    corruptor.chance = random.Random(f"{kind} {number}")
                    await one_case(app, synced.account.id, number)
            corruptor.chance = None
            remote.expire()
            for _ in range(3):
                await synced.sync()

            subjects = sorted(row.subject for row in await synced.rows())
            assert [f"Letter {number}" for number in range(COUNT)] == subjects
            assert () == await app.services.store.problems()
