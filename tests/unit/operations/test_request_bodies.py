"""Request bodies in transit: limits on their number, size, time and origin."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from postroom.admission import spool
from postroom.admission import spool as module
from postroom.admission.spool import (
    MAX_AT_ONCE,
    MEMORY_BYTES,
    RequestBodies,
    keyed_client,
    keyless_client,
)
from postroom.errors import RateLimited, StorageFull, TooLarge, TooSlow, Unavailable

MB = 1024 * 1024
ANA = keyed_client("key_ana")


@pytest.fixture
def arrivals(tmp_path):
    return RequestBodies(tmp_path)


async def pieces(*chunks):
    for chunk in chunks:
        yield chunk


async def endless(chunk=b""):
    yield chunk
    await asyncio.Event().wait()


async def whole(arrivals, chunks, bearer=ANA, most=10 * MB):
    async with arrivals.body(chunks, bearer, most) as body:
        return body


class StalledBodies:
    """Bodies that never end."""

    def __init__(self, arrivals):
        self.arrivals, self.tasks = arrivals, []

    async def __aenter__(self):
        return self

    async def begin(self, count, bearer_of):
        for number in range(count):
            bearer = bearer_of(number)
            coming = whole(self.arrivals, endless(), bearer)
            self.tasks.append(asyncio.create_task(coming))
        await asyncio.sleep(0)

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("size", [0, 1, MEMORY_BYTES, MEMORY_BYTES + 1, 3 * MEMORY_BYTES + 5])
async def test_a_body_is_received_unchanged(arrivals, size):
    data = bytes(number % 251 for number in range(size))
    chunks = [data[at : at + 50_000] for at in range(0, size, 50_000)]

    assert data == await whole(arrivals, pieces(*chunks))
    assert ({}, {}) == (arrivals.arriving, arrivals.held)


async def test_a_large_body_is_spooled_to_disk(arrivals):
    seen = []

    async def chunks():
        for _ in range(128):
            yield bytes(65_536)
        seen.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        await whole(arrivals, chunks())
    finally:
        tracemalloc.stop()

    assert seen[0] < 2 * MB


async def test_a_body_is_not_read_beyond_its_limit(arrivals):
    with pytest.raises(TooLarge, match="over the limit of 10 bytes"):
        await whole(arrivals, endless(b"x" * 11), most=10)


@pytest.mark.parametrize(("silence_s", "whole_s"), [(0.01, 60), (60, 0.01)])
async def test_a_stalled_body_times_out(arrivals, silence_s, whole_s):
    bearer = replace(ANA, silence_s=silence_s, whole_s=whole_s)

    with pytest.raises(TooSlow):
        await whole(arrivals, endless(b"x"), bearer)

    assert ({}, {}) == (arrivals.arriving, arrivals.held)


async def test_a_key_with_too_many_bodies_does_not_block_others(arrivals):
    async with StalledBodies(arrivals) as stalled:
        await stalled.begin(MAX_AT_ONCE, lambda _: ANA)

        with pytest.raises(RateLimited):
            await whole(arrivals, pieces(b"x"))
        assert b"x" == await whole(arrivals, pieces(b"x"), keyed_client("key_bo"))
        assert b"x" == await whole(arrivals, pieces(b"x"), keyless_client("192.0.2.1"))


async def test_one_address_cannot_block_other_anonymous_clients(arrivals):
    async with StalledBodies(arrivals) as stalled:
        await stalled.begin(32, lambda n: keyless_client(f"2001:db8::{n:x}"))

        with pytest.raises(RateLimited):
            await whole(arrivals, pieces(b"x"), keyless_client("2001:db8::ffff"))
        assert b"x" == await whole(arrivals, pieces(b"x"), keyless_client("2001:db8:0:1::1"))


async def test_anonymous_clients_share_a_limit(arrivals):
    async with StalledBodies(arrivals) as stalled:
        await stalled.begin(MAX_AT_ONCE, lambda n: keyless_client(f"192.0.2.{n}"))

        with pytest.raises(RateLimited):
            await whole(arrivals, pieces(b"x"), keyless_client("198.51.100.1"))
        assert b"x" == await whole(arrivals, pieces(b"x"))


async def test_bytes_count_until_the_response(arrivals, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    async with AsyncExitStack() as stack:
        for address in ("192.0.2.1", "192.0.2.2"):
            body = arrivals.body(pieces(b"x" * 40), keyless_client(address), MB)
            await stack.enter_async_context(body)
        with pytest.raises(RateLimited):
            await whole(arrivals, pieces(b"x" * 40), keyless_client("192.0.2.3"))
        assert b"x" * 60 == await whole(arrivals, pieces(b"x" * 60))

    assert b"x" * 40 == await whole(arrivals, pieces(b"x" * 40), keyless_client("192.0.2.3"))


async def test_large_bodies_are_loaded_in_sequence(arrivals, monkeypatch):
    monkeypatch.setattr(spool, "MAX_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(module, "MEMORY_WAIT_S", 0.01)
    large = [bytes(MEMORY_BYTES)] * 2

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(arrivals.body(pieces(*large), ANA, MB))
        with pytest.raises(Unavailable):
            await whole(arrivals, pieces(*large))
        assert b"small" == await whole(arrivals, pieces(b"small"))

    assert 2 * MEMORY_BYTES == len(await whole(arrivals, pieces(*large)))


async def test_a_full_disk_is_reported(tmp_path):
    arrivals = RequestBodies(tmp_path / "not there")

    with pytest.raises(StorageFull):
        await whole(arrivals, pieces(*[bytes(MEMORY_BYTES)] * 2))


async def test_memory_is_released_during_other_waits(arrivals, monkeypatch):
    monkeypatch.setattr(spool, "MAX_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(module, "MEMORY_WAIT_S", 0.01)
    large = [bytes(MEMORY_BYTES)] * 2

    async with arrivals.body(pieces(*large), ANA, MB):
        spool.release()
        assert 2 * MEMORY_BYTES == len(await whole(arrivals, pieces(*large)))

    with pytest.raises(Unavailable):  # released memory is not released twice
        async with arrivals.body(pieces(*large), ANA, MB):
            await whole(arrivals, pieces(*large))


async def test_one_address_cannot_use_the_whole_anonymous_limit(arrivals, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    one, other = keyless_client("192.0.2.1"), keyless_client("192.0.2.2")

    async with arrivals.body(pieces(bytes(50)), one, MB):
        with pytest.raises(RateLimited):
            await whole(arrivals, pieces(b"x"), one)
        assert bytes(50) == await whole(arrivals, pieces(bytes(50)), other)

    assert {} == arrivals.held


async def test_a_body_announced_as_too_large_is_not_read(arrivals):
    with pytest.raises(TooLarge):
        async with arrivals.body(endless(), ANA, 10, "11"):
            raise AssertionError
