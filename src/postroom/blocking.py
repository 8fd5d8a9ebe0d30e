"""Running blocking work: in a pool of threads, in a separate thread if it may hang, or in a
process that can be killed.

Our work does not share threads with DNS lookups: asyncio runs those in its default pool, and a few
names whose servers do not answer would fill it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from importlib import import_module
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
    """Run *work* that may hang in a separate thread.

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


_NO_NETWORK = 0x40000000 | 0x10000000
"""CLONE_NEWNET in a CLONE_NEWUSER, which needs no privilege."""


def child_main() -> None:
    """The restricted process: call a function on the input; write its result, or why it failed."""
    module, name, argument, cpu_s, memory_bytes, *imports = sys.argv[1:]
    _limit(int(cpu_s), int(memory_bytes))
    work = getattr(import_module(module), name)
    for needed in imports:
        import_module(needed)
    _forbid_files_and_network()
    data = sys.stdin.buffer.read()
    try:
        text, status = work(data, int(argument)), 0
    except Exception as error:  # noqa: BLE001 - the caller reports it
        text, status = " ".join(str(error).split())[:200] or type(error).__name__, 1
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.exit(status)


def _limit(cpu_s: int, memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _forbid_files_and_network() -> None:
    """Forbid opening files; open ones can still be used."""
    import ctypes  # late, but while files can be opened

    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    # In addition an empty network namespace, where the kernel allows it.
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is not None:
        unshare(_NO_NETWORK)


class WorkFailed(Exception):
    """The work failed or did not end; the message says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on time and memory of the work."""

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 1024 * 1024


async def in_process(
    work: Callable[[bytes, int], str],
    data: bytes,
    argument: int,
    bounds: Bounds,
    *,
    imports: Sequence[str] = (),
) -> str:
    """Run *work*, a function of a module, on untrusted bytes.

    It cannot open files or connections; the modules it *imports* are loaded before.

    Raises:
        WorkFailed: it took too long or too much, crashed, or refused.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from postroom.blocking import child_main; child_main()"),
        *(work.__module__, work.__qualname__, str(argument)),
        *(str(bounds.cpu_s), str(bounds.memory_bytes), *imports),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        limit=bounds.output_bytes,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(bounds.wall_s):
            return await _communicate(process, data, bounds.output_bytes)
    except TimeoutError:
        raise WorkFailed(f"not finished within {bounds.wall_s:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _communicate(process: asyncio.subprocess.Process, data: bytes, max_bytes: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    sending = asyncio.ensure_future(_send(process.stdin, data))
    answer = bytearray()
    while chunk := await process.stdout.read(65_536):
        answer += chunk
        if len(answer) > max_bytes:
            raise WorkFailed(f"the result has more than {max_bytes} bytes")
    await sending
    if await process.wait() != 0:
        raise WorkFailed(answer.decode("utf-8", "replace") or "it crashed")
    return answer.decode("utf-8", "replace")


async def _send(stream: asyncio.StreamWriter, data: bytes) -> None:
    """Write the data; a process that has died is ignored."""
    try:
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass
