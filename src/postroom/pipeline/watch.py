"""One reader of events for everyone in this process who waits for some of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from postroom.errors import MailError
from postroom.model.event import Event
from postroom.model.inbox import Visible
from postroom.model.message import Message
from postroom.ports.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 500
_MOST_BEHIND = 10_000
_BEGIN_AGAIN_S = 1.0

Wanted = Callable[[Event], bool]


class Told:
    """An event that several may wait for: its message is read once for all of them."""

    def __init__(self, event: Event, store: Store) -> None:
        self.event = event
        self._store = store
        self._reading: asyncio.Task[Message | None] | None = None

    async def message(self) -> Message | None:
        """The message that the event is about, if it is still there."""
        if self._reading is None:
            message_id = self.event.message_id or ""
            self._reading = asyncio.create_task(self._store.message(message_id, None))
        return await asyncio.shield(self._reading)


@dataclass(eq=False, slots=True)
class Subscription:
    """What one waiter has not looked at yet, and how far it has looked."""

    store: Store
    wanted: Wanted
    visible: Visible = None
    news: asyncio.Queue[Told | None] = field(default_factory=asyncio.Queue)
    seen: int = 0
    is_idle: bool = False
    is_behind: bool = False


@dataclass(eq=False, slots=True)
class Watch:
    """Reads each event once, when the bell rings, and hands it to those who want it.

    It runs while somebody waits: nobody pays for it otherwise.
    """

    _subscriptions: set[Subscription] = field(default_factory=set)
    _reader: asyncio.Task[None] | None = None
    _at: int = 0
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def subscribe(
        self, store: Store, wanted: Wanted, visible: Visible = None
    ) -> Iterator[Subscription]:
        """Be handed every event that is wanted and not yet committed.

        All that is wanted happens in the visible inboxes: no others are read of what is past.
        """
        subscription = Subscription(store, wanted, visible)
        self._subscriptions.add(subscription)
        if self._reader is None:
            self._started = asyncio.Event()
            self._reader = asyncio.create_task(self._read(store))
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def after(self, subscription: Subscription, since: int) -> AsyncIterator[Told]:
        """Every wanted event after a number: first those that are there, then those to come.

        It ends when the watch is closed.
        """
        subscription.seen = since
        await self._started.wait()
        while True:
            subscription.is_behind = False
            while events := await self._past(subscription):
                for event in events:
                    if subscription.wanted(event):
                        yield Told(event, subscription.store)
                    subscription.seen = event.number
            while not subscription.is_behind:
                subscription.is_idle = True
                told = await subscription.news.get()
                subscription.is_idle = False
                if told is None:
                    return
                if told.event.number > subscription.seen:
                    yield told
                    subscription.seen = told.event.number
            subscription.news = asyncio.Queue()

    async def _past(self, subscription: Subscription) -> list[Event]:
        return await subscription.store.events_after(
            subscription.seen, limit=_AT_ONCE, visible=subscription.visible
        )

    def looked_up_to(self, subscription: Subscription) -> int:
        """The number up to which a waiter has looked at all that it wants.

        One to whom nothing is handed has seen all that the reader has. What it looks at just now,
        and what lies before it, is not counted.
        """
        is_done = subscription.is_idle and subscription.news.empty()
        if not is_done or subscription.is_behind:
            return subscription.seen
        return max(subscription.seen, self._at)

    def close(self) -> None:
        """Tell everyone who waits that nothing more will come."""
        for subscription in self._subscriptions:
            subscription.news.put_nowait(None)

    async def _read(self, store: Store) -> None:
        bell = store.bell
        rung = bell.rung("events")
        self._at = await _newest(store)
        self._started.set()
        while True:
            try:
                await self._hand_out(store)
            except MailError:
                log.exception("watch.failed")
            rung = await bell.wait("events", rung)

    async def _hand_out(self, store: Store) -> None:
        while events := await store.events_after(self._at, limit=_AT_ONCE):
            for event in events:
                self._at = event.number
                told = Told(event, store)
                for subscription in self._subscriptions:
                    if subscription.wanted(event):
                        _hand(subscription, told)


async def _newest(store: Store) -> int:
    """Where to begin, however long the store is too busy to say."""
    while True:
        try:
            return await store.newest_event()
        except MailError:
            log.exception("watch.failed")
        await asyncio.sleep(_BEGIN_AGAIN_S)


def _hand(subscription: Subscription, told: Told) -> None:
    """Whoever does not look for very long reads on from the store instead."""
    if subscription.news.qsize() < _MOST_BEHIND:
        subscription.news.put_nowait(told)
    else:
        subscription.is_behind = True
