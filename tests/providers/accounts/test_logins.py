"""An account keeps its owner and its login: neither can be replaced by another user's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Conflict, MailError
from postroom.model.account import Account
from postroom.operations import accounts
from postroom.providers.accounts import Accounts
from tests.mails import mail
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import (
    ADDRESS,
    GmailRemote,
    GraphRemote,
    RemoteMailbox,
)
from tests.providers.accounts.test_adding import an_installation, ask, nothing_is_kept
from tests.providers.accounts.test_malformed_responses import JmapRemote
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents

OTHER = "mallory@other.example"


def a_server(kind: str) -> Any:
    return {"outlook": Graph, "gmail": Gmail, "fastmail": JmapEvents}[kind]()


def world_at(server: Any) -> RemoteMailbox:
    remotes = {Graph: GraphRemote, Gmail: GmailRemote, JmapEvents: JmapRemote}
    remote: RemoteMailbox = remotes[type(server)](server)
    return remote


def switch_owner(server: Any) -> None:
    """Replace the remote mailbox by that of another user, with another login."""
    server.token = "another"
    if isinstance(server, JmapEvents):
        server.account_id = "a2"
        return
    server.address = OTHER
    if isinstance(server, Graph):
        server.owner = "00000000-0000-0000-0000-000000000001"


def without_owner(account: Account) -> dict[str, Any]:
    return {name: value for name, value in account.options.items() if name != "owner"}


@pytest.mark.parametrize("kind", ["outlook", "gmail", "fastmail"])
async def test_a_login_of_another_user_is_refused(tmp_path: Path, kind: str) -> None:
    with a_server(kind) as server:
        remote = world_at(server)
        async with an_installation(tmp_path, remote) as app:
            account = await ask(app, accounts.add_account, account_id="work", **remote.arguments)
            remote.deliver(mail("Hello"))
            await SyncedAccount(app, account).sync()
            switch_owner(server)
            login = "password" if kind == "fastmail" else "access_token"
            before = app.services.providers.login_fingerprint("work")
            with pytest.raises(Conflict, match="not for the mailbox of work") as refused:
                await ask(app, accounts.log_in_account, account_id="work", **{login: "another"})

            assert kind == "fastmail" or OTHER in str(refused.value)
            assert before == app.services.providers.login_fingerprint("work")
            assert ["Hello"] == [row.subject for row in await SyncedAccount(app, account).rows()]


@pytest.mark.parametrize(
    ("kind", "is_synced"),
    [("outlook", True), ("outlook", False), ("gmail", True), ("gmail", False), ("fastmail", True)],
)
async def test_an_account_without_a_recorded_owner_refuses_another_login(
    tmp_path: Path, kind: str, *, is_synced: bool
) -> None:
    """It is from before owners were recorded; a sync pass may have recorded it since."""
    with a_server(kind) as server:
        remote = world_at(server)
        async with an_installation(tmp_path, remote) as app:
            account = await ask(app, accounts.add_account, account_id="work", **remote.arguments)
            await app.services.store.change_account("work", without_owner(account))
            if is_synced:
                await SyncedAccount(app, account).sync()
            login = "password" if kind == "fastmail" else "access_token"
            switch_owner(server)
            with pytest.raises(Conflict, match="not for the mailbox of work"):
                await ask(app, accounts.log_in_account, account_id="work", **{login: "another"})


@pytest.mark.parametrize("kind", ["outlook", "gmail", "fastmail"])
async def test_the_owner_of_an_account_is_read_from_its_login(tmp_path: Path, kind: str) -> None:
    with a_server(kind) as server:
        remote = world_at(server)
        async with an_installation(tmp_path, remote) as app:
            account = await ask(app, accounts.add_account, account_id="work", **remote.arguments)
            await app.services.store.change_account("work", without_owner(account))
            login = "password" if kind == "fastmail" else "access_token"
            arguments = {"account_id": "work", login: remote.arguments[login]}
            again = await ask(app, accounts.log_in_account, **arguments)

            assert account.options == again.options


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_an_account_has_the_address_of_its_login(tmp_path: Path, kind: str) -> None:
    with a_server(kind) as server:
        remote = world_at(server)
        server.address = OTHER
        async with an_installation(tmp_path, remote) as app:
            with pytest.raises(Conflict, match=f"login is for {OTHER}; use that address"):
                await ask(app, accounts.add_account, account_id="work", **remote.arguments)
            assert await nothing_is_kept(app)
            assert not app.services.providers.has_secret("work")

            server.address = ADDRESS.capitalize()
            assert await ask(app, accounts.add_account, account_id="work", **remote.arguments)


async def test_concurrent_additions_of_one_name_keep_one_account(
    tmp_path: Path,
) -> None:
    with Graph() as server:
        remote = world_at(server)
        async with an_installation(tmp_path, remote) as app:
            both = [
                ask(app, accounts.add_account, account_id="work", **remote.arguments)
                for _ in range(2)
            ]
            done = await asyncio.gather(*both, return_exceptions=True)
            added = [one for one in done if not isinstance(one, Conflict)]

            assert 1 == len(added), done
            assert app.services.providers.has_secret("work")
            remote.deliver(mail("Hello"))
            await SyncedAccount(app, added[0]).sync()
            assert 1 == len(await SyncedAccount(app, added[0]).rows())


async def test_an_account_whose_login_cannot_be_stored_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MailError("the keyring is locked; unlock it")

    monkeypatch.setattr(Accounts, "store_secret", fail)
    with Graph() as server:
        remote = world_at(server)
        async with an_installation(tmp_path, remote) as app:
            with pytest.raises(MailError, match="locked"):
                await ask(app, accounts.add_account, account_id="work", **remote.arguments)
            assert await nothing_is_kept(app)
