"""Providers that answer with nonsense get a typed error, and lose us nothing once they are well.

`NONSENSE=3000 pytest tests/providers/accounts/test_nonsense.py` is the long run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import MailError
from postroom.model.account import RateLimits
from postroom.model.stored import Change, MessageQuery
from postroom.pipeline.syncing import sync_once
from tests.providers.accounts.conftest import open_desk
from tests.providers.accounts.test_every_provider import letter
from tests.providers.accounts.worlds import ADDRESS, GmailWorld, GraphWorld, World
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents
from tests.servers.web import Answer, Asked, WebServer

CASES = int(os.environ.get("NONSENSE", "15"))
COUNT = 5
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


class Madness:
    """Spoils some answers of a server, each in a way that chance decides.

    The mails themselves are left alone: nobody can tell that those are not what they were.
    """

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.chance: random.Random | None = None

    def __call__(self, asked: Asked) -> Answer:
        answer = self.answer(asked)
        chance = self.chance
        if chance is None or answer.pieces is not None or chance.random() < 0.7:
            return answer
        body = answer.body
        if isinstance(body, bytes) and body[:1] == b"{":
            body = json.loads(body)
        if not isinstance(body, (dict, list)):
            return Answer(chance.choice(STATUSES[3:]), chance.choice(BYTES))
        way = chance.random()
        if way < 0.15:
            return Answer(chance.choice(STATUSES), chance.choice(BYTES))
        if way < 0.25:
            return Answer(chance.choice(STATUSES), body, answer.headers)
        return Answer(answer.status, spoilt(body, chance), answer.headers)


def spoilt(body: Any, chance: random.Random) -> Any:
    """A value with something in it that does not belong there, or without something that does."""
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


class JmapWorld(World):
    """Our own JMAP, as far as it is asked here."""

    def __init__(self, jmap: JmapEvents) -> None:
        self.jmap = jmap
        self.settings = {"POSTROOM_FASTMAIL_URL": jmap.web.url}
        self.arguments = {"provider": "fastmail", "address": ADDRESS, "password": "a-token"}

    def deliver(self, raw: bytes) -> None:
        self.jmap.deliver(raw)

    def expire(self) -> None:
        self.jmap.forgets = True

    def _unasked(self, *_: str) -> Any:
        raise NotImplementedError

    flag = remove = archive = find = sent = _unasked


@contextmanager
def mad(kind: str) -> Iterator[tuple[World, Madness]]:
    """A mailbox at a server of one kind, and its madness."""
    if kind == "fastmail":
        jmap = JmapEvents()
        madness = Madness(jmap._answer)
        jmap.web = WebServer(madness)
        with jmap:
            yield JmapWorld(jmap), madness
        return
    server: Graph | Gmail = Graph() if kind == "outlook" else Gmail()
    madness = Madness(server._answer)
    server._web = WebServer(madness)
    with server:
        yield GraphWorld(server) if isinstance(server, Graph) else GmailWorld(server), madness


async def one_case(app: App, account_id: str, number: int) -> None:
    """One pass with something to tell; it ends well or in an error that we know."""
    house = app.house
    account = await house.store.account(account_id, None)
    assert account is not None
    found = (await open_rows(app))[:1]
    change = Change(flags=("flagged",) if number % 2 else (), add_labels=(f"L{number % 3}",))
    await house.store.change_messages(found, change, None)
    try:
        async with asyncio.timeout(60):
            await sync_once(house, account)
    except MailError:
        pass


async def open_rows(app: App) -> list[str]:
    found = await app.house.store.messages(MessageQuery(mailbox="*"))
    return [row.id for row in found.rows]


@pytest.mark.parametrize("kind", ["outlook", "fastmail", "gmail"])
async def test_nonsense_is_an_error_of_the_provider_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fast = RateLimits(requests_per_second=100_000, burst=100_000)
    for module in ("gmail", "graph", "jmap"):
        monkeypatch.setattr(f"postroom.providers.{module}.provider.RATES", fast)
    with mad(kind) as (world, madness):
        values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
        values |= world.settings
        async with open_app(read_settings(values).settings) as app:
            for number in range(COUNT):
                world.deliver(letter(f"Letter {number}"))
            desk = await open_desk(app, world)
            for number in range(CASES):
                madness.chance = random.Random(f"{kind} {number}")
                await one_case(app, desk.account.id, number)
            madness.chance = None
            world.expire()
            for _ in range(3):
                await desk.sync()

            subjects = sorted(row.subject for row in await desk.rows())
            assert [f"Letter {number}" for number in range(COUNT)] == subjects
            assert () == await app.house.store.problems()
