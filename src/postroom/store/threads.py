"""Threads that nobody has to wait for in the end: one may be stuck in a server that is silent."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Task = tuple[Future[Any], Callable[[], Any]]
_Desk = SimpleQueue["Task | None"]
"""Where one thread finds what it is to do."""


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
    """A few threads that share some work; one is begun when all others are busy.

    Of those that are free, the one that worked last goes on: it has most at hand.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._lock = threading.Lock()
        self._waiting: deque[Task] = deque()
        self._free: list[_Desk] = []
        self._begun: list[Future[None]] = []
        self._is_closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have *work* done when a thread is free."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("it is closed")
            if self._free:
                self._free.pop().put((future, work))
            elif len(self._begun) < self._most:
                desk = _Desk()
                desk.put((future, work))
                self._begun.append(begin(partial(self._run, desk), self._name))
            else:
                self._waiting.append((future, work))
        return future

    async def close(self) -> None:
        """Finish what was submitted."""
        with self._lock:
            self._is_closed = True
            for desk in self._free:
                desk.put(None)
        for thread in self._begun:
            await until_over(thread)

    def _run(self, desk: _Desk) -> None:
        while self._do(desk, desk.get()):
            pass  # nothing of what was done is kept here while we wait

    def _do(self, desk: _Desk, task: Task | None) -> bool:
        """Do what there is; False if it was the last."""
        if task is None:
            return False
        tell = _done(*task)
        self._clear(desk)  # first: who hears of it and asks again finds this one free
        tell()
        return True

    def _clear(self, desk: _Desk) -> None:
        with self._lock:
            if self._waiting:
                desk.put(self._waiting.popleft())
            elif self._is_closed:
                desk.put(None)
            else:
                self._free.append(desk)


def _done(future: Future[Any], work: Callable[[], Any]) -> Callable[[], None]:
    """Do some work; returns what tells of it."""
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        return partial(future.set_result, work())
    except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
        return partial(future.set_exception, error)
