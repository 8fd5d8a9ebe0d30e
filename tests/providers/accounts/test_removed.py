"""Mail that was deleted permanently does not come back from Trash at the provider."""

from __future__ import annotations

import pytest

from postroom.operations import accounts
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import GmailRemote, GraphRemote, RemoteMailbox
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused_changes import refusals


def untrash(remote: GmailRemote | GraphRemote) -> None:
    if isinstance(remote, GraphRemote):
        remote.graph.move(remote._there("Hello"), "f-inbox")
        return
    path = f"/messages/{remote._key('Hello')}"
    remote.gmail.call("POST", f"{path}/untrash")
    remote.gmail.call("POST", f"{path}/modify", {"addLabelIds": ["INBOX"]})


@pytest.mark.parametrize("remote", ["gmail", "outlook"], indirect=True)
async def test_without_permanent_deletion_mail_goes_to_trash_and_stays_hidden(
    synced: SyncedAccount, remote: GmailRemote | GraphRemote
) -> None:
    mailbox = remote.gmail if isinstance(remote, GmailRemote) else remote.graph
    mailbox.may_delete = False
    await synced.sync()
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(synced, message_changes.delete_message, message_id=here.id, permanent=True)
    await synced.sync()
    await synced.sync()
    remote.expire()
    await synced.sync()

    assert ["Trash" if isinstance(remote, GmailRemote) else "Deleted"] == remote.copies("Hello")
    assert [] == await synced.rows()
    assert [] == await synced.received()
    untrash(remote)
    await synced.sync()
    assert ("Inbox",) == (await synced.message("Hello")).mailboxes


@pytest.mark.parametrize("may_delete", [True, False])
async def test_a_deletion_at_both_ends_is_not_a_refusal(
    synced: SyncedAccount, remote: RemoteMailbox, *, may_delete: bool
) -> None:
    if isinstance(remote, GmailRemote | GraphRemote):
        mailbox = remote.gmail if isinstance(remote, GmailRemote) else remote.graph
        mailbox.may_delete = may_delete
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    remote.remove("Hello")
    await ask(synced, message_changes.delete_message, message_id=here.id, permanent=True)
    await synced.sync()

    assert ([], []) == (await synced.rows(), await refusals(synced))
    (account,) = (await ask(synced, accounts.list_accounts)).results
    assert (None, 0) == (account.last_refusal, synced.app.services.counts["pushes_refused"])
