"""Writers in a queue: whoever waits while a commit is under way shares the next one."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom.store.threads import begin, until_over
from postroom.store.transaction import Transaction

T = TypeVar("T")
MOST_PER_COMMIT = 256


@dataclass(slots=True)
class Job:
    """Something to write, and what came of it."""

    work: Callable[[Transaction], Any]
    asked_at: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Tell whoever waits."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class WriteQueue:
    """One thread that hands all who wait, up to a limit, to *commit*, which settles nothing."""

    def __init__(self, commit: Callable[[list[Job]], None]) -> None:
        self._commit = commit
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = begin(self._run, "postroom-write")

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Have *work* done and return what it returns."""
        job = Job(work)
        self._jobs.put(job)
        result: T = await asyncio.wrap_future(job.future)
        return result

    async def close(self) -> None:
        """Finish what is queued."""
        self._jobs.put(None)
        await until_over(self._thread)

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
        """All who wait now, up to a limit, and whether we are to stop after them."""
        batch = [first]
        while len(batch) < MOST_PER_COMMIT:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False
