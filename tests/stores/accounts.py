"""Accounts at providers, and mail from them."""

from __future__ import annotations

from dataclasses import replace

from postroom.model.account import Account, RemoteMessage, RemoteRef
from postroom.pipeline.ingest import Arrival
from postroom.pipeline.services import Services
from tests.mails import prepare


async def new_account(services: Services, name: str = "work", provider: str = "imap") -> Account:
    account = Account(
        name,
        provider,  # type: ignore[arg-type]
        f"{name}@example.com",
        services.new_id("inb"),
        "new",
        "",
        0,
        None,
        None,
        services.clock().replace(microsecond=0),
        {"host": "imap.example.com"},
    )
    await services.store.add_account(account, "Ana")
    return account


async def arrive(
    services: Services, account: Account, raw: bytes, ref: RemoteRef, mailbox: str = "Inbox"
) -> str:
    """Store a mail from the provider; returns the id of the message."""
    remote = RemoteMessage(ref, (mailbox,), (), ())
    message = await prepare(services, Arrival(raw, account.inbox_id))
    pair = (replace(message, mailboxes=(mailbox,)), remote)
    (added,) = await services.store.add_remote(account.id, [pair])
    return added.message_id


ONE, TWO = RemoteRef("1/INBOX", "1"), RemoteRef("1/Archive", "7")
