"""The thread pool: the last active thread is reused, and accepted work is always completed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from postroom.store.thread_pool import ThreadPool


async def ask(threads: ThreadPool) -> int:
    """Which thread answers."""
    return await asyncio.wrap_future(threads.submit(threading.get_ident))


async def test_sequential_work_uses_one_thread() -> None:
    threads = ThreadPool(4, "test")

    asked = {await ask(threads) for _ in range(500)}

    await threads.close()
    assert 1 == len(asked)


async def test_the_last_active_thread_is_reused() -> None:
    threads = ThreadPool(4, "test")
    together = threading.Barrier(4)

    def meet() -> int:
        together.wait(60)
        return threading.get_ident()

    begun = [asyncio.wrap_future(threads.submit(meet)) for _ in range(4)]
    all_of_them = set(await asyncio.gather(*begun))
    asked = [await ask(threads) for _ in range(100)]

    await threads.close()
    assert 4 == len(all_of_them)
    assert {asked[0]} == set(asked) < all_of_them


async def test_queued_work_is_completed_in_order_before_the_end() -> None:
    threads, done = ThreadPool(2, "test"), list[int]()
    begun = [threads.submit(lambda number=number: done.append(number)) for number in range(1_000)]

    await threads.close()

    assert all(future.done() for future in begun)
    assert list(range(1_000)) == sorted(done)
    with pytest.raises(RuntimeError):
        threads.submit(threading.get_ident)


async def test_an_error_is_raised_and_affects_no_other_work() -> None:
    threads = ThreadPool(1, "test")

    with pytest.raises(ZeroDivisionError):
        await asyncio.wrap_future(threads.submit(lambda: 1 // 0))

    assert await ask(threads)
    await threads.close()


async def test_cancelled_work_is_not_started() -> None:
    threads, held, done = ThreadPool(1, "test"), threading.Event(), list[int]()
    threads.submit(lambda: held.wait(60))
    unwanted, wanted = threads.submit(lambda: done.append(1)), threads.submit(lambda: 2)

    assert unwanted.cancel()
    held.set()

    assert 2 == await asyncio.wrap_future(wanted)
    await threads.close()
    assert [] == done


async def test_an_idle_thread_keeps_no_references_to_results() -> None:
    class Result:
        pass

    threads = ThreadPool(1, "test")
    kept = weakref.ref(await asyncio.wrap_future(threads.submit(Result)))
    for _ in range(1_000):
        if kept() is None:
            break
        gc.collect()
        await asyncio.sleep(0.01)

    assert kept() is None
    await threads.close()
