"""Events as they happen: a stream that connects again where it was cut, and misses nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Self

from msgspec import DecodeError, ValidationError
from msgspec.json import decode

from postroom.client.values.outgoing import Event
from postroom.errors import MailError, Unavailable

_MOST_ATTEMPTS = 10
"""How often in a row a stream is opened again before it gives up, after about two minutes."""

_LONGEST_WAIT_S = 30.0


class Position:
    """Where a stream is: after which event, and how often it failed since."""

    def __init__(self) -> None:
        self.since: str | None = None
        self._failures = 0

    def read(self, line: str) -> Event | None:
        """The event in a line, if there is one. Raises Unavailable for garbage."""
        if line.startswith(":"):
            self._failures = 0
        if not line.startswith("data:"):
            return None
        try:
            event = decode(line[5:], type=Event)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            raise Unavailable("the event stream is malformed", retry_after=1) from None
        self.since, self._failures = event.id, 0
        return event

    def wait_after(self, error: MailError) -> float:
        """The seconds until the next attempt. Raises the error if there is none."""
        self._failures += 1
        if not isinstance(error, Unavailable) or self._failures > _MOST_ATTEMPTS:
            raise error
        return min(0.25 * (1 << self._failures), _LONGEST_WAIT_S)


CUT = Unavailable("the server ended the stream of events", retry_after=1)


class EventStream:
    """Iterate over it for events; it ends when it is closed. It is open when you get it.

    After a cut it connects again and continues with the next event.
    """

    def __init__(self, connect: Callable[[str | None], Any], position: Position) -> None:
        self._connect, self._position, self._is_open = connect, position, True
        self._response: Any = connect(position.since)
        self._lines: Iterator[str] = self._response.lines()

    def __iter__(self) -> Iterator[Event]:
        while self._is_open:
            try:
                for line in self._lines:
                    if event := self._position.read(line):
                        yield event
                raise CUT
            except MailError as error:
                if self._is_open:
                    self._reconnect(error)

    def _reconnect(self, error: MailError) -> None:
        while True:
            self._response.close()
            time.sleep(self._position.wait_after(error))
            try:
                self._response = self._connect(self._position.since)
            except Unavailable as again:
                error = again
            else:
                self._lines = self._response.lines()
                return

    def close(self) -> None:
        """End the stream."""
        self._is_open = False
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncEventStream:
    """The same, for `async for`. It opens when it is entered by `async with` or iterated over."""

    def __init__(self, connect: Callable[[str | None], Awaitable[Any]], position: Position) -> None:
        self._connect, self._position, self._is_open = connect, position, True
        self._response: Any = None

    async def _opened(self) -> Any:
        if self._response is None:
            self._response = await self._connect(self._position.since)
        return self._response

    async def __aiter__(self) -> AsyncIterator[Event]:
        from anyio import sleep  # late, for a quick import

        while self._is_open:
            try:
                async for line in (await self._opened()).lines():
                    if event := self._position.read(line):
                        yield event
                raise CUT
            except MailError as error:
                if self._is_open:
                    await self._drop()
                    await sleep(self._position.wait_after(error))

    async def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.close()

    async def close(self) -> None:
        """End the stream."""
        self._is_open = False
        await self._drop()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
