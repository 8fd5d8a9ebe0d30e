"""What is removed here for good does not come back from Trash at the provider."""

from __future__ import annotations

import pytest

from postroom.operations import accounts
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused import refusals
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, World


def untrash(world: GmailWorld | GraphWorld) -> None:
    if isinstance(world, GraphWorld):
        world.graph.move(world._there("Hello"), "f-inbox")
        return
    path = f"/messages/{world._key('Hello')}"
    world.gmail.call("POST", f"{path}/untrash")
    world.gmail.call("POST", f"{path}/modify", {"addLabelIds": ["INBOX"]})


@pytest.mark.parametrize("world", ["gmail", "outlook"], indirect=True)
async def test_where_nobody_may_remove_for_good_it_goes_to_trash_and_is_not_seen_here(
    desk: Desk, world: GmailWorld | GraphWorld
) -> None:
    mailbox = world.gmail if isinstance(world, GmailWorld) else world.graph
    mailbox.may_delete = False
    await desk.sync()
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(desk, message_changes.delete_message, message_id=here.id, permanent=True)
    await desk.sync()
    await desk.sync()
    world.expire()
    await desk.sync()

    assert ["Trash" if isinstance(world, GmailWorld) else "Deleted"] == world.copies("Hello")
    assert [] == await desk.rows()
    assert [] == await desk.news()
    untrash(world)
    await desk.sync()
    assert ("Inbox",) == (await desk.message("Hello")).mailboxes


@pytest.mark.parametrize("may_delete", [True, False])
async def test_what_is_removed_at_both_ends_is_no_refusal(
    desk: Desk, world: World, *, may_delete: bool
) -> None:
    if isinstance(world, GmailWorld | GraphWorld):
        mailbox = world.gmail if isinstance(world, GmailWorld) else world.graph
        mailbox.may_delete = may_delete
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    world.remove("Hello")
    await ask(desk, message_changes.delete_message, message_id=here.id, permanent=True)
    await desk.sync()

    assert ([], []) == (await desk.rows(), await refusals(desk))
    (account,) = (await ask(desk, accounts.list_accounts)).results
    assert (None, 0) == (account.last_refusal, desk.app.services.counts["pushes_refused"])
