"""Subscriptions to events: one reader per process, shared by all subscribers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.errors import MailError
from postroom.model.event import Event
from postroom.model.inbox import Visible
from postroom.model.mail.message import Message
from postroom.model.mail.storage import SearchTexts
from postroom.model.view import EVERYTHING

if TYPE_CHECKING:
    from postroom.store.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 500
_MAX_BEHIND = 10_000
_RETRY_S = 1.0

EventFilter = Callable[[Event], bool]


class WatchedEvent:
    """An event, with its message and texts, which are read once for all subscribers."""

    def __init__(self, event: Event, store: Store) -> None:
        self.event = event
        self._id = event.message_id or ""
        self._store = store
        self._message: asyncio.Task[Message | None] | None = None
        self._texts: asyncio.Task[SearchTexts | None] | None = None

    async def message(self) -> Message | None:
        """The message of the event, if it still exists."""
        if self._message is None:
            self._message = asyncio.create_task(self._store.message(self._id, EVERYTHING))
        return await asyncio.shield(self._message)

    async def texts(self) -> SearchTexts | None:
        """The texts of the message that filters compare, if it still exists."""
        if self._texts is None:
            self._texts = asyncio.create_task(self._store.search_texts(self._id))
        return await asyncio.shield(self._texts)


@dataclass(eq=False, slots=True)
class Subscription:
    """The queue of one subscriber, and the number of the last event it has seen."""

    store: Store
    matches: EventFilter
    visible: Visible
    queue: asyncio.Queue[WatchedEvent | None] = field(default_factory=asyncio.Queue)
    seen: int = 0
    is_idle: bool = False
    is_behind: bool = False

    def add(self, watched: WatchedEvent) -> None:
        """Queue an event; a subscriber whose queue is too long continues from the store."""
        if self.queue.qsize() < _MAX_BEHIND:
            self.queue.put_nowait(watched)
        else:
            self.is_behind = True


@dataclass(eq=False, slots=True)
class Watch:
    """Reads each new event once and puts it into the queues of the subscribers that match it.

    The reader runs only while there are subscribers.
    """

    _subscriptions: set[Subscription] = field(default_factory=set)
    _reader: asyncio.Task[None] | None = None
    _position: int = 0
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def subscribe(
        self, store: Store, matches: EventFilter, visible: Visible
    ) -> Iterator[Subscription]:
        """Queue every matching event from now on.

        *visible* bounds the stored events that `after` reads.
        """
        subscription = Subscription(store, matches, visible)
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

    async def after(self, subscription: Subscription, since: int) -> AsyncIterator[WatchedEvent]:
        """Every matching event after a number: stored ones first, then new ones, until `close`."""
        subscription.seen = since
        await self._started.wait()
        while True:
            subscription.is_behind = False
            while events := await subscription.store.events_after(
                subscription.seen, limit=_AT_ONCE, visible=subscription.visible
            ):
                for event in events:
                    if subscription.matches(event):
                        yield WatchedEvent(event, subscription.store)
                    subscription.seen = event.number
            while not subscription.is_behind:
                subscription.is_idle = True
                watched = await subscription.queue.get()
                subscription.is_idle = False
                if watched is None:
                    return
                if watched.event.number > subscription.seen:
                    yield watched
                    subscription.seen = watched.event.number
            subscription.queue = asyncio.Queue()

    def position_of(self, subscription: Subscription) -> int:
        """The number up to which a subscriber has seen all matching events.

        An idle subscriber with an empty queue has seen all that the reader has read.
        """
        is_done = subscription.is_idle and subscription.queue.empty()
        if not is_done or subscription.is_behind:
            return subscription.seen
        return max(subscription.seen, self._position)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in self._subscriptions:
            subscription.queue.put_nowait(None)

    async def _read(self, store: Store) -> None:
        notifier = store.notifier
        position = notifier.position("events")
        self._position = await _newest(store)
        self._started.set()
        while True:
            try:
                await self._dispatch(store)
            except MailError:
                log.exception("watch.failed")
            position = await notifier.wait("events", position)

    async def _dispatch(self, store: Store) -> None:
        while events := await store.events_after(
            self._position, limit=_AT_ONCE, visible=EVERYTHING
        ):
            for event in events:
                self._position = event.number
                watched = WatchedEvent(event, store)
                for subscription in self._subscriptions:
                    if subscription.matches(event):
                        subscription.add(watched)


async def _newest(store: Store) -> int:
    """The number of the newest event; retried while the store is busy."""
    while True:
        try:
            return await store.newest_event(EVERYTHING)
        except MailError:
            log.exception("watch.failed")
        await asyncio.sleep(_RETRY_S)
