"""Sessions of the web pages: how they start and end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom.calls import authentication
from postroom.calls.authentication import LINK_LIFETIME, SESSION_LIFETIME, SignedIn, hash_secret
from postroom.errors import Forbidden, Unauthenticated
from postroom.model.event import AuditQuery
from postroom.model.key import ALL_SCOPES, OWNER, Caller, Key, Scope
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from tests.pipeline.clock import Clock
from tests.stores.sends import NOW

SECRET = "pk_" + "s" * 43


@pytest.fixture
def clock(services: Services) -> Clock:
    clock = Clock()
    object.__setattr__(services, "clock", clock)
    return clock


async def key(services: Services, *scopes: str, key_id: str = "key_1", secret: str = SECRET) -> str:
    """A key with these scopes, limited to an inbox."""
    made = Key(key_id, "crm", scopes, only("inb_1"), EVERYTHING, EVERYTHING, NOW, None)
    await services.store.add_key(made, hash_secret(secret))
    return secret


async def by_link(services: Services) -> SignedIn:
    link = await authentication.new_sign_in_link(services)
    return await whose(services, await authentication.sign_in_with_link(services, link, "Firefox"))


async def by_key(services: Services, secret: str) -> SignedIn:
    return await whose(services, await authentication.sign_in_with_key(services, secret, "Firefox"))


async def whose(services: Services, secret: str) -> SignedIn:
    found = await authentication.signed_in(services, secret)
    assert found is not None
    return found


async def test_a_link_signs_the_owner_in_with_approval(services: Services, clock: Clock) -> None:
    signed_in = await by_link(services)

    assert ALL_SCOPES | {Scope.APPROVE} == signed_in.caller.scopes
    assert (True, False) == (signed_in.caller.is_owner, signed_in.caller.is_local)
    assert clock() + SESSION_LIFETIME == signed_in.session.expires_at


async def test_a_link_signs_in_once_even_concurrently(services: Services, clock: Clock) -> None:
    link = await authentication.new_sign_in_link(services)
    uses = [authentication.sign_in_with_link(services, link, "") for _ in range(5)]

    outcomes = await asyncio.gather(*uses, return_exceptions=True)

    assert 1 == sum(isinstance(outcome, str) for outcome in outcomes)
    assert 4 == sum(isinstance(outcome, Unauthenticated) for outcome in outcomes)
    assert 1 == len(await services.store.web_sessions(clock()))


async def test_a_sign_in_link_expires_after_ten_minutes(services: Services, clock: Clock) -> None:
    late, in_time = [await authentication.new_sign_in_link(services) for _ in range(2)]

    clock.now += LINK_LIFETIME - timedelta(seconds=1)
    assert await authentication.sign_in_with_link(services, in_time, "")
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unauthenticated, match="postroom web"):
        await authentication.sign_in_with_link(services, late, "")


async def test_a_session_of_a_key_has_the_rights_of_this_key(
    services: Services, clock: Clock
) -> None:
    signed_in = await by_key(services, await key(services, "read", "send"))

    assert {Scope.READ, Scope.SEND} == signed_in.caller.scopes
    assert not signed_in.caller.inboxes.sees("inb_2")


async def test_a_session_of_the_owners_key_does_not_approve(
    services: Services, clock: Clock
) -> None:
    secret = await key(services, *ALL_SCOPES, key_id=OWNER.key_id)

    assert Scope.APPROVE not in (await by_key(services, secret)).caller.scopes


@pytest.mark.parametrize("scopes", [("write", "send"), ("admin",), ()])
async def test_a_key_without_read_and_approve_gets_no_session(
    services: Services, clock: Clock, scopes: tuple[str, ...]
) -> None:
    secret = await key(services, *scopes)

    with pytest.raises(Forbidden, match="scope read"):
        await authentication.sign_in_with_key(services, secret, "")


async def test_a_session_ends_after_twelve_hours(services: Services, clock: Clock) -> None:
    secret = await authentication.sign_in_with_key(services, await key(services, "read"), "")

    clock.now += SESSION_LIFETIME - timedelta(seconds=1)
    assert await authentication.signed_in(services, secret) is not None
    clock.now += timedelta(seconds=1)
    assert await authentication.signed_in(services, secret) is None


@pytest.mark.parametrize("change", ["revoked", "replaced"])
async def test_a_session_ends_with_its_key(services: Services, clock: Clock, change: str) -> None:
    secret = await authentication.sign_in_with_key(services, await key(services, "read"), "")
    other = await by_link(services)

    if change == "revoked":
        await services.store.remove_key("key_1")
    else:
        await key(services, "read", secret="pk_" + "t" * 43)

    assert await authentication.signed_in(services, secret) is None
    assert (other.session.id,) == tuple(s.id for s in await services.store.web_sessions(clock()))


async def test_the_owner_ends_all_sessions_and_a_key_its_own(
    services: Services, clock: Clock
) -> None:
    owner = await by_link(services)
    mine, other = await key(services, "read"), "pk_" + "u" * 43
    await key(services, "read", key_id="key_2", secret=other)
    first, second, third = [await by_key(services, each) for each in (mine, mine, other)]

    def listed(caller: Caller) -> object:
        return authentication.sessions_of(services, caller)

    assert {first.session.id, second.session.id} == {s.id for s in await listed(first.caller)}
    assert 0 == await authentication.sign_out(services, first.caller, third.session.id)
    assert 1 == await authentication.sign_out(services, first.caller, second.session.id)
    assert 1 == await authentication.sign_out(services, first.caller)
    assert {owner.session.id, third.session.id} == {s.id for s in await listed(owner.caller)}
    assert 2 == await authentication.sign_out(services, owner.caller)


async def test_signing_in_and_out_is_audited_without_the_secret(
    services: Services, clock: Clock
) -> None:
    signed_in = await by_link(services)
    await authentication.sign_out(services, signed_in.caller, signed_in.session.id)

    found = await services.store.audit(AuditQuery(EVERYTHING, EVERYTHING, page=Slice()))

    assert [("sign_out", signed_in.session.id), ("sign_in", signed_in.session.id)] == [
        (entry.action, entry.target) for entry in found.rows[:2]
    ]


async def test_the_last_use_is_recorded_once_a_minute(services: Services, clock: Clock) -> None:
    secret = await authentication.sign_in_with_key(services, await key(services, "read"), "")
    opened_at = clock.now

    async def noted() -> list[timedelta]:
        await authentication.signed_in(services, secret)
        return [s.last_used_at - opened_at for s in await services.store.web_sessions(clock())]

    clock.now += timedelta(seconds=60)
    assert [timedelta(0)] == await noted()
    clock.now += timedelta(seconds=1)
    assert [timedelta(seconds=61)] == await noted()
