"""Mail of an account is sent with the current account and login."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.account import Account
from postroom.model.key import OWNER
from postroom.model.mail.sending import Envelope, Outcome
from postroom.operations.accounts import add_account, remove_account
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline.outbox import Outbox
from postroom.pipeline.routing import AccountSenders
from postroom.ports.provider import Accepted, Providers, Sender
from tests.providers.accounts.remote_mailboxes import GREETING, ImapRemote, open_remote
from tests.servers.relay import Relay, relaying


@dataclass
class SendingAccount:
    """An account at a provider, with an outbox worker."""

    app: App
    remote: ImapRemote

    async def add(self, **changes: Any) -> str:
        given = {"account_id": "work", **self.remote.arguments, **changes}
        return (await call(self.app.context(OWNER), add_account, given)).inbox_id

    async def send(self, inbox_id: str, subject: str = "Out") -> str:
        outgoing_mail = {
            "inbox_id": inbox_id,
            "to": ["bo@b.org"],
            "subject": subject,
            "body_text": "Hi",
        }
        sent = await call(self.app.context(OWNER), send_message, {**outgoing_mail, "wait_s": 20})
        return sent.status


@asynccontextmanager
async def sending_account(folder: Path) -> AsyncIterator[SendingAccount]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    async with open_remote("imap") as remote, open_app(read_settings(values).settings) as app:
        assert isinstance(remote, ImapRemote)
        work = asyncio.create_task(Outbox(app.services, None).run())
        try:
            yield SendingAccount(app, remote)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


def passwords(relay: Relay) -> list[bytes]:
    """The passwords of the logins, in order."""
    lines = [line for line in relay.lines if line.startswith("AUTH PLAIN")]
    return [b64decode(line.split()[-1]).split(b"\0")[-1] for line in lines]


async def test_a_worker_uses_the_new_login_at_once(tmp_path: Path) -> None:
    async with sending_account(tmp_path / "data") as here:
        inbox_id = await here.add()
        before = await here.send(inbox_id)
        new = {"password": here.remote.arguments["password"], "smtp_password": "new one"}
        here.app.services.providers.store_secret("work", new)
        after = await here.send(inbox_id, "Again")

    logins = passwords(here.remote.relay)
    assert ("sent", "sent", b"new one") == (before, after, logins[-1])


async def test_a_new_account_of_the_same_name_uses_its_own_server(tmp_path: Path) -> None:
    async with relaying({"EHLO": GREETING}) as second, sending_account(tmp_path / "data") as here:
        assert "sent" == await here.send(await here.add())
        await call(here.app.context(OWNER), remove_account, {"account_id": "work"})
        assert "sent" == await here.send(await here.add(smtp_port=second.port))

    assert (1, 1) == (len(here.remote.relay.mails), len(second.mails))


async def test_a_sender_in_use_is_closed_after_its_mail(tmp_path: Path) -> None:
    async with sending_account(tmp_path / "data") as here:
        await here.add()
        providers = RecordingProviders(here.app.services.providers)
        senders = AccountSenders(replace(here.app.services, providers=providers))
        async with senders.of("work") as old:
            here.app.services.providers.store_secret("work", {"password": "other"})
            async with senders.of("work") as new:
                assert new is not old
            during = [sender.is_closed for sender in providers.made]
        after = [sender.is_closed for sender in providers.made]
        await senders.close()

    assert ([False, False], [True, False]) == (during, after)
    assert all(sender.is_closed for sender in providers.made)


class RecordingProviders(Providers):
    """Real providers whose senders record whether they are closed."""

    def __init__(self, real: Providers) -> None:
        self.login_fingerprint = real.login_fingerprint  # type: ignore[method-assign]
        self.made: list[RejectingSender] = []

    def sender(self, account: Account) -> Sender:
        self.made.append(RejectingSender())
        return self.made[-1]


class RejectingSender:
    """A sender that rejects every mail."""

    is_closed = False

    async def transmit(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        return {}

    async def close(self) -> None:
        self.is_closed = True
