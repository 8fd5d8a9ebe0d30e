"""Which caller may have which address is decided in the transaction that assigns it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from postroom.errors import Conflict, Forbidden
from postroom.model.account import Identity, RateLimits, RemoteIdentity
from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, Inbox
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from postroom.pipeline.sync import SyncPass
from tests.mails import new_inbox
from tests.stores.accounts import new_account

OTHERS = AddressRights()
LIMITED = AddressRights(other_addresses=False)


def alias(services: Services, inbox: Inbox, local: str) -> Identity:
    email = local if "@" in local[1:] else f"{local}@postroom.localhost"
    return Identity(services.new_id("idn"), email, "", "", inbox.id, None, False)


async def emails_of(services: Services, inbox: Inbox) -> list[str]:
    return [
        one.email for one in (await services.store.identities(EVERYTHING, inbox.id, Slice())).rows
    ]


@pytest.mark.parametrize("local", ["bob+x", "bob+", "bob+a+b", "sales+x"])
async def test_only_the_owner_can_assign_tags_of_another_inbox(
    services: Services, local: str
) -> None:
    mine, bob = await new_inbox(services, "mine"), await new_inbox(services, "bob")
    await services.store.add_identity(alias(services, bob, "sales"))

    for rights in (OTHERS, LIMITED):
        with pytest.raises(Forbidden):
            await services.store.add_identity(alias(services, mine, local), rights)
        with pytest.raises(Forbidden):
            await services.store.check_alias(f"{local}@postroom.localhost", mine.id, rights)
    new = Inbox("inb_new", f"{local}@postroom.localhost", "", None, services.clock())
    with pytest.raises(Forbidden):
        await services.store.add_inbox(new, client_id=None, payload=b"", rights=OTHERS)
    await services.store.add_identity(alias(services, mine, local), OWNERS_RIGHTS)

    assert ["mine@postroom.localhost", f"{local}@postroom.localhost"] == await emails_of(
        services, mine
    )


@pytest.mark.parametrize("rights", [OTHERS, LIMITED, OWNERS_RIGHTS])
async def test_an_inbox_may_have_the_tags_of_every_address_of_its_own(
    services: Services, rights: AddressRights
) -> None:
    inbox = await new_inbox(services, "postmaster")
    await services.store.add_identity(alias(services, inbox, "bob"))
    for local in ("bob+x", "postmaster+x"):
        await services.store.add_identity(alias(services, inbox, local), rights)

    assert 4 == len(await emails_of(services, inbox))


async def test_a_tag_reserves_its_base_address(services: Services) -> None:
    mine, other = await new_inbox(services, "mine"), await new_inbox(services, "other")
    await services.store.add_identity(alias(services, mine, "bob+x"), OTHERS)
    await services.store.add_identity(
        alias(services, mine, "carl+x@elsewhere.example"), OWNERS_RIGHTS
    )
    base = Inbox("inb_bob", "bob@postroom.localhost", "", None, services.clock())

    with pytest.raises(Forbidden, match=r"bob\+x@"):
        await services.store.add_identity(alias(services, other, "bob"), OTHERS)
    with pytest.raises(Forbidden, match=r"bob\+x@"):
        await services.store.add_inbox(base, client_id=None, payload=b"", rights=OTHERS)
    await services.store.add_identity(alias(services, other, "carl"), OTHERS)
    await services.store.add_identity(alias(services, mine, "bob"), OTHERS)


async def test_concurrent_claims_of_a_base_and_a_tag_go_to_one_inbox(
    services: Services,
) -> None:
    one, two = await new_inbox(services, "one"), await new_inbox(services, "two")
    wanted = [alias(services, one, "bob"), *(alias(services, two, f"bob+{n}") for n in range(5))]

    done = await asyncio.gather(
        *(services.store.add_identity(identity, OTHERS) for identity in wanted),
        return_exceptions=True,
    )

    owners = {identity.inbox_id for identity in done if isinstance(identity, Identity)}
    assert 1 == len(owners)
    assert all(isinstance(refused, (Identity, Forbidden)) for refused in done)


async def test_an_existing_inbox_is_found_by_any_spelling_of_its_address(
    services: Services,
) -> None:
    inbox = Inbox("inb_1", "support@postroom.localhost", "", None, services.clock())
    await services.store.add_inbox(inbox, client_id="agent-7", payload=b"x")

    again = await services.store.add_inbox(inbox, client_id="agent-7", payload=b"x", rights=OTHERS)

    assert inbox.id == again.id
    with pytest.raises(Forbidden):
        await services.store.add_inbox(inbox, client_id=None, payload=b"x", rights=OTHERS)


async def test_a_provider_cannot_assign_local_addresses(services: Services) -> None:
    mine = await new_inbox(services, "mine")
    await new_inbox(services, "bob")
    told = [
        alias(services, mine, local)
        for local in (
            "postmaster",
            "admin+x",
            "bob+x",
            "bob",
            "ordinary",
            "mine+x",
            "support@shop.example",
        )
    ]
    await services.store.replace_identities(mine.id, told, served=("postroom.localhost",))

    assert [
        "mine@postroom.localhost",
        "ordinary@postroom.localhost",
        "mine+x@postroom.localhost",
        "support@shop.example",
    ] == await emails_of(services, mine)


async def test_an_address_from_a_provider_stays_while_the_provider_lists_it(
    services: Services,
) -> None:
    mine = await new_inbox(services, "mine")
    told = [alias(services, mine, "postmaster")]
    await services.store.replace_identities(mine.id, told)
    served = ("postroom.localhost",)

    await services.store.replace_identities(mine.id, told, served=served)
    kept = await emails_of(services, mine)
    await services.store.replace_identities(mine.id, [alias(services, mine, "x")], served=served)

    assert "postmaster@postroom.localhost" in kept
    assert "postmaster@postroom.localhost" not in await emails_of(services, mine)


async def test_addresses_that_need_the_owner_today_are_reported(services: Services) -> None:
    mine, bob = await new_inbox(services, "mine"), await new_inbox(services, "bob")
    for local in ("postmaster", "admin+x", "bob+x", "mine+x", "bo+x", '"abuse"', "postmasters"):
        await services.store.add_identity(alias(services, mine, local))
    await services.store.add_identity(alias(services, bob, "postmaster+own"))

    found = await services.store.questionable_addresses()

    assert {
        ("admin+x@postroom.localhost", mine.id, None),
        ("postmaster@postroom.localhost", mine.id, None),
        ('"abuse"@postroom.localhost', mine.id, None),
        ("bob+x@postroom.localhost", mine.id, "bob@postroom.localhost"),
        ("postmaster+own@postroom.localhost", bob.id, "postmaster@postroom.localhost"),
    } == {(one.email, one.inbox_id, one.belongs_to) for one in found}
    assert 5 == len(found)


async def test_an_alias_can_be_taken_away_and_the_address_of_an_inbox_cannot(
    services: Services,
) -> None:
    inbox, other = await new_inbox(services, "mine"), await new_inbox(services, "other")
    made = await services.store.add_identity(alias(services, inbox, "bob"))
    await services.store.change_identity(
        made.id, EVERYTHING, name=None, signature=None, is_default=True
    )
    first = (await services.store.identities(EVERYTHING, inbox.id, Slice())).rows[0]

    assert not await services.store.remove_identity(made.id, only(other.id))
    assert await services.store.remove_identity(made.id, only(inbox.id))
    assert not await services.store.remove_identity(made.id, EVERYTHING)
    with pytest.raises(Conflict, match="delete the inbox"):
        await services.store.remove_identity(first.id, EVERYTHING)
    default = await services.store.default_identity(inbox.id)
    assert default is not None
    assert first.id == default.id


@dataclass(frozen=True)
class StaticProvider:
    """A provider that lists these addresses."""

    emails: tuple[str, ...]
    capabilities: RateLimits = RateLimits(1, 1)

    async def check(self) -> None: ...

    async def identities(self) -> list[RemoteIdentity]:
        return [RemoteIdentity(email, "", "") for email in self.emails]


async def test_a_sync_claims_no_foreign_address_in_any_spelling(
    services: Services,
) -> None:
    services = replace(services, domains=("postroom.localhost",))
    await new_inbox(services, "bob")
    account = await new_account(services)
    told = ('"bob"', "Bob", "bob+x", '"bob+x"', '"Postmaster"', "abuse+x", "fine")
    provider = StaticProvider(
        (*(f"{local}@postroom.localhost" for local in told), "info@shop.example")
    )

    await SyncPass(services, account, cast(Any, provider)).begin()

    found = (await services.store.identities(EVERYTHING, account.inbox_id, Slice())).rows
    assert ["work@example.com", "fine@postroom.localhost", "info@shop.example"] == [
        one.email for one in found
    ]
