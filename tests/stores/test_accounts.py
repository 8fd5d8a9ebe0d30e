"""Accounts in the store: their inbox, their addresses, and what is amiss with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.errors import Conflict, NotFound
from postroom.model.account import Identity
from postroom.model.message import Recipient
from postroom.model.page import Slice
from postroom.model.stored import Change
from postroom.pipeline.house import House
from postroom.store.sql.outbox_claims import PER_ACCOUNT
from tests.mails import mail, new_inbox
from tests.stores.accounts import ONE, TWO, arrive, new_account
from tests.stores.sends import a_send


async def test_an_account_has_one_inbox_and_one_name(house: House) -> None:
    account = await new_account(house)

    found = await house.store.inbox(account.inbox_id, None)
    assert found is not None
    assert ("work@example.com", "work") == (found.address, found.account_id)
    with pytest.raises(Conflict):
        await new_account(house)


async def test_an_account_goes_with_everything_of_it(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.change_messages([message_id], Change(flags=("seen",)), None)
    await house.store.remove_inbox(account.inbox_id, None, force=True)

    assert await house.store.account(account.id, None) is None
    with pytest.raises(NotFound):
        await house.store.unknown_refs(account.id, [ONE])
    assert 0 == (await house.store.accounts(None, Slice())).total
    assert not await house.store.problems()


async def test_an_alias_receives_and_is_taken(house: House) -> None:
    inbox = await new_inbox(house)
    alias = Identity("idn_1", "sales@postroom.localhost", "Sales", "", inbox.id, None, False)
    await house.store.add_identity(alias)

    found = await house.store.inboxes_at(["SALES@postroom.localhost"])
    assert inbox.id == found["sales@postroom.localhost"].id
    with pytest.raises(Conflict):
        await new_inbox(house, "sales")
    changed = await house.store.change_identity(
        "idn_1", None, name=None, signature=None, is_default=True
    )
    assert changed is not None
    default = await house.store.default_identity(inbox.id)
    assert default is not None
    assert "idn_1" == default.id


async def test_an_account_that_hangs_leaves_places_to_others(house: House) -> None:
    senders = {}
    for name in ("slow", "quick"):
        account = await new_account(house, name)
        inbox = await house.store.inbox(account.inbox_id, None)
        assert inbox is not None
        for number in range(PER_ACCOUNT + 1):
            send = await a_send(house, inbox, payload=f"{name} {number}".encode())
            queued = (Recipient("x@example.com", "queued"),)
            its = replace(send.message, recipients=queued)
            sent = await house.store.record_send(replace(send, message=its))
            senders[sent.message_id] = name
    now = house.clock() + timedelta(days=99)
    lease = {"now": now, "until": now + timedelta(minutes=1), "most_per_domain": 99}
    few = {**lease, "free": {"account": PER_ACCOUNT + 1}}
    first = (await house.store.claim_mail("worker", **few)).jobs
    then = (await house.store.claim_mail("worker", **few, active=first)).jobs

    assert ["slow"] * PER_ACCOUNT == [senders[job.message_id] for job in first]
    assert ["quick"] * PER_ACCOUNT == [senders[job.message_id] for job in then]


async def test_addresses_follow_what_their_provider_tells_of_them(house: House) -> None:
    inbox = (await new_account(house)).inbox_id

    def there(key: str, name: str, signature: str = "") -> Identity:
        return Identity(f"idn_{key}", f"{key}@example.com", name, signature, inbox, "work", False)

    async def here() -> dict[str, tuple[str, str, bool]]:
        rows = (await house.store.identities(None, inbox, Slice())).rows
        return {
            row.email.partition("@")[0]: (row.name, row.signature, row.is_default) for row in rows
        }

    await house.store.add_identity(there("alias", "Ours"))
    await house.store.keep_identities(inbox, [there("sales", "Sales", "v1"), there("help", "Help")])
    changed = {"name": "Help desk", "signature": None, "is_default": True}
    await house.store.change_identity("idn_help", None, **changed)
    await house.store.keep_identities(
        inbox, [there("sales", "Sales team", "v2"), there("help", "Support", "v2")]
    )
    found = await here()
    assert ("Sales team", "v2", False) == found["sales"]
    assert ("Help desk", "v2", True) == found["help"]

    await house.store.keep_identities(inbox, [there("sales", "Sales team", "v2")])
    assert {"work", "alias", "sales"} == set(await here())
    assert (await here())["work"][2]
    assert await house.store.identity_at("help@example.com") is None
    assert not await house.store.problems()


async def test_a_house_with_accounts_is_found_in_order(house: House) -> None:
    account = await new_account(house)
    first = await arrive(house, account, mail(), ONE)
    second = await arrive(house, account, mail("Other"), TWO, "Archive")
    await house.store.change_messages([first], Change(flags=("seen",)), None)
    await house.store.remove_message(second, None)

    assert () == await house.store.problems()
    await house.store.remove_inbox(account.inbox_id, None, force=True)
    assert () == await house.store.problems()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE accounts SET inbox = 999", "account work feeds no inbox"),
        ("DELETE FROM accounts", "is fed by an account that does not exist"),
        ("UPDATE remotes SET account = 999", "belongs to no account"),
        ("UPDATE remotes SET message = 999", "holds message number 999"),
        ("UPDATE pushes SET account = 999", "waits for an account that does not exist"),
        ("UPDATE pushes SET message = 999", "and its message does not exist"),
        ("UPDATE identities SET inbox = 999", "the address work@example.com belongs to no inbox"),
        ("DELETE FROM identities", "has no address to send from"),
    ],
)
async def test_what_is_amiss_with_an_account_is_found(
    house: House, damage: str, found: str
) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.change_messages([message_id], Change(flags=("seen",)), None)
    engine = house.store._engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: tx.run(damage))

    assert any(found in problem for problem in await house.store.problems())
