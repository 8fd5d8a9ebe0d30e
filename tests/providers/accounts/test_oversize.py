"""What a provider would not take is refused when it is sent, with its limit, and not tried."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import TooLarge
from postroom.operations import accounts, inboxes
from postroom.operations.outgoing import drafts, sending
from postroom.providers.web import gmail, graph
from tests.providers.accounts import worlds
from tests.providers.accounts.conftest import KINDS, Desk, needs_root, open_desk
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.worlds import World
from tests.servers import jmap

MB = 2**20
OUTSIDE = "bo@elsewhere.example"


@pytest.fixture(params=KINDS)
async def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A provider that takes mails of one megabyte."""
    greeting = worlds.GREETING.replace(b"SIZE 50000000", b"SIZE %d" % MB)
    monkeypatch.setattr(worlds, "GREETING", greeting)
    monkeypatch.setattr(jmap, "_SETTINGS", jmap._SETTINGS + "jmap_max_size_upload: 1024\n")
    monkeypatch.setattr(gmail, "MAX_BYTES", MB)
    monkeypatch.setattr(graph, "MAX_BYTES", MB)
    if request.param == "fastmail":
        needs_root()
    async with worlds.open_world(request.param) as opened:
        yield opened


@pytest.fixture
async def desk(tmp_path: Path, world: World) -> AsyncIterator[Desk]:
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file", **world.settings}
    async with open_app(read_settings(values).settings) as app:
        yield await open_desk(app, world)


def outgoing_mail(desk: Desk, size: int, *to: str) -> dict[str, Any]:
    file = {"filename": "plan.bin", "content": b64encode(b"x" * size).decode()}
    return {
        "inbox_id": desk.account.inbox_id,
        "to": list(to),
        "subject": "The plan",
        "body_text": "See the file.",
        "attachments": [{**file, "content_type": "application/x-data"}],
    }


async def test_mail_over_the_limit_of_the_provider_is_refused_at_once(
    desk: Desk, world: World
) -> None:
    for synced in (False, True):
        if synced:
            await desk.sync()
        told = []
        for operation in (sending.send_message, drafts.create_draft):
            with pytest.raises(TooLarge) as refused:
                await ask(desk, operation, **outgoing_mail(desk, MB, OUTSIDE))
            told.append(str(refused.value))
        assert all(f"work accepts at most {MB}" in text for text in told), told

    assert [] == await desk.rows()
    assert 1 == (await ask(desk, accounts.get_capabilities)).max_attachment_size_mb


async def test_mail_within_the_limit_and_mail_that_stays_here_go(desk: Desk, world: World) -> None:
    local = (await ask(desk, inboxes.create_inbox, username="bo")).address
    within = await ask(desk, sending.send_message, **outgoing_mail(desk, MB // 2, OUTSIDE))
    stays = await ask(desk, sending.send_message, **outgoing_mail(desk, MB, local))

    assert ("queued", "delivered") == (within.status, stays.status)


@pytest.mark.parametrize("world", ["outlook"], indirect=True)
async def test_a_text_that_graph_does_not_take_is_refused_and_a_file_of_its_size_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "SINGLE_REQUEST_BYTES", MB // 2)
    await desk.sync()
    file = outgoing_mail(desk, MB * 6 // 10, OUTSIDE)
    text = {**file, "attachments": [], "body_text": "word and word\n" * (MB * 6 // 140)}

    with pytest.raises(TooLarge, match=f"without its files .* at most {MB // 2}"):
        await ask(desk, sending.send_message, **text)
    assert "queued" == (await ask(desk, sending.send_message, **file)).status
