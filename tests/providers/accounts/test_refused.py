"""What a provider does not do is not said to be done, and stops nothing else."""

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
from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_rules import keep_rule
from tests.providers.accounts.worlds import World

FOLDERS = ["imap", "imap-plain", pytest.param("fastmail", marks=AS_ROOT)]


async def last_refusal(desk: Desk) -> RefusedChange:
    """What the list of accounts, a check and what it can do tell alike, over every surface."""
    listed = await ask(desk, accounts.list_accounts)
    checked = await ask(desk, accounts.check_account, account_id="work")
    can = await ask(desk, accounts.get_capabilities, account_id="work")
    (account,) = response_body(accounts.list_accounts, listed)["results"]
    shown = response_body(accounts.get_capabilities, can)
    assert {"at", "message_id", "change", "detail"} == set(account["last_refusal"])
    assert account["last_refusal"] == shown["last_refusal"]
    refusal: RefusedChange = listed.results[0].last_refusal
    assert refusal == checked.last_refusal
    return refusal


IMPOSSIBLE = "名" * 250
"""No server that keeps mailboxes in folders has one of this name."""


async def refusals(desk: Desk) -> list[Event]:
    events = await desk.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return [event for event in events if event.type == "message.refused"]


@pytest.mark.parametrize("world", FOLDERS, indirect=True)
async def test_a_move_that_the_provider_refuses_is_undone_here_and_told(
    desk: Desk, world: World
) -> None:
    world.deliver(outgoing_mail("Hello"))
    world.deliver(outgoing_mail("Another"))
    await desk.sync()
    here, other = await desk.message("Hello"), await desk.message("Another")
    await ask(desk, message_changes.move_message, message_id=here.id, destination=IMPOSSIBLE)
    await ask(desk, message_changes.move_message, message_id=other.id, destination="Archive")
    await desk.sync()

    there, after = world.find("Another"), await desk.message("Hello")
    assert there is not None
    assert ("Archive", ("Inbox",)) == (there.mailbox, after.mailboxes)
    (refused,) = await refusals(desk)
    assert (here.id, {"move_to": IMPOSSIBLE}) == (refused.message_id, refused.data["change"])
    assert refused.data["detail"]
    assert 1 == desk.app.services.counts["pushes_refused"]
    told = await last_refusal(desk)
    assert (refused.at, refused.message_id) == (told.at, told.message_id)
    assert (refused.data["change"], refused.data["detail"]) == (told.change, told.detail)


@pytest.mark.parametrize("world", ["imap"], indirect=True)
async def test_an_error_of_ours_in_one_change_stops_no_other(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver(outgoing_mail("Hello"))
    world.deliver(outgoing_mail("Another"))
    await desk.sync()
    here, other = await desk.message("Hello"), await desk.message("Another")
    store = Client.store

    async def stumble(self: Client, uid: int, sign: str, flags: Any) -> None:
        if "Bad" in flags:
            raise ValueError("an error of ours")
        await store(self, uid, sign, flags)

    monkeypatch.setattr(Client, "store", stumble)
    await ask(desk, message_changes.apply_label, message_ids=[here.id], label="Bad")
    await ask(desk, message_changes.apply_label, message_ids=[other.id], label="Good")
    world.deliver(outgoing_mail("News"))
    await desk.sync()

    assert () == (await desk.message("Hello")).labels
    there = world.find("Another")
    assert there is not None
    assert {"good"} == there.labels
    assert (await desk.message("News")).subject
    assert [here.id] == [event.message_id for event in await refusals(desk)]


@pytest.mark.parametrize("world", ["imap"], indirect=True)
async def test_a_disk_of_ours_that_fails_is_no_refusal(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    async def fail(self: Client, uid: int, sign: str, flags: Any) -> None:
        raise MailError("the disk failed; restart once it is well")

    monkeypatch.setattr(Client, "store", fail)
    await ask(desk, message_changes.apply_label, message_ids=[here.id], label="Kept")
    with suppress(MailError):
        await desk.sync()

    assert ("Kept",) == (await desk.message("Hello")).labels
    assert [] == await refusals(desk)


@pytest.mark.parametrize("world", ["imap"], indirect=True)
async def test_a_removal_that_the_provider_refuses_brings_the_mail_back(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    async def stumble(self: ImapProvider, client: Client, uid: int) -> None:
        raise ValueError("an error of ours")

    monkeypatch.setattr(ImapProvider, "_expunge", stumble)
    await ask(desk, message_changes.delete_message, message_id=here.id, permanent=True)
    await desk.sync()

    assert world.find("Hello") is not None
    assert ("Inbox",) == (await desk.message("Hello")).mailboxes
    told = await last_refusal(desk)
    assert (here.id, {"delete": True}) == (told.message_id, told.change)


async def told_why(desk: Desk, operation: Any, **arguments: Any) -> str:
    """What is said against a change; nothing of it is done."""
    before = await desk.message("Hello")
    result = await ask(desk, operation, **arguments)
    (failed,) = result.failed
    assert "invalid_input" == failed.code
    assert before == await desk.message("Hello")
    return failed.message


async def test_no_message_is_lost_in_drafts(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    for name in ("Drafts", "drafts"):
        why = await told_why(
            desk, message_changes.move_message, message_id=here.id, destination=name
        )
        assert "create_draft" in why
    if world.arguments["provider"] in ("gmail", "outlook"):
        await told_why(desk, message_changes.update_message, message_id=here.id, flags=["draft"])
    await desk.sync()

    assert ("Inbox",) == (await desk.message("Hello")).mailboxes
    assert not await refusals(desk)


@pytest.mark.parametrize("name", ["x/", "/x", "a//b", "a/ /b", "a\x85b"])
@pytest.mark.parametrize("world", ["outlook"], indirect=True)
async def test_a_name_that_no_mailbox_can_have_is_refused(
    desk: Desk, world: World, name: str
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    why = await told_why(desk, message_changes.move_message, message_id=here.id, destination=name)
    assert "is not a valid mailbox name" in why


@pytest.mark.parametrize("world", ["gmail"], indirect=True)
async def test_what_gmail_never_does_is_refused(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    move, label = message_changes.move_message, message_changes.apply_label
    assert "Archive" in await told_why(desk, move, message_id=here.id, destination="Sent")
    for name in ("INBOX", "Trash", "Important", "CATEGORY_SOCIAL", "x/"):
        await told_why(desk, label, message_ids=[here.id], label=name)
    await told_why(desk, move, message_id=here.id, destination="Important")


async def test_the_name_of_a_standard_mailbox_may_be_in_any_case(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(desk, message_changes.move_message, message_id=here.id, destination="archive")
    await desk.sync()

    there = world.find("Hello")
    assert there is not None
    assert "Archive" == there.mailbox
    assert ("Archive",) == (await desk.message("Hello")).mailboxes


@pytest.mark.parametrize("world", ["outlook"], indirect=True)
async def test_what_a_rule_cannot_do_is_told(desk: Desk, world: World) -> None:
    await keep_rule(desk, "{move: Drafts}", word="hello")
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    await desk.sync()

    here = await desk.message("Hello")
    assert ("Inbox",) == here.mailboxes
    (refused,) = await refusals(desk)
    assert (here.id, {"move_to": "Drafts"}) == (refused.message_id, refused.data["change"])


@pytest.mark.parametrize("world", ["gmail", "outlook"], indirect=True)
async def test_a_copy_that_is_answered_with_nonsense_is_tried_again(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync()
    json, odd = Api.json, [{}]

    async def stumble(self: Api, method: str, path: str, **given: Any) -> Any:
        if odd and method == "POST" and path.endswith("/messages"):
            return odd.pop()
        return await json(self, method, path, **given)

    monkeypatch.setattr(Api, "json", stumble)
    sent = {
        "to": [(await ask(desk, inboxes.create_inbox, username="bo")).address],
        "subject": "Hello",
        "body_text": "Hello Bo",
    }
    await ask(desk, sending.send_message, inbox_id=desk.account.inbox_id, **sent)
    await desk.sync()
    assert ([], []) == (world.copies("Hello"), odd)
    services = desk.app.services
    moved = replace(services, clock=lambda: services.clock() + timedelta(hours=1))
    await Desk(replace(desk.app, services=moved), desk.account).sync()

    assert ["Sent"] == world.copies("Hello")
    assert [] == await refusals(desk)
