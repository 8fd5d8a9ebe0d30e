"""Which senders are new to an inbox, and which imitate a known contact."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.maintenance import reparse
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


async def security(services: Services, inbox: Inbox, sender: str, **given: Any) -> dict[str, Any]:
    added = await deliver(services, inbox, mail(sender=sender), **given)
    message = await services.store.message(added.message_id, EVERYTHING)
    assert message is not None
    return message.security


async def write_to(services: Services, inbox: Inbox, address: str) -> None:
    raw = mail(sender=inbox.address, to=address)
    await receive(services, Arrival(raw, inbox.id, "Sent", "outbound"))


async def test_a_sender_is_new_once(services: Services, inbox: Inbox) -> None:
    assert {"first_time_sender": True} == await security(services, inbox, "Ada <ada@bank.example>")
    assert {} == await security(services, inbox, "Ada L. <ADA@Bank.example>")
    assert {"first_time_sender": True} == await security(services, inbox, "bob@bank.example")


async def test_a_recipient_of_ours_is_not_new(services: Services, inbox: Inbox) -> None:
    await write_to(services, inbox, "Ada <ada@bank.example>")

    assert {} == await security(services, inbox, "ada@bank.example")


@pytest.mark.parametrize("hiding", ["ad\u200ba@bank.example", "ada@ba\u00adnk.example"])
async def test_an_address_with_invisible_characters_is_never_known(
    services: Services, inbox: Inbox, hiding: str
) -> None:
    await write_to(services, inbox, "Ada <ada@bank.example>")

    for _ in range(4):
        found = await security(services, inbox, hiding)
        assert found["first_time_sender"]
        assert "ada@bank.example" in found["lookalike"][0]
    assert {} == await security(services, inbox, "ada@bank.example")


async def test_mail_with_hidden_text_adds_no_known_contact(
    services: Services, inbox: Inbox
) -> None:
    for _ in range(4):
        await security(services, inbox, "ad\u200ba@bank.example")

    assert {"first_time_sender": True} == await security(services, inbox, "ada@bank.example")


async def test_known_contacts_are_per_inbox(services: Services, inbox: Inbox) -> None:
    await security(services, inbox, "ada@bank.example")
    other = await new_inbox(services, "other")

    assert {"first_time_sender": True} == await security(services, other, "ada@bank.example")


async def test_a_sender_that_imitates_a_contact_is_flagged(
    services: Services, inbox: Inbox
) -> None:
    await write_to(services, inbox, "ada@paypal.com")
    for _ in range(3):
        await security(services, inbox, "news@mail.wikipedia.org")

    found = {
        sender: (await security(services, inbox, sender)).get("imitates")
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


async def test_a_sender_of_one_mail_is_not_imitated(services: Services, inbox: Inbox) -> None:
    await security(services, inbox, "ada@paypal.com")

    assert {"first_time_sender": True} == await security(services, inbox, "x@paypa1.com")


async def test_junk_adds_no_known_contact(services: Services, inbox: Inbox) -> None:
    assert {} == await security(services, inbox, "x@evil.example", mailbox="Junk")

    assert {"first_time_sender": True} == await security(services, inbox, "x@evil.example")


async def test_reparsing_keeps_the_findings_of_the_arrival(
    services: Services, inbox: Inbox
) -> None:
    await write_to(services, inbox, "ada@paypal.com")
    added = await deliver(services, inbox, mail(sender="x@paypa1.com"))
    await security(services, inbox, "x@paypa1.com")

    assert 3 == sum([count async for count in reparse(services, version=99)])

    message = await services.store.message(added.message_id, EVERYTHING)
    assert message is not None
    assert {"first_time_sender": True, "imitates": "paypal.com"} == message.security


async def test_contacts_are_removed_with_their_inbox(services: Services, inbox: Inbox) -> None:
    await write_to(services, inbox, "ada@paypal.com")
    await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)
    assert () == await services.store.problems()
    again = await new_inbox(services)

    assert {"first_time_sender": True} == await security(services, again, "ada@paypal.com")
