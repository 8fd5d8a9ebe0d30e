"""A mailbox or label with an unusable name is skipped; the rest is synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import GraphRemote, RemoteMailbox
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.providers.accounts.test_incomplete_listings import CAPABILITIES, at
from tests.servers.imap_script import mails, scripted

CONTROLS = (b"\x01", b"\t", b"\x1b[31m", b"\x7f")


@pytest.mark.parametrize("control", CONTROLS)
async def test_a_mailbox_with_an_unusable_name_is_skipped_with_a_reason(
    tmp_path: Path, control: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {b"INBOX": mails(2), b"Odd" + control: mails(3), b"Work": mails(4)}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        await synced.sync()

        rows = await synced.rows()

    assert {"Inbox", "Work"} == {name for row in rows for name in row.mailboxes}
    skipped = [record for record in caplog.records if record.message == "imap.mailbox_skipped"]
    assert {True} == {"control characters" in record.error for record in skipped}


@pytest.mark.parametrize("encoded", [b"Odd&AAo-", b"Odd&AJs-31m", b"Odd&AAA-"])
async def test_control_characters_in_the_encoding_of_a_name_are_replaced(
    tmp_path: Path, encoded: bytes
) -> None:
    boxes = {b"INBOX": mails(2), encoded: mails(4)}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()

        names = {name for row in await synced.rows() for name in row.mailboxes}

    assert any(name.startswith("Odd\ufffd") for name in names), names
    assert all(name.isprintable() for name in names)


@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
async def test_control_characters_in_the_name_of_a_folder_are_replaced(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    assert isinstance(remote, GraphRemote)
    remote.graph.folders["f-odd"] = "Odd\x00\x1b\u009bname"
    remote.deliver(outgoing_mail("Hello"))
    next(iter(remote.graph.mails.values())).folder = "f-odd"

    await synced.sync()

    assert ("Odd\ufffd\ufffd\ufffdname",) == (await synced.message("Hello")).mailboxes
