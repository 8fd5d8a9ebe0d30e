"""Authentication results of arriving mail, from servers that the settings trust."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from postroom.app import App, open_app
from postroom.config import ConfigError, read_settings
from postroom.mail.senders import Trust
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline import ingest
from postroom.pipeline.maintenance import reparse
from postroom.pipeline.transfer.import_export import import_mail
from postroom.pipeline.transfer.mail_files import open_source
from tests.mails import deliver, mail, new_inbox

VERDICT = "mx.example.org; spf=pass smtp.mailfrom=bank.example; dmarc=pass header.from=bank.example"
BELIEVED = {"spf": "pass", "dkim": "unknown", "dmarc": "pass", "arc": "unknown", "aligned": True}
UNKNOWN = dict.fromkeys(("spf", "dkim", "dmarc", "arc"), "unknown") | {"aligned": False}


def confirmed(server: str = "mx.example.org") -> bytes:
    verdict = VERDICT.replace("mx.example.org", server)
    return f"Authentication-Results: {verdict}\n".encode() + mail(sender="ada@bank.example")


@pytest.fixture
async def inbox(app: App) -> Inbox:
    return await new_inbox(app.services)


def trusting(app: App) -> Any:
    return replace(app.services, trust=Trust(frozenset(["mx.example.org"])))


async def auth(app: App, message_id: str) -> dict[str, Any]:
    message = await app.services.store.message(message_id, EVERYTHING)
    assert message is not None
    return message.auth


async def test_no_server_is_trusted_by_default(app: App, inbox: Inbox) -> None:
    added = await deliver(app.services, inbox, confirmed())

    assert UNKNOWN == await auth(app, added.message_id)


async def test_results_of_a_trusted_server_are_stored_with_the_mail(app: App, inbox: Inbox) -> None:
    believed = await deliver(trusting(app), inbox, confirmed())
    forged = await deliver(trusting(app), inbox, confirmed("mx.evil.example"))

    assert BELIEVED == await auth(app, believed.message_id)
    assert UNKNOWN == await auth(app, forged.message_id)


async def test_reparsing_uses_the_current_trust_settings(app: App, inbox: Inbox) -> None:
    with patch.object(ingest, "PARSER_VERSION", 0):
        added = await deliver(app.services, inbox, confirmed())

    assert [1] == [count async for count in reparse(trusting(app), version=1)]

    assert BELIEVED == await auth(app, added.message_id)


async def test_imported_mail_keeps_its_results(app: App, inbox: Inbox, tmp_path: Path) -> None:
    (tmp_path / "one.eml").write_bytes(confirmed())
    source = open_source(tmp_path / "one.eml", kind=None, mailbox="Inbox", max_bytes=10_000)

    counters = await import_mail(trusting(app), iter(source), inbox.id)

    assert 1 == counters.stored
    (row,) = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    assert BELIEVED == await auth(app, row.id)


async def test_servers_and_keys_come_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("mail._domainkey.bank.example v=DKIM1; p=AB")
    environ = {
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_TRUSTED_SERVERS": "MX.example.org,mx2.example.org",
        "POSTROOM_DKIM_KEYS": "keys.txt",
    }
    async with open_app(read_settings(environ, folder=tmp_path).settings) as app:
        trust = app.services.trust

    assert {"mx.example.org", "mx2.example.org"} == trust.servers
    assert {"mail._domainkey.bank.example": "v=DKIM1; p=AB"} == trust.keys


@pytest.mark.parametrize("content", [None, "nonsense"])
async def test_keys_that_cannot_be_read_stop_the_start(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "keys.txt").write_text(content)
    environ = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_DKIM_KEYS": "keys.txt"}
    settings = read_settings(environ, folder=tmp_path).settings

    with pytest.raises(ConfigError, match=r"dkim_keys: .*keys\.txt"):
        async with open_app(settings):
            pass

    assert not (tmp_path / "data").exists()
