"""Accounts in the store: their inbox, their addresses, and their problems."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.errors import Conflict, NotFound
from postroom.model.account import Identity
from postroom.model.mail.message import Recipient
from postroom.model.mail.storage import Change
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.sql.outbox.claims import PER_ACCOUNT
from tests.mails import mail, new_inbox
from tests.stores.accounts import ONE, TWO, arrive, new_account
from tests.stores.sends import a_send


async def test_an_account_has_one_inbox_and_one_name(services: Services) -> None:
    account = await new_account(services)

    found = await services.store.inbox(account.inbox_id, EVERYTHING)
    assert found is not None
    assert ("work@example.com", "work") == (found.address, found.account_id)
    with pytest.raises(Conflict):
        await new_account(services)


async def test_removing_an_account_removes_its_data(services: Services) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    await services.store.change_messages([message_id], Change(flags=("seen",)), EVERYTHING)
    await services.store.remove_inbox(account.inbox_id, EVERYTHING, force=True)

    assert await services.store.account(account.id, EVERYTHING) is None
    with pytest.raises(NotFound):
        await services.store.unknown_refs(account.id, [ONE])
    assert 0 == (await services.store.accounts(EVERYTHING, Slice())).total
    assert not await services.store.problems()


async def test_an_alias_receives_mail_and_is_unique(services: Services) -> None:
    inbox = await new_inbox(services)
    alias = Identity("idn_1", "sales@postroom.localhost", "Sales", "", inbox.id, None, False)
    await services.store.add_identity(alias)

    found = await services.store.inboxes_at(["SALES@postroom.localhost"])
    assert inbox.id == found["sales@postroom.localhost"].id
    with pytest.raises(Conflict):
        await new_inbox(services, "sales")
    changed = await services.store.change_identity(
        "idn_1", EVERYTHING, name=None, signature=None, is_default=True
    )
    assert changed is not None
    default = await services.store.default_identity(inbox.id)
    assert default is not None
    assert "idn_1" == default.id


async def test_a_hanging_account_does_not_block_others(services: Services) -> None:
    senders = {}
    for name in ("slow", "quick"):
        account = await new_account(services, name)
        inbox = await services.store.inbox(account.inbox_id, EVERYTHING)
        assert inbox is not None
        for number in range(PER_ACCOUNT + 1):
            send = await a_send(services, inbox, payload=f"{name} {number}".encode())
            queued = (Recipient("x@example.com", "queued"),)
            its = replace(send.message, recipients=queued)
            sent = await services.store.record_send(replace(send, message=its))
            senders[sent.message_id] = name
    now = services.clock() + timedelta(days=99)
    lease = {"now": now, "until": now + timedelta(minutes=1), "max_per_domain": 99}
    few = {**lease, "free": {"account": PER_ACCOUNT + 1}}
    first = (await services.store.claim_mail("worker", **few)).jobs
    then = (await services.store.claim_mail("worker", **few, active=first)).jobs

    assert ["slow"] * PER_ACCOUNT == [senders[job.message_id] for job in first]
    assert ["quick"] * PER_ACCOUNT == [senders[job.message_id] for job in then]


async def test_addresses_are_updated_from_the_provider(services: Services) -> None:
    inbox = (await new_account(services)).inbox_id

    def there(key: str, name: str, signature: str = "") -> Identity:
        return Identity(f"idn_{key}", f"{key}@example.com", name, signature, inbox, "work", False)

    async def here() -> dict[str, tuple[str, str, bool]]:
        rows = (await services.store.identities(EVERYTHING, inbox, Slice())).rows
        return {
            row.email.partition("@")[0]: (row.name, row.signature, row.is_default) for row in rows
        }

    await services.store.add_identity(there("alias", "Ours"))
    await services.store.replace_identities(
        inbox, [there("sales", "Sales", "v1"), there("help", "Help")]
    )
    changed = {"name": "Help desk", "signature": None, "is_default": True}
    await services.store.change_identity("idn_help", EVERYTHING, **changed)
    await services.store.replace_identities(
        inbox, [there("sales", "Sales team", "v2"), there("help", "Support", "v2")]
    )
    found = await here()
    assert ("Sales team", "v2", False) == found["sales"]
    assert ("Help desk", "v2", True) == found["help"]

    await services.store.replace_identities(inbox, [there("sales", "Sales team", "v2")])
    assert {"work", "alias", "sales"} == set(await here())
    assert (await here())["work"][2]
    assert await services.store.identity_at("help@example.com") is None
    assert not await services.store.problems()


async def test_an_installation_with_accounts_is_verified(services: Services) -> None:
    account = await new_account(services)
    first = await arrive(services, account, mail(), ONE)
    second = await arrive(services, account, mail("Other"), TWO, "Archive")
    await services.store.change_messages([first], Change(flags=("seen",)), EVERYTHING)
    await services.store.remove_message(second, EVERYTHING)

    assert () == await services.store.problems()
    await services.store.remove_inbox(account.inbox_id, EVERYTHING, force=True)
    assert () == await services.store.problems()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE accounts SET inbox = 999", "account work has no inbox"),
        ("DELETE FROM accounts", "belongs to an account that does not exist"),
        ("UPDATE remote_messages SET account = 999", "belongs to no account"),
        ("UPDATE remote_messages SET message = 999", "refers to message number 999"),
        ("UPDATE pushes SET account = 999", "belongs to an account that does not exist"),
        ("UPDATE pushes SET message = 999", "refers to a message that does not exist"),
        ("UPDATE identities SET inbox = 999", "the address work@example.com belongs to no inbox"),
        ("DELETE FROM identities", "has no address to send from"),
    ],
)
async def test_problems_of_an_account_are_found(
    services: Services, damage: str, found: str
) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    await services.store.change_messages([message_id], Change(flags=("seen",)), EVERYTHING)
    engine = services.store.engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: tx.run(damage))

    assert any(found in problem for problem in await services.store.problems())
