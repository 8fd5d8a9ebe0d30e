"""Who is new to an inbox, and whom a stranger could be taken for."""

from __future__ import annotations

from typing import Any

from postroom.model.inbox import Inbox
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, receive
from postroom.pipeline.reparsing import reparse
from tests.mails import deliver, mail, new_inbox


async def security(house: House, inbox: Inbox, sender: str, **given: Any) -> dict[str, Any]:
    added = await deliver(house, inbox, mail(sender=sender), **given)
    message = await house.store.message(added.message_id, None)
    assert message is not None
    return message.security


async def write_to(house: House, inbox: Inbox, address: str) -> None:
    raw = mail(sender=inbox.address, to=address)
    await receive(house, Arrival(raw, inbox.id, "Sent", "outbound"))


async def test_a_sender_is_new_once(house: House, inbox: Inbox) -> None:
    assert {"first_time_sender": True} == await security(house, inbox, "Ada <ada@bank.example>")
    assert {} == await security(house, inbox, "Ada L. <ADA@Bank.example>")
    assert {"first_time_sender": True} == await security(house, inbox, "bob@bank.example")


async def test_whom_we_wrote_to_is_not_new(house: House, inbox: Inbox) -> None:
    await write_to(house, inbox, "Ada <ada@bank.example>")

    assert {} == await security(house, inbox, "ada@bank.example")


async def test_an_inbox_knows_its_own_people_only(house: House, inbox: Inbox) -> None:
    await security(house, inbox, "ada@bank.example")
    other = await new_inbox(house, "other")

    assert {"first_time_sender": True} == await security(house, other, "ada@bank.example")


async def test_a_stranger_who_imitates_a_correspondent_is_flagged(
    house: House, inbox: Inbox
) -> None:
    await write_to(house, inbox, "ada@paypal.com")
    for _ in range(3):
        await security(house, inbox, "news@mail.wikipedia.org")

    found = {
        sender: (await security(house, inbox, sender)).get("imitates")
        for sender in ("x@paypa1.com", "x@secure-paypal.example", "x@wikipedla.org", "x@visa.com",
                       "new@paypal.com", "x@postroorn.localhost")
    }  # fmt: skip

    assert {
        "x@paypa1.com": "paypal.com",
        "x@secure-paypal.example": "paypal.com",
        "x@wikipedla.org": "wikipedia.org",
        "x@visa.com": None,
        "new@paypal.com": None,
        "x@postroorn.localhost": "postroom.localhost",
    } == found


async def test_who_wrote_once_is_imitated_by_nobody(house: House, inbox: Inbox) -> None:
    await security(house, inbox, "ada@paypal.com")

    assert {"first_time_sender": True} == await security(house, inbox, "x@paypa1.com")


async def test_junk_makes_nobody_known(house: House, inbox: Inbox) -> None:
    assert {} == await security(house, inbox, "x@evil.example", mailbox="Junk")

    assert {"first_time_sender": True} == await security(house, inbox, "x@evil.example")


async def test_reading_again_keeps_what_the_arrival_knew(house: House, inbox: Inbox) -> None:
    await write_to(house, inbox, "ada@paypal.com")
    added = await deliver(house, inbox, mail(sender="x@paypa1.com"))
    await security(house, inbox, "x@paypa1.com")

    assert 3 == sum([count async for count in reparse(house, version=99)])

    message = await house.store.message(added.message_id, None)
    assert message is not None
    assert {"first_time_sender": True, "imitates": "paypal.com"} == message.security


async def test_an_inbox_that_is_removed_is_forgotten(house: House, inbox: Inbox) -> None:
    await write_to(house, inbox, "ada@paypal.com")
    await house.store.remove_inbox(inbox.id, None, force=True)
    assert () == await house.store.problems()
    again = await new_inbox(house)

    assert {"first_time_sender": True} == await security(house, again, "ada@paypal.com")
