"""Threads of the store: a pool that reads, and a queue of writes.

They are daemon threads: one that waits for a silent server does not delay the exit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from postroom.store.transaction import Transaction

T = TypeVar("T")
Task = tuple[Future[Any], Callable[[], Any]]
_Tasks = SimpleQueue["Task | None"]
"""The tasks of one thread."""


def start_thread(work: Callable[[], object], name: str) -> Future[None]:
    """Run *work* in a new thread; the future is done when it ends."""
    over: Future[None] = Future()

    def run() -> None:
        try:
            work()
        finally:
            over.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return over


async def wait_for_thread(thread: Future[None]) -> None:
    """Wait for a thread; cancelling the wait does not affect it."""
    await asyncio.shield(asyncio.wrap_future(thread))


class ThreadPool:
    """A pool that starts a thread when all others are busy.

    The idle thread that worked last is used first: its caches are warm.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads, self._name = max_threads, name
        self._lock = threading.Lock()
        self._waiting: deque[Task] = deque()
        self._free: list[_Tasks] = []
        self._begun: list[Future[None]] = []
        self._is_closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run *work* when a thread is idle."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the thread pool is closed")
            if self._free:
                self._free.pop().put((future, work))
            elif len(self._begun) < self._max_threads:
                tasks = _Tasks()
                tasks.put((future, work))
                self._begun.append(start_thread(partial(self._run, tasks), self._name))
            else:
                self._waiting.append((future, work))
        return future

    async def close(self) -> None:
        """Finish all submitted work."""
        with self._lock:
            self._is_closed = True
            for tasks in self._free:
                tasks.put(None)
        for thread in self._begun:
            await wait_for_thread(thread)

    def _run(self, tasks: _Tasks) -> None:
        while self._do(tasks, tasks.get()):
            pass  # no reference to finished work is held while waiting

    def _do(self, tasks: _Tasks, task: Task | None) -> bool:
        """Run a task; False if it was the last."""
        if task is None:
            return False
        settle = _run_task(*task)
        self._next_task(tasks)  # first: a caller that submits again at once finds this thread idle
        settle()
        return True

    def _next_task(self, tasks: _Tasks) -> None:
        with self._lock:
            if self._waiting:
                tasks.put(self._waiting.popleft())
            elif self._is_closed:
                tasks.put(None)
            else:
                self._free.append(tasks)


def _run_task(future: Future[Any], work: Callable[[], Any]) -> Callable[[], None]:
    """Run *work*; return a function that settles the future."""
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        return partial(future.set_result, work())
    except BaseException as error:  # noqa: BLE001 - goes to the caller
        return partial(future.set_exception, error)


MAX_PER_COMMIT = 256


@dataclass(slots=True)
class Job:
    """A write, and its result."""

    work: Callable[[Transaction], Any]
    queued_at: float
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Pass the result or error to the caller."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class WriteQueue:
    """A thread that passes waiting jobs, up to a limit, to *commit* and then settles them."""

    def __init__(self, commit: Callable[[list[Job]], None]) -> None:
        self._commit = commit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = start_thread(self._run, "postroom-write")

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* in the next commit and return its result."""
        job = Job(work, time.monotonic())
        self._jobs.put(job)
        result: T = await asyncio.wrap_future(job.future)
        return result

    async def close(self) -> None:
        """Finish all queued writes."""
        self._jobs.put(None)
        await wait_for_thread(self._thread)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch, is_last = self._waiting(job)
            running = [j for j in batch if j.future.set_running_or_notify_cancel()]
            if running:
                self._commit(running)
            for job in running:
                job.settle()
            if is_last:
                return

    def _waiting(self, first: Job) -> tuple[list[Job], bool]:
        """All waiting jobs, up to a limit, and whether to stop after them."""
        batch = [first]
        while len(batch) < MAX_PER_COMMIT:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False
