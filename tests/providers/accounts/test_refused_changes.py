"""A change that the provider refuses is undone and reported, and blocks no other change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import MailError
from postroom.model.account import RefusedChange
from postroom.model.event import Event
from postroom.model.view import EVERYTHING
from postroom.operations import accounts, inboxes
from postroom.operations.mail import message_changes
from postroom.operations.outgoing import sending
from postroom.providers.imap.client import Client
from postroom.providers.imap.provider import ImapProvider
from postroom.providers.web.api import Api
from postroom.surfaces.to_json import response_body
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount
from tests.providers.accounts.remote_mailboxes import RemoteMailbox
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_rules import keep_rule

FOLDERS = ["imap", "imap-plain", pytest.param("fastmail", marks=AS_ROOT)]


async def last_refusal(synced: SyncedAccount) -> RefusedChange:
    """The last refusal, which the list of accounts, a check and the capabilities show alike."""
    listed = await ask(synced, accounts.list_accounts)
    checked = await ask(synced, accounts.check_account, account_id="work")
    can = await ask(synced, accounts.get_capabilities, account_id="work")
    (account,) = response_body(accounts.list_accounts, listed)["results"]
    shown = response_body(accounts.get_capabilities, can)
    assert {"at", "message_id", "change", "detail"} == set(account["last_refusal"])
    assert account["last_refusal"] == shown["last_refusal"]
    refusal: RefusedChange = listed.results[0].last_refusal
    assert refusal == checked.last_refusal
    return refusal


IMPOSSIBLE = "名" * 250
"""A name that is impossible on servers that store mailboxes as folders."""


async def refusals(synced: SyncedAccount) -> list[Event]:
    events = await synced.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return [event for event in events if event.type == "message.refused"]


@pytest.mark.parametrize("remote", FOLDERS, indirect=True)
async def test_a_refused_move_is_undone_and_reported(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    remote.deliver(outgoing_mail("Another"))
    await synced.sync()
    here, other = await synced.message("Hello"), await synced.message("Another")
    await ask(synced, message_changes.move_message, message_id=here.id, destination=IMPOSSIBLE)
    await ask(synced, message_changes.move_message, message_id=other.id, destination="Archive")
    await synced.sync()

    there, after = remote.find("Another"), await synced.message("Hello")
    assert there is not None
    assert ("Archive", ("Inbox",)) == (there.mailbox, after.mailboxes)
    (refused,) = await refusals(synced)
    assert (here.id, {"move_to": IMPOSSIBLE}) == (refused.message_id, refused.data["change"])
    assert refused.data["detail"]
    assert 1 == synced.app.services.counts["pushes_refused"]
    told = await last_refusal(synced)
    assert (refused.at, refused.message_id) == (told.at, told.message_id)
    assert (refused.data["change"], refused.data["detail"]) == (told.change, told.detail)


@pytest.mark.parametrize("remote", ["imap"], indirect=True)
async def test_an_internal_error_in_one_change_does_not_block_others(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    remote.deliver(outgoing_mail("Another"))
    await synced.sync()
    here, other = await synced.message("Hello"), await synced.message("Another")
    store = Client.store

    async def stumble(self: Client, uid: int, sign: str, flags: Any) -> None:
        if "Bad" in flags:
            raise ValueError("an error of ours")
        await store(self, uid, sign, flags)

    monkeypatch.setattr(Client, "store", stumble)
    await ask(synced, message_changes.apply_label, message_ids=[here.id], label="Bad")
    await ask(synced, message_changes.apply_label, message_ids=[other.id], label="Good")
    remote.deliver(outgoing_mail("News"))
    await synced.sync()

    assert () == (await synced.message("Hello")).labels
    there = remote.find("Another")
    assert there is not None
    assert {"good"} == there.labels
    assert (await synced.message("News")).subject
    assert [here.id] == [event.message_id for event in await refusals(synced)]


@pytest.mark.parametrize("remote", ["imap"], indirect=True)
async def test_a_local_disk_failure_is_not_a_refusal(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")

    async def fail(self: Client, uid: int, sign: str, flags: Any) -> None:
        raise MailError("the disk failed; restart once it is well")

    monkeypatch.setattr(Client, "store", fail)
    await ask(synced, message_changes.apply_label, message_ids=[here.id], label="Kept")
    with suppress(MailError):
        await synced.sync()

    assert ("Kept",) == (await synced.message("Hello")).labels
    assert [] == await refusals(synced)


@pytest.mark.parametrize("remote", ["imap"], indirect=True)
async def test_a_refused_deletion_restores_the_mail(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")

    async def stumble(self: ImapProvider, client: Client, uid: int) -> None:
        raise ValueError("an error of ours")

    monkeypatch.setattr(ImapProvider, "_expunge", stumble)
    await ask(synced, message_changes.delete_message, message_id=here.id, permanent=True)
    await synced.sync()

    assert remote.find("Hello") is not None
    assert ("Inbox",) == (await synced.message("Hello")).mailboxes
    told = await last_refusal(synced)
    assert (here.id, {"delete": True}) == (told.message_id, told.change)


async def told_why(synced: SyncedAccount, operation: Any, **arguments: Any) -> str:
    """The error of a change that is not made."""
    before = await synced.message("Hello")
    result = await ask(synced, operation, **arguments)
    (failed,) = result.failed
    assert "invalid_input" == failed.code
    assert before == await synced.message("Hello")
    return failed.message


async def test_mail_cannot_be_moved_to_drafts(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    for name in ("Drafts", "drafts"):
        why = await told_why(
            synced, message_changes.move_message, message_id=here.id, destination=name
        )
        assert "create_draft" in why
    if remote.arguments["provider"] in ("gmail", "outlook"):
        await told_why(synced, message_changes.update_message, message_id=here.id, flags=["draft"])
    await synced.sync()

    assert ("Inbox",) == (await synced.message("Hello")).mailboxes
    assert not await refusals(synced)


@pytest.mark.parametrize("name", ["x/", "/x", "a//b", "a/ /b", "a\x85b"])
@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
async def test_an_invalid_mailbox_name_is_refused(
    synced: SyncedAccount, remote: RemoteMailbox, name: str
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")

    why = await told_why(synced, message_changes.move_message, message_id=here.id, destination=name)
    assert "is not a valid mailbox name" in why


@pytest.mark.parametrize("remote", ["gmail"], indirect=True)
async def test_changes_that_gmail_does_not_support_are_refused(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")

    move, label = message_changes.move_message, message_changes.apply_label
    assert "Archive" in await told_why(synced, move, message_id=here.id, destination="Sent")
    for name in ("INBOX", "Trash", "Important", "CATEGORY_SOCIAL", "x/"):
        await told_why(synced, label, message_ids=[here.id], label=name)
    await told_why(synced, move, message_id=here.id, destination="Important")


async def test_the_name_of_a_standard_mailbox_may_be_in_any_case(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(synced, message_changes.move_message, message_id=here.id, destination="archive")
    await synced.sync()

    there = remote.find("Hello")
    assert there is not None
    assert "Archive" == there.mailbox
    assert ("Archive",) == (await synced.message("Hello")).mailboxes


@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
async def test_an_unsupported_action_of_a_rule_is_reported(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await keep_rule(synced, "{move: Drafts}", word="hello")
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    await synced.sync()

    here = await synced.message("Hello")
    assert ("Inbox",) == here.mailboxes
    (refused,) = await refusals(synced)
    assert (here.id, {"move_to": "Drafts"}) == (refused.message_id, refused.data["change"])


@pytest.mark.parametrize("remote", ["gmail", "outlook"], indirect=True)
async def test_a_copy_with_a_malformed_response_is_retried(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await synced.sync()
    json, odd = Api.json, [{}]

    async def stumble(self: Api, method: str, path: str, **given: Any) -> Any:
        if odd and method == "POST" and path.endswith("/messages"):
            return odd.pop()
        return await json(self, method, path, **given)

    monkeypatch.setattr(Api, "json", stumble)
    sent = {
        "to": [(await ask(synced, inboxes.create_inbox, username="bo")).address],
        "subject": "Hello",
        "body_text": "Hello Bo",
    }
    await ask(synced, sending.send_message, inbox_id=synced.account.inbox_id, **sent)
    await synced.sync()
    assert ([], []) == (remote.copies("Hello"), odd)
    services = synced.app.services
    moved = replace(services, clock=lambda: services.clock() + timedelta(hours=1))
    await SyncedAccount(replace(synced.app, services=moved), synced.account).sync()

    assert ["Sent"] == remote.copies("Hello")
    assert [] == await refusals(synced)
