"""Wrong keys are delayed and then refused, without affecting other clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from postroom.config import Settings
from postroom.errors import RateLimited, Unauthenticated
from postroom.surfaces.rest import failed_logins as module
from postroom.surfaces.rest.access import AccessControl, client_of
from postroom.surfaces.rest.failed_logins import FREE, MOST, Attempts, network_of
from tests.servers.postroom import running

PATIENCE_S = 60
POSTMARK = "postmark:a-password-of-some-length"


@pytest.fixture(scope="module", params=[1, 3], ids=["one process", "three processes"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guesses") / "data"
    with running(folder, workers=request.param, POSTROOM_POSTMARK_LOGIN=POSTMARK) as server:
        yield server


async def test_300_wrong_keys_are_delayed_then_refused_and_a_valid_one_is_not(server):
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:

        async def guess(number, path="/v1/inboxes"):
            headers = {"Authorization": f"Bearer pk_wrong_{number}", "Connection": "close"}
            return await client.get(path, headers=headers)

        began = asyncio.get_running_loop().time()
        first = await guess(-1)
        right = {"Authorization": f"Bearer {server.key}"}
        before = await client.get("/v1/inboxes", headers=right)
        guessing = [asyncio.create_task(guess(number)) for number in range(300)]
        theirs = [(await client.get("/v1/inboxes", headers=right)).status_code for _ in range(20)]
        answers = [await guessed for guessed in guessing]
        took = asyncio.get_running_loop().time() - began
        other_ways = [
            await client.post("/mcp", headers={"X-API-Key": "wrong"}, json={}),
            await client.post("/v1/inbound/postmark", auth=("postmark", "wrong"), json={}),
        ]
        without = await client.get("/v1/inboxes")

    assert 401 == first.status_code
    assert [200] * 21 == [before.status_code, *theirs]
    put_off = [answer for answer in answers if answer.status_code == 429]
    assert {401, 429} >= {answer.status_code for answer in answers}
    assert len(put_off) > 250
    assert all(0 < int(answer.headers["retry-after"]) <= 80 for answer in put_off)
    assert all("rate_limited" == answer.json()["code"] for answer in put_off)
    assert [429, 503] == [answer.status_code for answer in other_ways]
    assert 401 == without.status_code
    assert took >= 1
    told = [line for line in server.log.splitlines() if "authentication.failed" in line]
    assert 1 <= len(told) <= 3
    assert "address=127.0.0.1" in told[0]
    assert "pk_wrong" not in server.log


async def test_clients_of_a_trusted_proxy_are_counted_separately(tmp_path):
    with running(tmp_path / "data", POSTROOM_TRUSTED_PROXIES="127.0.0.1,10.1.0.0/16") as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:

            async def guess(number, forwarded):
                headers = {"X-Forwarded-For": forwarded, "X-API-Key": f"no{number}"}
                return (await client.get("/v1/inboxes", headers=headers)).status_code

            guesses = [guess(n, f"10.0.0.{n}, 198.51.100.7, 10.1.2.3") for n in range(40)]
            from_one = await asyncio.gather(*guesses)
            from_many = [await guess(n, f"192.0.2.{n}") for n in range(9)]

    assert 429 in from_one
    assert [401] * 9 == from_many


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:127.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("127.0.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        ("127.0.0.1", ["198.51.100.7, 10.1.2.3 ,127.0.0.1"], "198.51.100.7"),
        ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["198.51.100.7, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.7, unknown, 10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["198.51.100.7:4711"], "127.0.0.1"),
        ("", ["198.51.100.7"], ""),
    ],
)
def test_the_client_address_is_the_last_untrusted_one(peer, forwarded, expected):
    trusted = (ip_network("127.0.0.0/8"), ip_network("10.1.0.0/16"))
    settings = Settings(data_dir=Path("data"), trusted_proxies=trusted)
    access = AccessControl(
        SimpleNamespace(settings=settings), frozenset(), None, is_everywhere=False, needs_key=True
    )
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]

    scope = access.with_client({"type": "http", "client": (peer, 4711), "headers": headers})

    assert expected == client_of(scope) == scope["client"][0]


async def test_forwarded_addresses_of_untrusted_clients_are_ignored(server):
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:

        async def guess(number):
            made_up = {"X-Forwarded-For": f"192.0.2.{number}", "Forwarded": "for=192.0.2.1"}
            return await client.get("/v1/inboxes", headers={**made_up, "X-API-Key": f"no{number}"})

        answers = await asyncio.gather(*(guess(number) for number in range(40)))

    assert 429 in {answer.status_code for answer in answers}


class Clock:
    """A clock that advances when it sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waited = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module.asyncio, "sleep", clock.sleep)
    return clock


async def looked_up(attempts, address, key, *, is_right=False) -> bool:
    """Whether a key is looked up; a wrong one is then recorded as the surface does."""
    was = False
    with contextlib.suppress(RateLimited):
        try:
            with attempts.lookup(address, key):
                was = True
                await asyncio.sleep(0)
                if not is_right:
                    raise Unauthenticated("wrong")
        except Unauthenticated:
            await attempts.refuse(address, key)
    return was


async def refused(attempts, address, times, key="") -> int:
    """How many wrong keys were looked up: a new one each time, or the same."""
    answered = 0
    for number in range(times):
        try:
            await attempts.refuse(address, key or f"pk_{number}")
        except RateLimited:
            continue
        answered += 1
    return answered


async def test_the_delay_grows_up_to_a_second(clock):
    attempts = Attempts(9, clock)

    assert MOST == await refused(attempts, "192.0.2.1", MOST + 9)
    growing = clock.waited[: MOST - FREE]
    assert sorted(growing) == growing
    assert 0.1 == growing[0]
    assert [1.0] * 9 == clock.waited[MOST - FREE :]


async def test_a_repeated_wrong_key_is_delayed_and_answered(clock):
    attempts = Attempts(9, clock)

    assert 500 == await refused(attempts, "192.0.2.1", 500, key="pk_old")
    assert {0.1} == set(clock.waited)
    assert 500 - FREE == len(clock.waited)
    assert MOST - FREE - 1 == await refused(attempts, "192.0.2.1", 50)


async def test_five_wrong_keys_in_turn_are_guesses(clock):
    attempts = Attempts(9, clock)
    for number in range(MOST):
        await attempts.refuse("192.0.2.1", f"pk_{number % 5}")

    with pytest.raises(RateLimited):
        await attempts.refuse("192.0.2.1", "pk_0")


async def test_failures_are_forgotten_over_time(clock):
    attempts = Attempts(9, clock)
    await refused(attempts, "192.0.2.1", 1_000)
    with pytest.raises(RateLimited) as limited:
        await attempts.refuse("192.0.2.1", "pk_other")
    clock.now += limited.value.retry_after + 2

    await attempts.refuse("192.0.2.1", "pk_another")
    clock.now += 600
    clock.waited.clear()
    assert FREE == await refused(attempts, "192.0.2.1", FREE)
    assert [] == clock.waited


async def test_addresses_are_counted_separately(clock):
    attempts = Attempts(9, clock)
    await refused(attempts, "192.0.2.1", 50)
    clock.waited.clear()

    assert FREE == await refused(attempts, "192.0.2.2", FREE)
    assert [] == clock.waited


async def test_many_addresses_together_have_a_common_limit(clock):
    attempts = Attempts(9, clock)
    for number in range(1_000):
        await attempts.refuse(f"2001:db8:{number:x}::1", "pk_x")

    assert 1.0 == clock.waited[-1]


async def test_the_table_of_addresses_has_a_fixed_size(clock):
    attempts = Attempts(9, clock)
    size = attempts._words.nbytes
    for number in range(20_000):
        clock.now += 0.001
        await attempts.refuse(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "pk_x")

    assert size == attempts._words.nbytes < 1_000_000
    assert MOST == await refused(attempts, "192.0.2.1", MOST + 5)


async def test_log_entries_about_addresses_are_limited(clock, caplog):
    attempts = Attempts(9, clock)
    with caplog.at_level(logging.WARNING):
        await refused(attempts, "192.0.2.1", 100)
        clock.now += 30
        await refused(attempts, "192.0.2.1", 100)
        assert 1 == len(caplog.records)
        clock.now += 31
        await refused(attempts, "192.0.2.1", 100)
        assert 2 == len(caplog.records)
        for number in range(100):
            await refused(attempts, f"198.51.100.{number}", 20)

    assert len(caplog.records) <= 21


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_above_the_limit_only_keys_that_were_valid_from_an_address_are_looked_up(
    clock, is_at_once
):
    attempts = Attempts(1_000, clock)
    assert await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)
    guesses = [looked_up(attempts, "192.0.2.1", f"pk_{number}") for number in range(500)]
    if is_at_once:
        looked = await asyncio.gather(*guesses)
    else:
        looked = [await guess for guess in guesses]

    assert MOST == sum(looked)
    for _ in range(50):
        assert await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)
    assert not await looked_up(attempts, "192.0.2.1", "pk_other_right", is_right=True)
    assert await looked_up(attempts, "192.0.2.2", "pk_other_right", is_right=True)
    clock.now += 12
    assert await looked_up(attempts, "192.0.2.1", "pk_other_right", is_right=True)


async def test_an_hour_of_guessing_gets_no_more_lookups(clock):
    attempts, count = Attempts(1_000, clock), 0
    for number in range(36_000):
        clock.now += 0.1
        count += await looked_up(attempts, "192.0.2.1", f"pk_{number}")

    assert count <= MOST + 1_800


async def test_a_key_that_is_no_longer_valid_counts_as_wrong(clock):
    attempts = Attempts(1_000, clock)
    await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)
    assert await looked_up(attempts, "192.0.2.1", "pk_right")
    for number in range(MOST):
        await looked_up(attempts, "192.0.2.1", f"pk_{number}")

    assert not await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)


async def test_valid_keys_are_not_delayed(clock):
    attempts = Attempts(0, clock)
    for number in range(20_000):
        clock.now += 0.001
        assert await looked_up(attempts, "192.0.2.1", f"pk_{number}", is_right=True)

    assert 4_096 * 16 == attempts._valid._words.nbytes
    assert [0] == list(set(clock.waited))


@pytest.mark.parametrize("keys", [["one"] * 200, [f"key-{n}" for n in range(200)]])
async def test_many_clients_can_start_at_once_with_valid_keys(clock, keys):
    attempts = Attempts(9, clock)

    begun = 0
    with ExitStack() as at_once:
        for key in [*keys, "another"]:
            at_once.enter_context(attempts.lookup("192.0.2.1", key))
            begun += 1

    assert 201 == begun


async def test_a_failed_lookup_does_not_count(clock):
    attempts = Attempts(9, clock)
    for number in range(100):
        with pytest.raises(OSError, match="disk"), attempts.lookup("192.0.2.1", f"pk_{number}"):
            raise OSError("disk")

    assert await looked_up(attempts, "192.0.2.1", "pk_x")


async def test_if_the_queue_is_full_no_key_is_looked_up(monkeypatch):
    attempts = Attempts(3)
    monkeypatch.setattr(module, "_delay", lambda score: 30.0)
    waiting = [asyncio.create_task(attempts.refuse(f"192.0.2.{n}", "pk")) for n in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    for number in range(FREE):
        await looked_up(attempts, "192.0.2.9", f"pk_{number}")

    assert not await looked_up(attempts, "192.0.2.9", "pk_more")
    await asyncio.wait_for(attempts.pause(), 5)
    for task in waiting:
        task.cancel()


async def test_400_connections_get_no_more_lookups_than_one(tmp_path):
    """A valid key that was not used from this address gets the same response as a wrong one."""
    with running(tmp_path / "data") as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
            owner = {"Authorization": f"Bearer {server.key}"}
            made = await client.post("/v1/keys", headers=owner, json={"name": "never used"})
            answers = await asyncio.gather(
                *(client.get("/v1/inboxes", headers={"X-API-Key": f"pk_{n}"}) for n in range(400))
            )
            unused = await client.get("/v1/inboxes", headers={"X-API-Key": made.json()["key"]})
            used = await client.get("/v1/inboxes", headers=owner)

    assert 201 == made.status_code
    assert 30 > sum(answer.status_code == 401 for answer in answers)
    assert (429, 200) == (unused.status_code, used.status_code)
    assert "too many wrong keys" in unused.json()["detail"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", "unknown"),
        ("testclient", "unknown"),
    ],
)
def test_ipv6_addresses_are_counted_by_network(address, network):
    assert network == network_of(address)


@pytest.mark.parametrize("every_s", [0.25, 1, 2, 4])
@pytest.mark.parametrize("asks_every_s", [None, 1, 3])
async def test_a_valid_key_is_accepted_after_its_retry_after(clock, every_s, asks_every_s):
    attempts, number = Attempts(9, clock), 0
    for number in range(40):
        await looked_up(attempts, "192.0.2.1", f"pk_{number}")
    with pytest.raises(RateLimited) as told, attempts.lookup("192.0.2.1", "pk_right"):
        pass
    end, early = clock.now + told.value.retry_after, 0

    while clock.now < end:
        clock.now = min(end, clock.now + every_s)
        number += 1
        await looked_up(attempts, "192.0.2.1", f"pk_{number}")
        if asks_every_s and clock.now < end and number % max(1, int(asks_every_s / every_s)) == 0:
            early += await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)

    assert await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)
    assert 0 == early
    assert await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)


async def test_repeated_guesses_are_delayed(clock):
    attempts = Attempts(9, clock)
    for number in range(40):
        await looked_up(attempts, "192.0.2.1", f"pk_{number}")
    keys = [f"pk_again_{number}" for number in range(200)]
    for key in keys:
        await looked_up(attempts, "192.0.2.1", key)
    clock.now += 10

    found = set()
    for _ in range(60):
        clock.now += 1
        for key in keys:
            if await looked_up(attempts, "192.0.2.1", key):
                found.add(key)

    assert FREE <= len(found) <= FREE + 60


async def test_a_valid_key_does_not_count_against_its_address(clock):
    attempts = Attempts(9, clock)
    for number in range(MOST):
        await looked_up(attempts, "192.0.2.1", f"pk_{number}")
    row = attempts._row("192.0.2.1", clock.now)
    with pytest.raises(RateLimited) as told, attempts.lookup("192.0.2.1", "pk_right"):
        pass
    clock.now += told.value.retry_after
    before = attempts._score(row, clock.now)

    assert await looked_up(attempts, "192.0.2.1", "pk_right", is_right=True)

    assert before - 1 == attempts._score(row, clock.now)
