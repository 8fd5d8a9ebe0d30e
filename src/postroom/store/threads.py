"""Threads that nobody has to wait for in the end: one may be stuck in a server that is silent."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Task = tuple[Future[Any], Callable[[], Any]]


def begin(work: Callable[[], object], name: str) -> Future[None]:
    """Run *work* in a thread of its own; the future says when it is over."""
    over: Future[None] = Future()

    def run() -> None:
        try:
            work()
        finally:
            over.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return over


async def until_over(thread: Future[None]) -> None:
    """Wait for a thread; whoever gives up leaves it as it is."""
    await asyncio.shield(asyncio.wrap_future(thread))


class Threads:
    """A few threads that share some work; one is begun when all others are busy."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._begun: list[Future[None]] = []

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have *work* done when a thread is free."""
        future: Future[T] = Future()
        self._tasks.put((future, work))
        if not self._idle.acquire(blocking=False) and len(self._begun) < self._most:
            self._begun.append(begin(self._run, self._name))
        return future

    async def close(self) -> None:
        """Finish what was submitted."""
        for _ in self._begun:
            self._tasks.put(None)
        for thread in self._begun:
            await until_over(thread)

    def _run(self) -> None:
        while _do(self._next()):
            pass  # nothing of what was done is kept here while we wait

    def _next(self) -> Task | None:
        try:
            return self._tasks.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._tasks.get()


def _do(task: Task | None) -> bool:
    """Do what there is; False if it was the last."""
    if task is None:
        return False
    future, work = task
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
            future.set_exception(error)
    return True
