"""The queue of writes: those that wait during a commit share the next one."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom.store.thread_pool import start_thread, wait_for_thread
from postroom.store.transaction import Transaction

T = TypeVar("T")
MAX_PER_COMMIT = 256


@dataclass(slots=True)
class Job:
    """A write, and its result."""

    work: Callable[[Transaction], Any]
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
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = start_thread(self._run, "postroom-write")

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* in the next commit and return its result."""
        job = Job(work)
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
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False
