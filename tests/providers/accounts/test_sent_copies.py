"""Mail sent by an account is in Sent at its provider once, whoever delivered it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from postroom.model.mail.sending import Envelope, Outcome, Sent
from postroom.model.view import EVERYTHING
from postroom.operations import accounts, inboxes
from postroom.operations.mail import message_changes
from postroom.operations.outgoing import drafts, outbox, sending
from postroom.pipeline.outbox import Outbox
from postroom.ports.provider import Accepted
from postroom.providers.web.jmap_client import JmapClient
from postroom.store.store import Store
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import (
    GmailRemote,
    GraphRemote,
    ImapRemote,
    RemoteMailbox,
)
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused_changes import refusals

OUTSIDE = "bo@elsewhere.example"
MAKES_COPIES = ["gmail", "outlook", pytest.param("fastmail", marks=AS_ROOT)]
MB = 2**20


async def send(synced: SyncedAccount, *to: str, **more: Any) -> Sent:
    sent: Sent = await ask(
        synced,
        sending.send_message,
        inbox_id=synced.account.inbox_id,
        to=list(to),
        subject="Hello",
        body_text="Hello Bo",
        **more,
    )
    return sent


async def local(synced: SyncedAccount, name: str = "bo") -> str:
    """The address of a local inbox of this installation."""
    return str((await ask(synced, inboxes.create_inbox, username=name)).address)


def later(synced: SyncedAccount, by: timedelta) -> SyncedAccount:
    """The same installation with a later clock."""
    services = synced.app.services
    moved = replace(services, clock=lambda: services.clock() + by)
    return SyncedAccount(replace(synced.app, services=moved), synced.account)


@asynccontextmanager
async def outbox_worker(synced: SyncedAccount) -> AsyncIterator[Outbox]:
    """Run the outbox."""
    worker = synced.app.outbox()
    work = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def assert_one_copy(synced: SyncedAccount, remote: RemoteMailbox, message_id: str) -> None:
    """One copy is in the remote Sent, one message is here, and no event says received."""
    await synced.sync()
    await synced.sync()
    assert ["Sent"] == remote.copies("Hello")
    here = await synced.rows(inbox_id=synced.account.inbox_id)
    assert [(message_id, ("Sent",))] == [(row.id, row.mailboxes) for row in here]
    events = await synced.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    own = [e for e in events if e.inbox_id == synced.account.inbox_id]
    assert not [event for event in own if event.type == "message.received"]
    assert not await refusals(synced)


async def test_mail_to_a_local_inbox_has_its_copy_in_sent(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced))

    assert "delivered" == sent.status
    await assert_one_copy(synced, remote, sent.message_id)
    assert not remote.sent()
    (here,) = [r for r in await synced.rows() if r.id == sent.message_id]
    assert ("seen",) == here.flags


async def test_mail_to_local_and_remote_recipients_has_one_copy(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    async with outbox_worker(synced):
        sent = await send(synced, await local(synced), OUTSIDE, wait_s=20)

    assert "sent" == sent.status
    assert 1 == len(remote.sent())
    await assert_one_copy(synced, remote, sent.message_id)


async def test_mail_that_the_provider_does_not_send_has_its_copy_too(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced), OUTSIDE)
    await ask(synced, outbox.cancel_message, message_id=sent.message_id)

    await assert_one_copy(synced, remote, sent.message_id)
    assert not remote.sent()


async def test_scheduled_mail_gets_its_copy_when_it_is_sent(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    at = synced.app.services.clock() + timedelta(hours=1)
    mail: dict[str, Any] = {
        "to": [await local(synced)],
        "subject": "Hello",
        "body_text": "Hello Bo",
    }
    mail |= {"inbox_id": synced.account.inbox_id, "send_at": at.isoformat()}
    draft = await ask(synced, drafts.create_draft, **mail)
    sent = await ask(synced, drafts.send_draft, draft_id=draft.id)
    await synced.sync()
    assert [] == remote.copies("Hello")
    after = later(synced, timedelta(hours=2))
    async with outbox_worker(after) as worker:
        await worker.finish(20)

    await assert_one_copy(synced, remote, sent.message_id)


async def test_a_copy_that_was_made_before_a_kill_is_not_made_again(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced))

    async def killed(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(Store, "settle_push", killed)
        with pytest.raises(asyncio.CancelledError):
            await synced.sync()
    assert ["Sent"] == remote.copies("Hello")
    await assert_one_copy(synced, remote, sent.message_id)


async def test_a_copy_of_mail_removed_meanwhile_is_deleted(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced))
    settle = Store.settle_push

    async def removed_first(store: Store, account_id: str, push: Any, pushed: Any) -> None:
        if push.kind == "save_sent":
            arguments = {"message_id": sent.message_id, "permanent": True}
            await ask(synced, message_changes.delete_message, **arguments)
        await settle(store, account_id, push, pushed)

    monkeypatch.setattr(Store, "settle_push", removed_first)
    await synced.sync()
    await synced.sync()

    assert [] == remote.copies("Hello")
    assert [] == await synced.rows(inbox_id=synced.account.inbox_id)


@pytest.mark.parametrize("remote", MAKES_COPIES, indirect=True)
async def test_an_existing_copy_is_searched_for_if_the_outcome_is_unknown(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider has sent the mail, and its response was lost."""
    await synced.sync()
    account = synced.account
    real = synced.app.services.providers.sender(account)

    class LosingSender:
        async def transmit(self, envelope: Envelope, raw: bytes, accepted: Accepted) -> Any:
            outcomes = await real.transmit(envelope, raw, accepted)
            return dict.fromkeys(outcomes, Outcome("unknown", "the answer was lost"))

        async def close(self) -> None:
            await real.close()

    monkeypatch.setattr(type(synced.app.services.providers), "sender", lambda *_: LosingSender())
    async with outbox_worker(synced):
        sent = await send(synced, await local(synced), OUTSIDE, wait_s=20)
    assert "unknown" == sent.status

    await assert_one_copy(later(synced, timedelta(minutes=10)), remote, sent.message_id)


@pytest.mark.parametrize("remote", MAKES_COPIES, indirect=True)
async def test_unknown_mail_that_was_sent_has_only_the_copy_of_the_provider(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced), OUTSIDE)
    await ask(synced, outbox.cancel_message, message_id=sent.message_id)
    await assert_one_copy(synced, remote, sent.message_id)
    async with outbox_worker(synced) as worker:
        again = await ask(synced, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)

    assert sent.message_id == again.message_id
    assert 1 == len(remote.sent())
    await assert_one_copy(synced, remote, sent.message_id)


@pytest.mark.parametrize("remote", MAKES_COPIES, indirect=True)
async def test_unknown_mail_that_was_sent_keeps_its_flags_and_labels(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    sent = await send(synced, await local(synced), OUTSIDE)
    await ask(synced, outbox.cancel_message, message_id=sent.message_id)
    await synced.sync()
    await ask(synced, message_changes.apply_label, message_ids=[sent.message_id], label="Contract")
    flags = ["seen", "flagged"]
    await ask(synced, message_changes.update_message, message_id=sent.message_id, flags=flags)
    await synced.sync()
    async with outbox_worker(synced) as worker:
        await ask(synced, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)
    await assert_one_copy(synced, remote, sent.message_id)

    await assert_flagged_and_labelled(synced, remote, sent.message_id)


@pytest.mark.parametrize("remote", MAKES_COPIES, indirect=True)
async def test_changes_of_sent_mail_before_its_copy_is_synced_are_kept(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=20)
    await ask(synced, message_changes.apply_label, message_ids=[sent.message_id], label="Contract")
    flags = ["seen", "flagged"]
    await ask(synced, message_changes.update_message, message_id=sent.message_id, flags=flags)
    await assert_one_copy(synced, remote, sent.message_id)

    await assert_flagged_and_labelled(synced, remote, sent.message_id)


@pytest.mark.parametrize(
    "remote", ["imap", "outlook", pytest.param("fastmail", marks=AS_ROOT)], indirect=True
)
async def test_a_move_of_sent_mail_before_its_copy_is_synced_is_pushed(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    """At Gmail, sent mail stays in Sent."""
    await synced.sync()
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=20)
    flags = ["seen", "flagged"]
    await ask(synced, message_changes.update_message, message_id=sent.message_id, flags=flags)
    arguments = {"message_id": sent.message_id, "destination": "Archive"}
    await ask(synced, message_changes.move_message, **arguments)
    for _ in range(3):
        await synced.sync()

    here, there = (
        await synced.app.services.store.message(sent.message_id, EVERYTHING),
        remote.find("Hello"),
    )
    assert here is not None
    assert there is not None
    assert (("Archive",), set(flags)) == (here.mailboxes, set(here.flags))
    assert (["Archive"], set(flags)) == (remote.copies("Hello"), there.flags)
    assert not await refusals(synced)


async def assert_flagged_and_labelled(
    synced: SyncedAccount, remote: RemoteMailbox, message_id: str
) -> None:
    """The message has its flag and label, here and at the provider."""
    here, there = (
        await synced.app.services.store.message(message_id, EVERYTHING),
        remote.find("Hello"),
    )
    assert here is not None
    assert there is not None
    assert (("Contract",), {"seen", "flagged"}) == (here.labels, set(here.flags))
    assert ({"contract"}, {"seen", "flagged"}) == (there.labels, there.flags)


@pytest.mark.parametrize("remote", [pytest.param("fastmail", marks=AS_ROOT)], indirect=True)
async def test_a_copy_that_is_being_made_when_its_mail_is_retried_stays(
    synced: SyncedAccount, remote: ImapRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With JMAP the copy in Sent is the one that is sent."""
    await synced.sync()
    sent = await send(synced, await local(synced), OUTSIDE)
    await ask(synced, outbox.cancel_message, message_id=sent.message_id)
    settle = Store.settle_push

    async def retried_first(store: Store, account_id: str, push: Any, pushed: Any) -> None:
        if push.kind == "save_sent":
            async with outbox_worker(synced) as worker:
                await ask(synced, outbox.retry_message, message_id=sent.message_id)
                await worker.finish(20)
        await settle(store, account_id, push, pushed)

    monkeypatch.setattr(Store, "settle_push", retried_first)
    await synced.sync()
    monkeypatch.undo()

    assert 1 == len(remote.sent())
    await assert_one_copy(synced, remote, sent.message_id)


@pytest.mark.parametrize("remote", ["gmail", "outlook"], indirect=True)
async def test_a_copy_that_cannot_be_made_is_retried_and_blocks_nothing(
    synced: SyncedAccount, remote: GmailRemote | GraphRemote
) -> None:
    await synced.sync()
    mailbox = remote.gmail if isinstance(remote, GmailRemote) else remote.graph
    mailbox.full = True
    sent = await send(synced, await local(synced))
    remote.deliver(outgoing_mail("Another"))
    await synced.sync()
    other = await synced.message("Another")
    await ask(synced, message_changes.update_message, message_id=other.id, flags=["flagged"])
    await synced.sync()
    there = remote.find("Another")
    assert there is not None
    assert "flagged" in there.flags
    assert [] == remote.copies("Hello")
    mailbox.full = False
    await synced.sync()
    assert [] == remote.copies("Hello")
    await later(synced, timedelta(minutes=1)).sync()

    assert ["Sent"] == remote.copies("Hello")
    (here,) = [r for r in await synced.rows() if r.id == sent.message_id]
    assert ("Sent",) == here.mailboxes


@pytest.mark.parametrize("size", [1, 7 * MB])
async def test_the_copy_has_the_files(
    synced: SyncedAccount, remote: RemoteMailbox, size: int
) -> None:
    await synced.sync()
    content = Random(7).randbytes(size)
    file = {"filename": "Überblick.bin", "content_type": "application/x-data"}
    files = [{**file, "content": b64encode(content).decode()}]
    address = await local(synced)
    sent = await send(synced, address, attachments=files, body_html="<p>Hello Bo</p>")
    await assert_one_copy(synced, remote, sent.message_id)

    await ask(synced, accounts.remove_account, account_id="work")
    again = await add_synced_account(synced.app, remote)
    await again.sync()
    (row,) = await again.rows(inbox_id=again.account.inbox_id)
    found = await again.app.services.store.message(row.id, EVERYTHING)
    assert found is not None
    (kept,) = found.attachments
    assert ("Überblick.bin", size, sha256(content).hexdigest()) == (
        kept.filename,
        kept.size,
        kept.sha256,
    )
    assert ("outbound", [address]) == (found.direction, list(found.to_addresses))


@pytest.mark.parametrize("remote", [pytest.param("fastmail", marks=AS_ROOT)], indirect=True)
async def test_mail_that_the_provider_refuses_stays_here(
    synced: SyncedAccount, remote: ImapRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JMAP server stores a mail before it reports whether it will be sent."""
    remote.relay.script = {**remote.relay.script, "RCPT": b"550 5.1.1 nobody of this name"}
    await synced.sync()
    call = JmapClient.call
    looks = []

    async def look_first(client: JmapClient, method: str, arguments: dict[str, Any]) -> Any:
        if method == "EmailSubmission/set":
            looks.append(method)
            await synced.sync()
        return await call(client, method, arguments)

    monkeypatch.setattr(JmapClient, "call", look_first)
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=20)
    await synced.sync()
    await synced.sync()

    assert ("failed", 1) == (sent.status, len(looks))
    assert [] == remote.copies("Hello")
    assert [sent.message_id] == [row.id for row in await synced.rows()]
