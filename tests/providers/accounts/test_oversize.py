"""Mail over the provider's limit is refused when it is sent, with the limit."""

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
from tests.providers.accounts import remote_mailboxes
from tests.providers.accounts.conftest import KINDS, SyncedAccount, add_synced_account, needs_root
from tests.providers.accounts.remote_mailboxes import RemoteMailbox
from tests.providers.accounts.test_every_provider import ask
from tests.servers import jmap

MB = 2**20
OUTSIDE = "bo@elsewhere.example"


@pytest.fixture(params=KINDS)
async def remote(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RemoteMailbox]:
    """A provider with a limit of one megabyte."""
    greeting = remote_mailboxes.GREETING.replace(b"SIZE 50000000", b"SIZE %d" % MB)
    monkeypatch.setattr(remote_mailboxes, "GREETING", greeting)
    monkeypatch.setattr(jmap, "_SETTINGS", jmap._SETTINGS + "jmap_max_size_upload: 1024\n")
    monkeypatch.setattr(gmail, "MAX_BYTES", MB)
    monkeypatch.setattr(graph, "MAX_BYTES", MB)
    if request.param == "fastmail":
        needs_root()
    async with remote_mailboxes.open_remote(request.param) as opened:
        yield opened


@pytest.fixture
async def synced(tmp_path: Path, remote: RemoteMailbox) -> AsyncIterator[SyncedAccount]:
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file", **remote.settings}
    async with open_app(read_settings(values).settings) as app:
        yield await add_synced_account(app, remote)


def outgoing_mail(synced: SyncedAccount, size: int, *to: str) -> dict[str, Any]:
    file = {"filename": "plan.bin", "content": b64encode(b"x" * size).decode()}
    return {
        "inbox_id": synced.account.inbox_id,
        "to": list(to),
        "subject": "The plan",
        "body_text": "See the file.",
        "attachments": [{**file, "content_type": "application/x-data"}],
    }


async def test_mail_over_the_limit_of_the_provider_is_refused_at_once(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    for is_synced in (False, True):
        if is_synced:
            await synced.sync()
        told = []
        for operation in (sending.send_message, drafts.create_draft):
            with pytest.raises(TooLarge) as refused:
                await ask(synced, operation, **outgoing_mail(synced, MB, OUTSIDE))
            told.append(str(refused.value))
        assert all(f"work accepts at most {MB}" in text for text in told), told

    assert [] == await synced.rows()
    assert 1 == (await ask(synced, accounts.get_capabilities)).max_attachment_size_mb


async def test_mail_within_the_limit_and_local_mail_are_sent(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    local = (await ask(synced, inboxes.create_inbox, username="bo")).address
    within = await ask(synced, sending.send_message, **outgoing_mail(synced, MB // 2, OUTSIDE))
    stays = await ask(synced, sending.send_message, **outgoing_mail(synced, MB, local))

    assert ("queued", "delivered") == (within.status, stays.status)


@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
async def test_a_body_over_the_limit_of_graph_is_refused_and_a_file_is_not(
    synced: SyncedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "SINGLE_REQUEST_BYTES", MB // 2)
    await synced.sync()
    file = outgoing_mail(synced, MB * 6 // 10, OUTSIDE)
    text = {**file, "attachments": [], "body_text": "word and word\n" * (MB * 6 // 140)}

    with pytest.raises(TooLarge, match=f"without its files .* at most {MB // 2}"):
        await ask(synced, sending.send_message, **text)
    assert "queued" == (await ask(synced, sending.send_message, **file)).status
