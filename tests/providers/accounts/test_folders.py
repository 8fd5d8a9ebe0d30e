"""Folders and labels that users create and rename at the provider."""

from __future__ import annotations

import pytest

from postroom.operations import accounts
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount
from tests.providers.accounts.remote_mailboxes import (
    PREFIXED,
    GmailRemote,
    GraphRemote,
    ImapRemote,
    RemoteMailbox,
)
from tests.providers.accounts.test_every_provider import ask, outgoing_mail

NESTED = ["imap", pytest.param("fastmail", marks=AS_ROOT), "outlook"]


def make(remote: RemoteMailbox, name: str) -> None:
    if isinstance(remote, GmailRemote):
        remote.gmail.call("POST", "/labels", {"name": name})
    elif isinstance(remote, GraphRemote):
        remote.graph.folders[f"f-{name}"] = name
    elif isinstance(remote, ImapRemote):
        assert "OK" == remote.imap.create(name)[0]


def rename(remote: RemoteMailbox, old: str, new: str) -> None:
    if isinstance(remote, GmailRemote):
        rows = remote.gmail.call("GET", "/labels")["labels"]
        key = next(row["id"] for row in rows if row["name"] == old)
        remote.gmail.call("PATCH", f"/labels/{key}", {"name": new})
    elif isinstance(remote, GraphRemote):
        folders = remote.graph.folders
        folders[next(key for key, name in folders.items() if name == old)] = new
    elif isinstance(remote, ImapRemote):
        remote.imap.select("INBOX")
        assert "OK" == remote.imap.rename(old, new)[0]


def places(remote: RemoteMailbox, subject: str) -> set[str]:
    """The mailboxes of a message at the provider; at Gmail, its labels."""
    there = remote.find(subject)
    assert there is not None
    return set(there.labels) if isinstance(remote, GmailRemote) else {there.mailbox.lower()}


async def place_here(synced: SyncedAccount, remote: RemoteMailbox, subject: str) -> tuple[str, ...]:
    here = await synced.message(subject)
    return here.labels if isinstance(remote, GmailRemote) else here.mailboxes


async def move(synced: SyncedAccount, subject: str, destination: str) -> None:
    here = await synced.message(subject)
    await ask(synced, message_changes.move_message, message_id=here.id, destination=destination)


async def test_a_move_to_a_new_remote_folder_works(
    synced: SyncedAccount, remote: RemoteMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    async with synced.app.services.providers.open(synced.account) as provider:
        await provider.check()
        make(remote, "Projects")
        await move(synced, "Hello", "projects")
        store = synced.app.services.store
        (push,) = await store.due_pushes("work", synced.app.services.clock(), 5)
        await store.settle_push("work", push, await provider.push(push))
    await synced.sync()

    assert {"projects"} == places(remote, "Hello")
    assert ("projects",) == tuple(n.lower() for n in await place_here(synced, remote, "Hello"))
    (account,) = (await ask(synced, accounts.list_accounts)).results
    assert account.last_refusal is None


@pytest.mark.parametrize("remote", NESTED, indirect=True)
async def test_a_move_to_a_nested_folder_creates_it(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    remote.deliver(outgoing_mail("Another"))
    make(remote, "Projects")
    await synced.sync()
    await move(synced, "Hello", "Projects/2026")
    await move(synced, "Another", "New/Levels/Three")
    await synced.sync()
    await synced.sync()

    assert ("Projects/2026",) == (await synced.message("Hello")).mailboxes
    assert ("New/Levels/Three",) == (await synced.message("Another")).mailboxes
    (account,) = (await ask(synced, accounts.list_accounts)).results
    assert account.last_refusal is None
    if isinstance(remote, GraphRemote):
        assert [] == [name for name in remote.graph.folders.values() if "/" in name]
    else:
        assert {"projects/2026"} == places(remote, "Hello")


@pytest.mark.parametrize("remote", ["imap", PREFIXED], indirect=True)
async def test_a_folder_inside_of_inbox_is_one_folder_in_any_case(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    await move(synced, "Hello", "Inbox/Sub")
    for _ in range(3):
        await synced.sync()

    assert ("Sub",) == (await synced.message("Hello")).mailboxes


@pytest.mark.parametrize("remote", [PREFIXED], indirect=True)
@pytest.mark.parametrize("name", ["Projects", "New/Levels/Three", "Entwürfe & mehr"])
async def test_a_folder_is_created_where_all_folders_are_inside_of_inbox(
    synced: SyncedAccount, remote: RemoteMailbox, name: str
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    await move(synced, "Hello", name)
    await synced.sync()
    await synced.sync()

    assert (name,) == (await synced.message("Hello")).mailboxes
    here = remote.find("Hello")
    assert here is not None
    assert here.mailbox.startswith("INBOX.")
    (account,) = (await ask(synced, accounts.list_accounts)).results
    assert account.last_refusal is None


async def test_a_remote_rename_of_a_folder_is_synced(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    for subject in ("Hello", "Another"):
        remote.deliver(outgoing_mail(subject))
    await synced.sync()
    await move(synced, "Hello", "Old")
    await synced.sync()
    await synced.sync()
    rename(remote, "Old", "New")
    await synced.sync()

    assert ("New",) == await place_here(synced, remote, "Hello")
    assert ("Inbox",) == (await synced.message("Another")).mailboxes
    remote.flag("Hello")
    await synced.sync()
    assert ("New",) == await place_here(synced, remote, "Hello")
    assert "flagged" in (await synced.message("Hello")).flags
    assert 2 == len(await synced.rows())
