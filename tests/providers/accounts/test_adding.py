"""Adding an account: its server is verified, and it gets no more access than requested."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MailError,
    NotFound,
    ProviderAuthFailed,
    ProviderError,
)
from postroom.model.key import OWNER
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.operations import accounts
from postroom.operations.outgoing import drafts, identities, sending
from postroom.providers import oauth_client
from tests.callers import a_caller
from tests.mails import new_inbox
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import ADDRESS, RemoteMailbox, open_remote
from tests.servers.dovecot import PASSWORD
from tests.servers.relay import relaying

EHLO = b"250-relay.example\r\n250-SIZE 8388608\r\n250 AUTH PLAIN"
MODIFY = "https://www.googleapis.com/auth/gmail.modify"
SEND = "https://www.googleapis.com/auth/gmail.send"


async def ask(app: App, operation: Any, **arguments: Any) -> Any:
    return await call(app.context(OWNER), operation, arguments)


@asynccontextmanager
async def an_installation(folder: Path, remote: RemoteMailbox) -> AsyncIterator[App]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file", **remote.settings}
    async with open_app(read_settings(values).settings) as app:
        yield app


async def nothing_is_kept(app: App) -> bool:
    found = await app.services.store.accounts(EVERYTHING, Slice())
    return not found.total and await app.services.store.identity_at(ADDRESS) is None


async def test_a_password_is_sent_unencrypted_only_to_this_machine(tmp_path: Path) -> None:
    async with open_remote("imap") as remote, an_installation(tmp_path, remote) as app:
        elsewhere = {**remote.arguments, "smtp_host": "192.0.2.7"}
        with pytest.raises(InvalidInput, match="smtp_security"):
            await ask(app, accounts.add_account, account_id="work", **elsewhere)
        assert await nothing_is_kept(app)

        account = await ask(app, accounts.add_account, account_id="work", **remote.arguments)
        old = replace(account, options={**account.options, "smtp_host": "192.0.2.7"})
        with pytest.raises(ProviderError, match="unencrypted"):
            app.services.providers.sender(old)


async def test_the_smtp_server_is_verified_before_an_account_is_stored(
    tmp_path: Path,
) -> None:
    def refuse(line: str) -> bytes:
        return f"535 5.7.8 not with {PASSWORD}".encode()

    async with (
        open_remote("imap") as remote,
        an_installation(tmp_path, remote) as app,
        relaying({"EHLO": EHLO, "AUTH": refuse}) as strict,
    ):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            nobody = taken.getsockname()[1]
        dead = {**remote.arguments, "smtp_port": nobody}
        with pytest.raises(ProviderError, match=f"SMTP at 127.0.0.1:{nobody}"):
            await ask(app, accounts.add_account, account_id="work", **dead)
        wrong = {**remote.arguments, "smtp_port": strict.port}
        with pytest.raises(ProviderAuthFailed) as refused:
            await ask(app, accounts.add_account, account_id="work", **wrong)

        assert PASSWORD not in str(refused.value)
        assert await nothing_is_kept(app)


async def test_verifying_an_account_includes_smtp_and_its_size_limit(
    tmp_path: Path,
) -> None:
    async with open_remote("imap") as remote, an_installation(tmp_path, remote) as app:
        async with relaying({"EHLO": EHLO}) as relay:
            small = {**remote.arguments, "smtp_port": relay.port}
            added = await ask(app, accounts.add_account, account_id="work", **small)
            await SyncedAccount(app, added).sync()
            told = await ask(app, accounts.get_capabilities, account_id="work")
            await ask(app, accounts.check_account, account_id="work")
        with pytest.raises(ProviderError, match="SMTP at"):
            await ask(app, accounts.check_account, account_id="work")

        assert 6 == told.max_attachment_size_mb


async def test_a_server_that_stops_announcing_a_limit_has_the_default_one(tmp_path: Path) -> None:
    async with (
        open_remote("imap") as remote,
        an_installation(tmp_path, remote) as app,
        relaying({"EHLO": EHLO}) as relay,
    ):
        small = {**remote.arguments, "smtp_port": relay.port}
        added = await ask(app, accounts.add_account, account_id="work", **small)
        relay.script = {"EHLO": b"250-relay.example\r\n250 AUTH PLAIN"}
        checked = await ask(app, accounts.check_account, account_id="work")
        await SyncedAccount(app, added).sync()
        told = await ask(app, accounts.get_capabilities, account_id="work")

        assert (25, 25) == (checked.max_attachment_size_mb, told.max_attachment_size_mb)


OUTGOING = {"to": ["bo@example.org"], "subject": "Hi", "body_text": "Hello."}


async def test_an_account_for_reading_neither_sends_nor_drafts(
    services: App, remote: RemoteMailbox
) -> None:
    given = {**remote.arguments, "scopes": ["read"]}
    account = await ask(services, accounts.add_account, account_id="work", **given)
    told = await ask(services, accounts.get_capabilities, account_id="work")

    for operation in (sending.send_message, drafts.create_draft):
        with pytest.raises(Conflict, match="was added for read only"):
            await ask(services, operation, **OUTGOING)
    with pytest.raises(Conflict, match="did not include sending"):
        services.services.providers.sender(account)
    assert told.can_send is False
    assert [] == remote.sent()


async def test_an_account_for_drafts_does_not_send_them(
    services: App, remote: RemoteMailbox
) -> None:
    given = {**remote.arguments, "scopes": ["draft"]}
    account = await ask(services, accounts.add_account, account_id="work", **given)
    draft = await ask(services, drafts.create_draft, **OUTGOING)

    with pytest.raises(Conflict, match="was added for read, draft only"):
        await ask(services, drafts.send_draft, draft_id=draft.id)
    assert ["read", "draft"] == account.options["scopes"]
    assert [] == remote.sent()


@pytest.mark.parametrize(
    ("scopes", "google", "microsoft"),
    [
        (["read"], [MODIFY], ["Mail.ReadWrite"]),
        (["read", "draft"], [MODIFY], ["Mail.ReadWrite"]),
        (["send"], [MODIFY, SEND], ["Mail.ReadWrite", "Mail.Send"]),
    ],
)
def test_a_sign_in_requests_only_the_needed_scopes(
    scopes: list[str], google: list[str], microsoft: list[str]
) -> None:
    there = oauth_client.google_client(
        "https://a.example", "https://b.example", "cid", None, scopes
    )
    here = oauth_client.microsoft_client("https://a.example", "cid", scopes)

    assert google == list(there.scopes)
    assert ["offline_access", "User.Read", *microsoft] == list(here.scopes)


async def test_account_names_are_unique_without_case(tmp_path: Path) -> None:
    async with open_remote("outlook") as remote, an_installation(tmp_path, remote) as app:
        added = await ask(app, accounts.add_account, account_id="Second", **remote.arguments)
        checked = await ask(app, accounts.check_account, account_id="Second")
        told = await ask(app, accounts.get_capabilities, account_id="SECOND")
        await ask(app, accounts.sync_account, account_id="Second")

        assert {"second"} == {added.id, checked.account_id, told.account_id}
        await ask(app, accounts.remove_account, account_id="Second")
        with pytest.raises(NotFound):
            await ask(app, accounts.check_account, account_id="second")


async def test_a_name_in_use_is_not_reported_as_configured(tmp_path: Path) -> None:
    async with open_remote("imap") as remote:
        async with an_installation(tmp_path, remote) as app:
            await ask(app, accounts.add_account, account_id="work", **remote.arguments)
        async with an_installation(tmp_path, remote) as app:
            with pytest.raises(Conflict, match="the account work already exists"):
                await ask(app, accounts.add_account, account_id="work", **remote.arguments)


async def test_a_failed_login_names_the_command_to_run(tmp_path: Path) -> None:
    async with open_remote("outlook") as remote, an_installation(tmp_path, remote) as app:
        await ask(app, accounts.add_account, account_id="work", **remote.arguments)
        app.services.providers.store_secret("work", {"access_token": "old"})

        with pytest.raises(ProviderAuthFailed, match="postroom account login work"):
            await ask(app, accounts.check_account, account_id="work")


async def test_an_alias_must_belong_to_its_owner(tmp_path: Path) -> None:
    async with open_remote("gmail") as remote, an_installation(tmp_path, remote) as app:
        await ask(app, accounts.add_account, account_id="work", **remote.arguments)
        made = [
            await ask(app, identities.create_alias, email=email)
            for email in ("alice+Sales@example.com", "sales@postroom.localhost")
        ]
        refused: list[MailError] = []
        for email in ("boss@example.com", "alicia+x@example.com", "alice+x@example.com.example"):
            with pytest.raises(InvalidInput, match=r"such as alice\+sales@example.com") as error:
                await ask(app, identities.create_alias, email=email)
            refused.append(error.value)

        assert ["alice+sales@example.com", "sales@postroom.localhost"] == [m.email for m in made]
        assert 3 == len(refused)


async def test_an_invalid_address_names_its_argument(tmp_path: Path) -> None:
    async with open_remote("gmail") as remote, an_installation(tmp_path, remote) as app:
        with pytest.raises(InvalidInput, match=r"^email: ") as error:
            await ask(app, identities.create_alias, email="not an address")

        assert "email" == error.value.details["field"]


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("postmaster@postroom.localhost", True),
        ('"Admin+x"@postroom.localhost', True),
        ("bob+x@postroom.localhost", True),
        ("mail@postroom.localhost", False),
        ("support@company.example", False),
    ],
)
async def test_a_login_cannot_claim_a_local_address(
    tmp_path: Path, address: str, is_refused: bool
) -> None:
    async with open_remote("imap-plain") as remote, an_installation(tmp_path, remote) as app:
        await new_inbox(app.services, "bob")
        given = {"user": remote.arguments["address"], **remote.arguments, "address": address}
        ctx = app.context(replace(a_caller("key_1"), is_local=True))
        asking = call(ctx, accounts.add_account, {"account_id": "work", **given})
        if is_refused:
            with pytest.raises(Forbidden):
                await asking
        else:
            await asking

        assert is_refused == (await app.services.store.account("work", EVERYTHING) is None)
