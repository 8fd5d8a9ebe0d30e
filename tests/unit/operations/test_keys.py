"""Keys: their scopes, limits and expiry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.admission.rate_limits import RateLimits
from postroom.app import App
from postroom.calls.authentication import authenticate
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Forbidden, InvalidInput, NotFound, RateLimited, Unauthenticated
from postroom.model.account import Account
from postroom.model.key import ALL_SCOPES, Scope
from postroom.model.view import EVERYTHING, only
from postroom.operations import accounts, inboxes, keys
from postroom.operations.mail import message_changes, messages
from postroom.pipeline.ingest import Arrival, receive
from tests.mails import deliver, mail, new_inbox


async def test_a_key_works_until_it_is_deleted(app: App, ctx: RequestContext) -> None:
    key = await call(ctx, keys.create_key, {"name": "crm", "scopes": ["read", "write"]})

    caller = await app.authenticate(key.key)
    await call(ctx, keys.delete_key, {"key_id": key.id})

    assert ({Scope.READ, Scope.WRITE}, EVERYTHING) == (set(caller.scopes), caller.inboxes)
    with pytest.raises(Unauthenticated):
        await app.authenticate(key.key)
    listed = await call(ctx, keys.list_keys, {})
    assert () == listed.results


AT = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
WHOLE = AT.replace(microsecond=0)
EXPIRIES = {
    "30d": WHOLE + timedelta(days=30),
    "12h": WHOLE + timedelta(hours=12),
    "90m": WHOLE + timedelta(minutes=90),
    "2w": WHOLE + timedelta(weeks=2),
    "2026-06-01": datetime(2026, 6, 1, tzinfo=UTC),
    "2026-06-01T09:30:00+02:00": datetime(2026, 6, 1, 7, 30, tzinfo=UTC),
    "never": None,
    "": None,
}


@pytest.mark.parametrize("written", EXPIRIES)
async def test_a_key_works_until_it_expires(app: App, ctx: RequestContext, written: str) -> None:
    ctx = replace(ctx, clock=lambda: AT)
    key = await call(ctx, keys.create_key, {"name": "crm", "expires_at": written})
    ends = EXPIRIES[written]
    last = (ends or WHOLE + timedelta(days=9_999)) - timedelta(seconds=1)

    caller = await authenticate(replace(app.services, clock=lambda: last), key.key)

    [listed] = (await call(ctx, keys.list_keys, {})).results
    assert (ends, ends) == (key.expires_at, listed.expires_at)
    assert key.id == caller.key_id
    if ends is not None:
        with pytest.raises(Unauthenticated, match=f"expired at {ends:%Y-%m-%dT%H:%M:%SZ}"):
            await authenticate(replace(app.services, clock=lambda: ends), key.key)
    [after] = (await call(ctx, keys.list_keys, {})).results
    assert after.last_used_at == last


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("2026-05-01T12:00:00Z", "is in the past"),
        ("2020-01-01", "is in the past"),
        ("soon", "30d or 12h"),
        ("0d", "30d or 12h"),
        ("-1d", "30d or 12h"),
        ("30", "30d or 12h"),
        ("1y", "30d or 12h"),
    ],
)
async def test_an_invalid_expiry_is_refused(ctx: RequestContext, written: str, words: str) -> None:
    ctx = replace(ctx, clock=lambda: AT)

    with pytest.raises(InvalidInput, match=f"expires_at: .*{words}"):
        await call(ctx, keys.create_key, {"name": "crm", "expires_at": written})

    assert 0 == (await call(ctx, keys.list_keys, {})).total


async def test_an_expiry_can_be_changed_and_removed(app: App, ctx: RequestContext) -> None:
    key = await call(ctx, keys.create_key, {"name": "crm", "expires_at": "1h"})
    late = replace(app.services, clock=lambda: datetime.now(UTC) + timedelta(days=2))

    longer = await call(ctx, keys.update_key, {"key_id": key.id, "expires_at": "30d"})
    named = await call(ctx, keys.update_key, {"key_id": key.id, "name": "billing"})
    assert key.id == (await authenticate(late, key.key)).key_id
    endless = await call(ctx, keys.update_key, {"key_id": key.id, "expires_at": "never"})

    assert ("billing", longer.expires_at) == (named.name, named.expires_at)
    assert ("billing", None) == (endless.name, endless.expires_at)
    with pytest.raises(InvalidInput, match="what to change"):
        await call(ctx, keys.update_key, {"key_id": key.id})
    with pytest.raises(NotFound):
        await call(ctx, keys.update_key, {"key_id": "key_no", "name": "x"})
    with pytest.raises(Forbidden, match="key reset"):
        await call(ctx, keys.update_key, {"key_id": "owner", "expires_at": "1d"})


async def test_a_key_cannot_create_a_key_that_expires_later(app: App, ctx: RequestContext) -> None:
    made = {"name": "admin", "scopes": sorted(ALL_SCOPES), "expires_at": "1d"}
    key = await call(ctx, keys.create_key, made)
    own = app.context(await app.authenticate(key.key))
    within = await call(own, keys.create_key, {"name": "in", "expires_at": "1h"})

    for operation, arguments in (
        (keys.create_key, {"name": "out"}),
        (keys.create_key, {"name": "out", "expires_at": "2d"}),
        (keys.update_key, {"key_id": key.id, "expires_at": "never"}),
        (keys.update_key, {"key_id": within.id, "expires_at": "2d"}),
    ):
        with pytest.raises(Forbidden, match="your own key expires at"):
            await call(own, operation, arguments)


async def test_no_list_and_no_row_shows_a_secret(app: App, ctx: RequestContext) -> None:
    key = await call(ctx, keys.create_key, {"name": "crm"})
    assert key.key is not None

    listed = await call(ctx, keys.list_keys, {})
    files = app.settings.data_dir.glob("postroom.db*")

    assert [None] == [row.key for row in listed.results]
    assert all(key.key.encode() not in file.read_bytes() for file in files)


async def test_hidden_objects_do_not_exist_for_a_key(app: App, ctx: RequestContext) -> None:
    mine, theirs = await new_inbox(ctx, "mine"), await new_inbox(ctx, "theirs")
    hidden = await deliver(ctx, theirs, mail("Secret plan"))
    key = await call(
        ctx, keys.create_key, {"name": "one", "scopes": sorted(ALL_SCOPES), "inboxes": [mine.id]}
    )
    limited = app.context(await app.authenticate(key.key))

    for operation, arguments in (
        (inboxes.get_inbox, {"inbox_id": theirs.id}),
        (messages.list_messages, {"inbox_id": theirs.id}),
        (messages.list_messages, {"thread_id": hidden.thread_id}),
        (messages.get_message, {"message_id": hidden.message_id}),
        (inboxes.delete_inbox, {"inbox_id": theirs.id, "force": True}),
    ):
        with pytest.raises(NotFound):
            await call(limited, operation, arguments)
    for permanent in (False, True):
        gone = {"message_id": hidden.message_id, "permanent": permanent}
        result = await call(limited, message_changes.delete_message, gone)
        assert [("failed", "not_found")] == [(result.status, f.code) for f in result.failed]
    assert 0 == (await call(limited, messages.search_messages, {"q": "secret"})).total
    assert [mine.id] == [i.id for i in (await call(limited, inboxes.list_inboxes, {})).results]
    for operation, arguments in ((keys.list_keys, {}), (inboxes.create_inbox, {})):
        with pytest.raises(Forbidden):
            await call(limited, operation, arguments)


async def test_the_owners_key_is_created_once_and_can_be_replaced(app: App) -> None:
    first = await app.owner_key()
    again = await app.owner_key()
    second = await app.reset_owner_key()

    assert first is not None
    assert again is None
    with pytest.raises(Unauthenticated):
        await app.authenticate(first)
    assert "owner" == (await app.authenticate(second)).key_id


async def test_of_servers_that_start_at_once_one_shows_the_key(app: App) -> None:
    told = await asyncio.gather(*(app.owner_key() for _ in range(8)))

    (key,) = [key for key in told if key is not None]
    assert "owner" == (await app.authenticate(key)).key_id


def test_a_token_bucket_never_exceeds_burst_and_rate() -> None:
    now = 0.0
    rates = RateLimits(per_second=2, burst=5, clock=lambda: now)
    served = 0
    for step in range(1000):
        now = step / 100
        served += takes(rates, "key_1")
        assert served <= 5 + 2 * now + 1e-9

    assert served >= 5 + 2 * 9
    assert takes(rates, "key_2")


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 5), st.sampled_from(["key_1", "key_2"])), min_size=1, max_size=200
    )
)
def test_each_key_has_its_own_rate_limit(
    steps: list[tuple[float, str]],
) -> None:
    now = 0.0
    together = RateLimits(per_second=2, burst=5, clock=lambda: now)
    alone = RateLimits(per_second=2, burst=5, clock=lambda: now)
    served: list[float] = []
    for wait, key in steps:
        now += wait
        was_served = takes(together, key)
        if key == "key_1":
            assert was_served == takes(alone, key)
            served += [now] if was_served else []

    for first, start in enumerate(served):
        for last, end in enumerate(served[first:], first):
            assert last - first + 1 <= 5 + 2 * (end - start) + 1e-6


def takes(rates: RateLimits, caller: str) -> bool:
    try:
        rates.take(caller)
    except RateLimited as limited:
        return limited.retry_after < 1
    return True


async def fed(ctx: RequestContext, name: str) -> str:
    """An account whose provider is not contacted; returns the id of its inbox."""
    account = Account(
        name,
        "imap",
        f"{name}@example.com",
        ctx.new_id("inb"),
        "new",
        "",
        0,
        None,
        None,
        ctx.clock().replace(microsecond=0),
        {"host": "imap.example.com"},
    )
    await ctx.store.add_account(account, name)
    return account.inbox_id


async def test_a_key_for_an_account_sees_that_account_and_its_inbox_only(
    app: App, ctx: RequestContext
) -> None:
    work, home = await fed(ctx, "work"), await fed(ctx, "home")
    local, other = await new_inbox(ctx, "local"), await new_inbox(ctx, "other")
    for inbox_id in (work, home, local.id, other.id):
        await receive(ctx, Arrival(mail("Plan"), inbox_id))
    whole = {"name": "one", "scopes": sorted(ALL_SCOPES), "accounts": ["work"]}
    mixed = {**whole, "inboxes": [local.id]}

    for arguments, expected in ((whole, {work}), (mixed, {work, local.id})):
        key = await call(ctx, keys.create_key, arguments)
        limited = app.context(await app.authenticate(key.key))

        assert only("work") == key.accounts
        found = await call(limited, messages.search_messages, {"q": "plan"})
        assert (len(expected), expected) == (found.total, {r.inbox_id for r in found.results})
        listed = await call(limited, accounts.list_accounts, {})
        assert ["work"] == [account.id for account in listed.results]
        assert expected == {i.id for i in (await call(limited, inboxes.list_inboxes, {})).results}
        with pytest.raises(NotFound):
            await call(limited, accounts.get_capabilities, {"account_id": "home"})
        with pytest.raises(Forbidden):
            await call(limited, keys.create_key, {"name": "more"})


async def test_a_key_for_an_account_that_was_removed_sees_nothing(
    app: App, ctx: RequestContext
) -> None:
    work = await fed(ctx, "work")
    await receive(ctx, Arrival(mail("Plan"), work))
    key = await call(ctx, keys.create_key, {"name": "one", "accounts": ["work"]})
    await call(ctx, accounts.remove_account, {"account_id": "work"})
    await deliver(ctx, await new_inbox(ctx), mail("Plan"))
    limited = app.context(await app.authenticate(key.key))

    assert 0 == (await call(limited, messages.search_messages, {"q": "plan"})).total
    assert 0 == (await call(limited, inboxes.list_inboxes, {})).total


async def test_a_key_for_an_unknown_account_is_refused(ctx: RequestContext) -> None:
    with pytest.raises(NotFound, match="account list"):
        await call(ctx, keys.create_key, {"name": "one", "accounts": ["nowhere"]})

    assert 0 == (await call(ctx, keys.list_keys, {})).total
