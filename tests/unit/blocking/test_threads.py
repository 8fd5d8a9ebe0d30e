"""Waits on external systems do not block other work."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from postroom.blocking import finish_threads, in_own_thread, in_thread
from postroom.providers.allowed_hosts import AddressGuard

PATIENCE_S = 50
ABOVE_ALL_POOLS = (os.cpu_count() or 1) + 40


async def test_unanswered_dns_lookups_do_not_block_other_work(monkeypatch):
    silence, asked = threading.Event(), threading.Semaphore(0)

    def silent(*_args, **_more):
        asked.release()
        silence.wait(60)
        raise OSError("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    loop = asyncio.get_running_loop()
    lookups = [AddressGuard().resolve("silent.example", 443) for _ in range(ABOVE_ALL_POOLS)]
    lookups += [loop.getaddrinfo("silent.example", 993) for _ in range(ABOVE_ALL_POOLS)]
    tasks = [asyncio.ensure_future(lookup) for lookup in lookups]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(ABOVE_ALL_POOLS):
                await in_thread(asked.acquire)

            assert 4 == await in_thread(pow, 2, 2)
    finally:
        for task in tasks:
            task.cancel()
        silence.set()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_errors_in_a_separate_thread_are_raised():
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(divmod, 1, 0)


async def test_work_in_threads_completes_before_the_end():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        go_on.wait(60)
        done.append(1)

    task = asyncio.ensure_future(in_thread(work))
    await in_thread(begun.wait)
    task.cancel()
    ending = asyncio.ensure_future(finish_threads())
    go_on.set()
    await ending

    assert [1] == done
