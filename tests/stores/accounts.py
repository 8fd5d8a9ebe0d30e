"""Accounts at providers, and mail that comes from them."""

from __future__ import annotations

from dataclasses import replace

from postroom.model.account import Account
from postroom.model.remote import RemoteMessage, RemoteRef
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away


async def new_account(house: House, name: str = "work", provider: str = "imap") -> Account:
    account = Account(
        name,
        provider,  # type: ignore[arg-type]
        f"{name}@example.com",
        house.new_id("inb"),
        "new",
        "",
        0,
        None,
        None,
        house.clock().replace(microsecond=0),
        {"host": "imap.example.com"},
    )
    await house.store.add_account(account, "Ana")
    return account


async def arrive(
    house: House, account: Account, raw: bytes, ref: RemoteRef, mailbox: str = "Inbox"
) -> str:
    """Let a mail come from the provider; the id of the message."""
    remote = RemoteMessage(ref, (mailbox,), (), ())
    (parsed,) = await house.parser.parse([raw])
    async with put_away(house, [(Arrival(raw, account.inbox_id), parsed)]) as (message,):
        pair = (replace(message, mailboxes=(mailbox,)), remote)
        (added,) = await house.store.add_remote(account.id, [pair])
    return added.message_id


ONE, TWO = RemoteRef("1/INBOX", "1"), RemoteRef("1/Archive", "7")
