"""Whose turn it is: a key that asks for much at once does not make the others wait."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from postroom.errors import RateLimited

AT_ONCE = 2
MOST_WAITING = 64
"""Half of the room: the other half is for others."""
RECENT_S = 1.0
LASTS_S = 0.01
"""Whoever takes longer waits for something else than us, and keeps nobody from anything."""
MANY = 8
"""Whoever has more waiting than this asks faster than we answer, and only then has to make way."""
SHARE = 0.25
"""Of the time, for a key that has to: so the others hardly ever find us at work for it."""
SLACK_S = 0.05
"""What it may take beyond its share at once."""


@dataclass(slots=True)
class _Queue:
    """The requests of one key: how many have their turn, and who waits for one."""

    taken: int = 0
    paid_until: float = 0.0
    later: asyncio.TimerHandle | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(slots=True)
class Turns:
    """Lets a key that is alone do as it likes; of several, each gets a few turns at a time.

    What is being answered shares one processor, so that whoever has fifty requests there would
    have fifty times as much of it as whoever has one. Whoever has many waiting nevertheless gets
    a share of the time only.
    """

    _queues: dict[str, _Queue] = field(default_factory=dict)
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises RateLimited if too many wait already."""
        self._note(caller)
        queue = self._queues.setdefault(caller, _Queue())
        if queue.waiting or not self._is_free(queue):
            await self._wait(caller, queue)
        else:
            queue.taken += 1
        began = asyncio.get_running_loop().time()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._end(caller, queue, began)

        late = asyncio.get_running_loop().call_later(LASTS_S, end)
        try:
            yield
        finally:
            late.cancel()
            end()

    def _note(self, caller: str) -> None:
        """Remember who has asked lately."""
        now = asyncio.get_running_loop().time()
        self._seen[caller] = now
        self._seen.move_to_end(caller)
        while next(iter(self._seen.values())) < now - RECENT_S:
            self._seen.popitem(last=False)

    def _is_free(self, queue: _Queue) -> bool:
        return len(self._seen) <= 1 or queue.taken < (1 if len(queue.waiting) > MANY else AT_ONCE)

    async def _wait(self, caller: str, queue: _Queue) -> None:
        if len(queue.waiting) >= MOST_WAITING:
            raise RateLimited(
                f"more than {MOST_WAITING} requests of this key wait already; wait for answers",
                retry_after=1,
            )
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in queue.waiting:
                queue.waiting.remove(turn)
            elif not turn.cancelled():
                queue.taken -= 1
            self._go_on(caller, queue)
            raise

    def _end(self, caller: str, queue: _Queue, began: float) -> None:
        now = asyncio.get_running_loop().time()
        queue.taken -= 1
        paid = max(queue.paid_until, began) + (now - began) / SHARE
        queue.paid_until = min(paid, now + 2 * SLACK_S)
        self._go_on(caller, queue)

    def _go_on(self, caller: str, queue: _Queue) -> None:
        self._let_in(queue)
        if not queue.taken and not queue.waiting:
            self._queues.pop(caller, None)

    def _let_in(self, queue: _Queue) -> None:
        while queue.waiting and self._is_free(queue):
            if (pause := self._pause(queue)) > 0:
                self._come_back(queue, pause)
                return
            turn = queue.waiting.popleft()
            if not turn.done():
                queue.taken += 1
                turn.set_result(None)

    def _pause(self, queue: _Queue) -> float:
        """How long a key that asks for too much has to make way."""
        if len(self._seen) <= 1 or len(queue.waiting) <= MANY:
            return 0.0
        return queue.paid_until - SLACK_S - asyncio.get_running_loop().time()

    def _come_back(self, queue: _Queue, pause: float) -> None:
        if queue.later is not None:
            queue.later.cancel()
        queue.later = asyncio.get_running_loop().call_later(pause, self._let_in, queue)
