"""What an account has sent is in Sent at its provider once, whoever delivered it."""

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
from tests.providers.accounts.conftest import AS_ROOT, Desk, open_desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused import refusals
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, ImapWorld, World

OUTSIDE = "bo@elsewhere.example"
MAKES_COPIES = ["gmail", "outlook", pytest.param("fastmail", marks=AS_ROOT)]
MB = 2**20


async def send(desk: Desk, *to: str, **more: Any) -> Sent:
    sent: Sent = await ask(
        desk,
        sending.send_message,
        inbox_id=desk.account.inbox_id,
        to=list(to),
        subject="Hello",
        body_text="Hello Bo",
        **more,
    )
    return sent


async def local(desk: Desk, name: str = "bo") -> str:
    """The address of an inbox of this installation."""
    return str((await ask(desk, inboxes.create_inbox, username=name)).address)


def later(desk: Desk, by: timedelta) -> Desk:
    """The same installation, when some time has passed."""
    services = desk.app.services
    moved = replace(services, clock=lambda: services.clock() + by)
    return Desk(replace(desk.app, services=moved), desk.account)


@asynccontextmanager
async def working(desk: Desk) -> AsyncIterator[Outbox]:
    """The outbox works."""
    worker = desk.app.outbox()
    work = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def assert_one_copy(desk: Desk, world: World, message_id: str) -> None:
    """One in Sent there, one message here, and nothing is told as received."""
    await desk.sync()
    await desk.sync()
    assert ["Sent"] == world.copies("Hello")
    here = await desk.rows(inbox_id=desk.account.inbox_id)
    assert [(message_id, ("Sent",))] == [(row.id, row.mailboxes) for row in here]
    events = await desk.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    own = [e for e in events if e.inbox_id == desk.account.inbox_id]
    assert not [event for event in own if event.type == "message.received"]
    assert not await refusals(desk)


async def test_mail_to_a_local_inbox_has_its_copy_in_sent(desk: Desk, world: World) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk))

    assert "delivered" == sent.status
    await assert_one_copy(desk, world, sent.message_id)
    assert not world.sent()
    (here,) = [r for r in await desk.rows() if r.id == sent.message_id]
    assert ("seen",) == here.flags


async def test_mail_to_both_has_one_copy(desk: Desk, world: World) -> None:
    await desk.sync()
    async with working(desk):
        sent = await send(desk, await local(desk), OUTSIDE, wait_s=20)

    assert "sent" == sent.status
    assert 1 == len(world.sent())
    await assert_one_copy(desk, world, sent.message_id)


async def test_mail_that_the_provider_does_not_send_has_its_copy_too(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk), OUTSIDE)
    await ask(desk, outbox.cancel_message, message_id=sent.message_id)

    await assert_one_copy(desk, world, sent.message_id)
    assert not world.sent()


async def test_mail_that_waits_for_its_time_gets_its_copy_then(desk: Desk, world: World) -> None:
    await desk.sync()
    at = desk.app.services.clock() + timedelta(hours=1)
    mail: dict[str, Any] = {"to": [await local(desk)], "subject": "Hello", "body_text": "Hello Bo"}
    mail |= {"inbox_id": desk.account.inbox_id, "send_at": at.isoformat()}
    draft = await ask(desk, drafts.create_draft, **mail)
    sent = await ask(desk, drafts.send_draft, draft_id=draft.id)
    await desk.sync()
    assert [] == world.copies("Hello")
    after = later(desk, timedelta(hours=2))
    async with working(after) as worker:
        await worker.finish(20)

    await assert_one_copy(desk, world, sent.message_id)


async def test_a_copy_that_was_made_before_a_kill_is_not_made_again(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk))

    async def killed(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(Store, "settle_push", killed)
        with pytest.raises(asyncio.CancelledError):
            await desk.sync()
    assert ["Sent"] == world.copies("Hello")
    await assert_one_copy(desk, world, sent.message_id)


async def test_a_copy_of_what_is_removed_meanwhile_does_not_stay(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk))
    settle = Store.settle_push

    async def removed_first(store: Store, account_id: str, push: Any, pushed: Any) -> None:
        if push.kind == "save_sent":
            arguments = {"message_id": sent.message_id, "permanent": True}
            await ask(desk, message_changes.delete_message, **arguments)
        await settle(store, account_id, push, pushed)

    monkeypatch.setattr(Store, "settle_push", removed_first)
    await desk.sync()
    await desk.sync()

    assert [] == world.copies("Hello")
    assert [] == await desk.rows(inbox_id=desk.account.inbox_id)


@pytest.mark.parametrize("world", MAKES_COPIES, indirect=True)
async def test_who_is_not_known_to_have_it_is_looked_for_before_a_copy_is_made(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider has sent the mail, and its answer was lost."""
    await desk.sync()
    account = desk.account
    real = desk.app.services.providers.sender(account)

    class Lossy:
        async def transmit(self, envelope: Envelope, raw: bytes, accepted: Accepted) -> Any:
            outcomes = await real.transmit(envelope, raw, accepted)
            return dict.fromkeys(outcomes, Outcome("unknown", "the answer was lost"))

        async def close(self) -> None:
            await real.close()

    monkeypatch.setattr(type(desk.app.services.providers), "sender", lambda *_: Lossy())
    async with working(desk):
        sent = await send(desk, await local(desk), OUTSIDE, wait_s=20)
    assert "unknown" == sent.status

    await assert_one_copy(later(desk, timedelta(minutes=10)), world, sent.message_id)


@pytest.mark.parametrize("world", MAKES_COPIES, indirect=True)
async def test_mail_that_is_sent_after_all_has_the_copy_of_the_provider_only(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk), OUTSIDE)
    await ask(desk, outbox.cancel_message, message_id=sent.message_id)
    await assert_one_copy(desk, world, sent.message_id)
    async with working(desk) as worker:
        again = await ask(desk, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)

    assert sent.message_id == again.message_id
    assert 1 == len(world.sent())
    await assert_one_copy(desk, world, sent.message_id)


@pytest.mark.parametrize("world", MAKES_COPIES, indirect=True)
async def test_mail_that_is_sent_after_all_keeps_its_flags_and_labels(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    sent = await send(desk, await local(desk), OUTSIDE)
    await ask(desk, outbox.cancel_message, message_id=sent.message_id)
    await desk.sync()
    await ask(desk, message_changes.apply_label, message_ids=[sent.message_id], label="Contract")
    flags = ["seen", "flagged"]
    await ask(desk, message_changes.update_message, message_id=sent.message_id, flags=flags)
    await desk.sync()
    async with working(desk) as worker:
        await ask(desk, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)
    await assert_one_copy(desk, world, sent.message_id)

    await assert_stands(desk, world, sent.message_id)


@pytest.mark.parametrize("world", MAKES_COPIES, indirect=True)
async def test_what_is_done_to_sent_mail_before_its_copy_is_seen_holds(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=20)
    await ask(desk, message_changes.apply_label, message_ids=[sent.message_id], label="Contract")
    flags = ["seen", "flagged"]
    await ask(desk, message_changes.update_message, message_id=sent.message_id, flags=flags)
    await assert_one_copy(desk, world, sent.message_id)

    await assert_stands(desk, world, sent.message_id)


@pytest.mark.parametrize(
    "world", ["imap", "outlook", pytest.param("fastmail", marks=AS_ROOT)], indirect=True
)
async def test_sent_mail_that_is_moved_before_its_copy_is_seen_is_moved_there_too(
    desk: Desk, world: World
) -> None:
    """With Gmail, what was sent stays in Sent."""
    await desk.sync()
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=20)
    flags = ["seen", "flagged"]
    await ask(desk, message_changes.update_message, message_id=sent.message_id, flags=flags)
    arguments = {"message_id": sent.message_id, "destination": "Archive"}
    await ask(desk, message_changes.move_message, **arguments)
    for _ in range(3):
        await desk.sync()

    here, there = (
        await desk.app.services.store.message(sent.message_id, EVERYTHING),
        world.find("Hello"),
    )
    assert here is not None
    assert there is not None
    assert (("Archive",), set(flags)) == (here.mailboxes, set(here.flags))
    assert (["Archive"], set(flags)) == (world.copies("Hello"), there.flags)
    assert not await refusals(desk)


async def assert_stands(desk: Desk, world: World, message_id: str) -> None:
    """Flagged and with its label, here and there."""
    here, there = await desk.app.services.store.message(message_id, EVERYTHING), world.find("Hello")
    assert here is not None
    assert there is not None
    assert (("Contract",), {"seen", "flagged"}) == (here.labels, set(here.flags))
    assert ({"contract"}, {"seen", "flagged"}) == (there.labels, there.flags)


@pytest.mark.parametrize("world", [pytest.param("fastmail", marks=AS_ROOT)], indirect=True)
async def test_a_copy_that_is_being_made_when_its_mail_is_retried_stays(
    desk: Desk, world: ImapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With JMAP the copy in Sent is the one that is sent."""
    await desk.sync()
    sent = await send(desk, await local(desk), OUTSIDE)
    await ask(desk, outbox.cancel_message, message_id=sent.message_id)
    settle = Store.settle_push

    async def retried_first(store: Store, account_id: str, push: Any, pushed: Any) -> None:
        if push.kind == "save_sent":
            async with working(desk) as worker:
                await ask(desk, outbox.retry_message, message_id=sent.message_id)
                await worker.finish(20)
        await settle(store, account_id, push, pushed)

    monkeypatch.setattr(Store, "settle_push", retried_first)
    await desk.sync()
    monkeypatch.undo()

    assert 1 == len(world.sent())
    await assert_one_copy(desk, world, sent.message_id)


@pytest.mark.parametrize("world", ["gmail", "outlook"], indirect=True)
async def test_a_copy_that_cannot_be_made_waits_and_blocks_nothing(
    desk: Desk, world: GmailWorld | GraphWorld
) -> None:
    await desk.sync()
    mailbox = world.gmail if isinstance(world, GmailWorld) else world.graph
    mailbox.full = True
    sent = await send(desk, await local(desk))
    world.deliver(outgoing_mail("Another"))
    await desk.sync()
    other = await desk.message("Another")
    await ask(desk, message_changes.update_message, message_id=other.id, flags=["flagged"])
    await desk.sync()
    there = world.find("Another")
    assert there is not None
    assert "flagged" in there.flags
    assert [] == world.copies("Hello")
    mailbox.full = False
    await desk.sync()
    assert [] == world.copies("Hello")
    await later(desk, timedelta(minutes=1)).sync()

    assert ["Sent"] == world.copies("Hello")
    (here,) = [r for r in await desk.rows() if r.id == sent.message_id]
    assert ("Sent",) == here.mailboxes


@pytest.mark.parametrize("size", [1, 7 * MB])
async def test_the_copy_has_the_files(desk: Desk, world: World, size: int) -> None:
    await desk.sync()
    content = Random(7).randbytes(size)
    file = {"filename": "Überblick.bin", "content_type": "application/x-data"}
    files = [{**file, "content": b64encode(content).decode()}]
    address = await local(desk)
    sent = await send(desk, address, attachments=files, body_html="<p>Hello Bo</p>")
    await assert_one_copy(desk, world, sent.message_id)

    await ask(desk, accounts.remove_account, account_id="work")
    again = await open_desk(desk.app, world)
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


@pytest.mark.parametrize("world", [pytest.param("fastmail", marks=AS_ROOT)], indirect=True)
async def test_mail_that_the_provider_refuses_stays_here_whenever_we_look(
    desk: Desk, world: ImapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a JMAP server is to send is there before it says whether it does."""
    world.relay.script = {**world.relay.script, "RCPT": b"550 5.1.1 nobody of this name"}
    await desk.sync()
    call = JmapClient.call
    looks = []

    async def look_first(client: JmapClient, method: str, arguments: dict[str, Any]) -> Any:
        if method == "EmailSubmission/set":
            looks.append(method)
            await desk.sync()
        return await call(client, method, arguments)

    monkeypatch.setattr(JmapClient, "call", look_first)
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=20)
    await desk.sync()
    await desk.sync()

    assert ("failed", 1) == (sent.status, len(looks))
    assert [] == world.copies("Hello")
    assert [sent.message_id] == [row.id for row in await desk.rows()]
