"""Running blocking work: in a pool of threads, in a thread of its own if it may hang, or in a
process that can be killed.

Our work does not share threads with DNS lookups: asyncio runs those in its default pool, and a few
names whose servers do not answer would fill it.
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

_MAX_THREADS = min(32, (os.cpu_count() or 1) + 4)
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()
"""One pool per event loop, because a forked process has another loop."""


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking *work* in a thread of the pool."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="postroom")
    run = partial(copy_context().run, work, *args, **kwargs)
    return await loop.run_in_executor(pool, run)


async def finish_threads() -> None:
    """Wait until all work in threads is done, including abandoned work."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await asyncio.to_thread(pool.shutdown)


async def in_own_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *work* that may hang in a thread of its own.

    A cancelled call leaves the thread behind; it blocks neither other work nor the end of the
    process.
    """
    done: Future[T] = Future()
    run = partial(_settle, done, partial(copy_context().run, work, *args, **kwargs))
    threading.Thread(target=run, name="postroom-outside", daemon=True).start()
    return await asyncio.wrap_future(done)


def _settle(done: Future[T], work: Callable[[], T]) -> None:
    """Set the result of the work, unless the caller was cancelled."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
        if done.set_running_or_notify_cancel():
            done.set_exception(error)
    else:
        if done.set_running_or_notify_cancel():
            done.set_result(result)
