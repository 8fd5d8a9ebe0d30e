"""Bcc recipients are listed by the copy in Sent, and by nothing that recipients receive."""

from __future__ import annotations

from email import message_from_bytes
from email.message import Message

import pytest

from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount
from tests.providers.accounts.remote_mailboxes import (
    GmailRemote,
    GraphRemote,
    ImapRemote,
    RemoteMailbox,
)
from tests.providers.accounts.test_sent_copies import OUTSIDE, local, outbox_worker, send

HIDDEN = "di@elsewhere.example"


def copy_in_sent(remote: RemoteMailbox) -> Message:
    if isinstance(remote, GraphRemote):
        (raw,) = (m.raw for m in remote.graph.mails.values() if m.folder == "f-sentitems")
        return message_from_bytes(raw)
    if isinstance(remote, GmailRemote):
        (row,) = remote._rows("Hello")
        copy = Message()
        for header in row["payload"]["headers"]:
            copy[header["name"]] = header["value"]
        return copy
    assert isinstance(remote, ImapRemote)
    ((_, raw), *_) = remote.imap.fetch(remote._there("Hello"), "(BODY.PEEK[])")[1]  # type: ignore[misc]
    return message_from_bytes(raw)


@pytest.mark.parametrize("remote", ["imap", "imap-plain", "gmail", "outlook"], indirect=True)
async def test_our_copy_in_sent_lists_bcc_recipients(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    address, hidden = await local(synced), await local(synced, "di")
    await send(synced, address, bcc=[hidden])
    await synced.sync()

    copy = copy_in_sent(remote)
    assert (address, hidden) == (copy["To"], copy["Bcc"])
    received = await synced.rows(inbox_id=None)
    assert 3 == len(received)


@pytest.mark.parametrize(
    ("remote", "named"),
    [("imap", HIDDEN), pytest.param("fastmail", None, marks=AS_ROOT)],
    indirect=["remote"],
)
async def test_no_recipient_sees_bcc_recipients(
    synced: SyncedAccount, remote: ImapRemote, named: str | None
) -> None:
    """A JMAP server may transmit the header, so its copy has none."""
    await synced.sync()
    async with outbox_worker(synced):
        await send(synced, OUTSIDE, bcc=[HIDDEN], wait_s=20)
    await synced.sync()

    (out,) = remote.relay.mails
    assert ({OUTSIDE, HIDDEN}, False) == (set(out.recipients), HIDDEN.encode() in out.data)
    assert named == copy_in_sent(remote)["Bcc"]
