"""The doors for work that blocks: threads for what is ours, a thread of its own for whoever waits
for the world, a process for what may go wrong.

What is ours never shares threads with the lookups of names: asyncio does those in its default pool,
and a few names whose servers are silent fill it for as long as the system is patient.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

_MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()
"""One for each loop, as with asyncio's own: a process that was forked has another loop."""


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking *work* in a thread, so that the event loop goes on."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="postroom")
    run = partial(copy_context().run, work, *args, **kwargs)
    return await loop.run_in_executor(pool, run)


async def finish_threads() -> None:
    """Wait until what was begun in threads is done, also what nobody waits for any more."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await asyncio.to_thread(pool.shutdown)


async def in_own_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *work* that waits for others in a thread that nobody else needs.

    Whoever gives up waiting leaves it behind, where it keeps neither other work waiting nor the
    process from ending.
    """
    done: Future[T] = Future()
    run = partial(_settle, done, partial(copy_context().run, work, *args, **kwargs))
    threading.Thread(target=run, name="postroom-outside", daemon=True).start()
    return await asyncio.wrap_future(done)


def _settle(done: Future[T], work: Callable[[], T]) -> None:
    """Note what comes of the work, unless nobody waits for it any more."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
        if done.set_running_or_notify_cancel():
            done.set_exception(error)
    else:
        if done.set_running_or_notify_cancel():
            done.set_result(result)
