"""Folders and labels that their owner makes and renames at the provider."""

from __future__ import annotations

import pytest

from postroom.operations import accounts
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, ImapWorld, World

NESTED = ["imap", pytest.param("fastmail", marks=AS_ROOT), "outlook"]


def make(world: World, name: str) -> None:
    if isinstance(world, GmailWorld):
        world.gmail.call("POST", "/labels", {"name": name})
    elif isinstance(world, GraphWorld):
        world.graph.folders[f"f-{name}"] = name
    elif isinstance(world, ImapWorld):
        assert "OK" == world.imap.create(name)[0]


def rename(world: World, old: str, new: str) -> None:
    if isinstance(world, GmailWorld):
        rows = world.gmail.call("GET", "/labels")["labels"]
        key = next(row["id"] for row in rows if row["name"] == old)
        world.gmail.call("PATCH", f"/labels/{key}", {"name": new})
    elif isinstance(world, GraphWorld):
        folders = world.graph.folders
        folders[next(key for key, name in folders.items() if name == old)] = new
    elif isinstance(world, ImapWorld):
        world.imap.select("INBOX")
        assert "OK" == world.imap.rename(old, new)[0]


def places(world: World, subject: str) -> set[str]:
    """Where a message is there: in a mailbox, or at Gmail under a label."""
    there = world.find(subject)
    assert there is not None
    return set(there.labels) if isinstance(world, GmailWorld) else {there.mailbox.lower()}


async def place_here(desk: Desk, world: World, subject: str) -> tuple[str, ...]:
    here = await desk.message(subject)
    return here.labels if isinstance(world, GmailWorld) else here.mailboxes


async def move(desk: Desk, subject: str, destination: str) -> None:
    here = await desk.message(subject)
    await ask(desk, message_changes.move_message, message_id=here.id, destination=destination)


async def test_a_move_to_a_folder_that_its_owner_has_just_made_is_made(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    async with desk.app.services.providers.open(desk.account) as provider:
        await provider.check()
        make(world, "Projects")
        await move(desk, "Hello", "projects")
        store = desk.app.services.store
        (push,) = await store.due_pushes("work", desk.app.services.clock(), 5)
        await store.settle_push("work", push, await provider.push(push))
    await desk.sync()

    assert {"projects"} == places(world, "Hello")
    assert ("projects",) == tuple(n.lower() for n in await place_here(desk, world, "Hello"))
    (account,) = (await ask(desk, accounts.list_accounts)).results
    assert account.last_refusal is None


@pytest.mark.parametrize("world", NESTED, indirect=True)
async def test_a_move_to_a_folder_in_a_folder_makes_it_there(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    world.deliver(outgoing_mail("Another"))
    make(world, "Projects")
    await desk.sync()
    await move(desk, "Hello", "Projects/2026")
    await move(desk, "Another", "New/Levels/Three")
    await desk.sync()
    await desk.sync()

    assert ("Projects/2026",) == (await desk.message("Hello")).mailboxes
    assert ("New/Levels/Three",) == (await desk.message("Another")).mailboxes
    (account,) = (await ask(desk, accounts.list_accounts)).results
    assert account.last_refusal is None
    if isinstance(world, GraphWorld):
        assert [] == [name for name in world.graph.folders.values() if "/" in name]
    else:
        assert {"projects/2026"} == places(world, "Hello")


async def test_a_folder_that_is_renamed_there_is_renamed_here(desk: Desk, world: World) -> None:
    for subject in ("Hello", "Another"):
        world.deliver(outgoing_mail(subject))
    await desk.sync()
    await move(desk, "Hello", "Old")
    await desk.sync()
    await desk.sync()
    rename(world, "Old", "New")
    await desk.sync()

    assert ("New",) == await place_here(desk, world, "Hello")
    assert ("Inbox",) == (await desk.message("Another")).mailboxes
    world.flag("Hello")
    await desk.sync()
    assert ("New",) == await place_here(desk, world, "Hello")
    assert "flagged" in (await desk.message("Hello")).flags
    assert 2 == len(await desk.rows())
