"""An account has one owner and one login: neither is replaced by another's."""

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
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_adding import an_installation, ask, nothing_is_kept
from tests.providers.accounts.test_nonsense import JmapWorld
from tests.providers.accounts.worlds import ADDRESS, GmailWorld, GraphWorld, World
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents

OTHER = "mallory@other.example"


def a_server(kind: str) -> Any:
    return {"outlook": Graph, "gmail": Gmail, "fastmail": JmapEvents}[kind]()


def world_at(server: Any) -> World:
    worlds = {Graph: GraphWorld, Gmail: GmailWorld, JmapEvents: JmapWorld}
    world: World = worlds[type(server)](server)
    return world


def let_another_in(server: Any) -> None:
    """From now on the server is somebody else's mailbox, with a login of its own."""
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
async def test_a_login_of_somebody_else_is_refused_and_costs_nothing(
    tmp_path: Path, kind: str
) -> None:
    with a_server(kind) as server:
        world = world_at(server)
        async with an_installation(tmp_path, world) as app:
            account = await ask(app, accounts.add_account, account_id="work", **world.arguments)
            world.deliver(mail("Hello"))
            await Desk(app, account).sync()
            let_another_in(server)
            login = "password" if kind == "fastmail" else "access_token"
            before = app.services.providers.login_fingerprint("work")
            with pytest.raises(Conflict, match="not for the mailbox of work") as refused:
                await ask(app, accounts.log_in_account, account_id="work", **{login: "another"})

            assert kind == "fastmail" or OTHER in str(refused.value)
            assert before == app.services.providers.login_fingerprint("work")
            assert ["Hello"] == [row.subject for row in await Desk(app, account).rows()]


@pytest.mark.parametrize(
    ("kind", "is_synced"),
    [("outlook", True), ("outlook", False), ("gmail", True), ("gmail", False), ("fastmail", True)],
)
async def test_an_account_without_a_known_owner_takes_no_login_of_somebody_else(
    tmp_path: Path, kind: str, *, is_synced: bool
) -> None:
    """It is from before owners were written down; a sync since then may have told."""
    with a_server(kind) as server:
        world = world_at(server)
        async with an_installation(tmp_path, world) as app:
            account = await ask(app, accounts.add_account, account_id="work", **world.arguments)
            await app.services.store.change_account("work", without_owner(account))
            if is_synced:
                await Desk(app, account).sync()
            login = "password" if kind == "fastmail" else "access_token"
            let_another_in(server)
            with pytest.raises(Conflict, match="not for the mailbox of work"):
                await ask(app, accounts.log_in_account, account_id="work", **{login: "another"})


@pytest.mark.parametrize("kind", ["outlook", "gmail", "fastmail"])
async def test_a_login_tells_the_owner_of_an_account(tmp_path: Path, kind: str) -> None:
    with a_server(kind) as server:
        world = world_at(server)
        async with an_installation(tmp_path, world) as app:
            account = await ask(app, accounts.add_account, account_id="work", **world.arguments)
            await app.services.store.change_account("work", without_owner(account))
            login = "password" if kind == "fastmail" else "access_token"
            arguments = {"account_id": "work", login: world.arguments[login]}
            again = await ask(app, accounts.log_in_account, **arguments)

            assert account.options == again.options


@pytest.mark.parametrize("kind", ["outlook", "gmail"])
async def test_an_account_is_added_under_the_address_that_its_login_has(
    tmp_path: Path, kind: str
) -> None:
    with a_server(kind) as server:
        world = world_at(server)
        server.address = OTHER
        async with an_installation(tmp_path, world) as app:
            with pytest.raises(Conflict, match=f"login is for {OTHER}; use that address"):
                await ask(app, accounts.add_account, account_id="work", **world.arguments)
            assert await nothing_is_kept(app)
            assert not app.services.providers.has_secret("work")

            server.address = ADDRESS.capitalize()
            assert await ask(app, accounts.add_account, account_id="work", **world.arguments)


async def test_of_two_that_add_one_name_at_once_one_has_the_account_and_its_login(
    tmp_path: Path,
) -> None:
    with Graph() as server:
        world = world_at(server)
        async with an_installation(tmp_path, world) as app:
            both = [
                ask(app, accounts.add_account, account_id="work", **world.arguments)
                for _ in range(2)
            ]
            done = await asyncio.gather(*both, return_exceptions=True)
            added = [one for one in done if not isinstance(one, Conflict)]

            assert 1 == len(added), done
            assert app.services.providers.has_secret("work")
            world.deliver(mail("Hello"))
            await Desk(app, added[0]).sync()
            assert 1 == len(await Desk(app, added[0]).rows())


async def test_an_account_whose_login_cannot_be_kept_is_not_kept_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MailError("the keyring is locked; unlock it")

    monkeypatch.setattr(Accounts, "store_secret", fail)
    with Graph() as server:
        world = world_at(server)
        async with an_installation(tmp_path, world) as app:
            with pytest.raises(MailError, match="locked"):
                await ask(app, accounts.add_account, account_id="work", **world.arguments)
            assert await nothing_is_kept(app)
