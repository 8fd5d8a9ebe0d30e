"""Bodies on their way: who may bring how many at once, how much, and how long that may take.

A request has a place in the room (`room.py`) while we find out who asks and while it is answered,
and none while its body comes, since how long that takes is up to the other side. What it holds
meanwhile is counted here, for each key and for all strangers together: those are the providers who
post mail, for of them we know the address alone until the body is there.

    who brings it           at once    bytes     silence    all of it
    a key                   64         256 MB    30 s       5 minutes
    all strangers           64         256 MB    10 s       1 minute
    of whom one address     32         128 MB

Of each body 128 KB are in memory and the rest is in a file. When it is whole it is read, and of the
large ones no more than 64 MB are in memory at once; those whose bearer waits for something else do
not count there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from postroom.errors import RateLimited, TooLarge, TooSlow
from postroom.operations.keeping import KEPT_BYTES, Kept, Memory

MOST_AT_ONCE = 64
MOST_BYTES = 256 * 1024 * 1024
TURN_S = 30.0
STRANGERS = "strangers"


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whoever brings a body: one of a group that shares what is allowed."""

    name: str
    group: str
    at_once: int
    most_bytes: int
    silence_s: float
    whole_s: float


def known(key_id: str) -> Bearer:
    """One with a key of ours."""
    name = f"key {key_id}"
    return Bearer(name, name, MOST_AT_ONCE, MOST_BYTES, silence_s=30.0, whole_s=300.0)


def stranger(address: str) -> Bearer:
    """One of whom we know no more than the address."""
    at_once, most_bytes = MOST_AT_ONCE // 2, MOST_BYTES // 2
    name = _neighbourhood(address)
    return Bearer(name, STRANGERS, at_once, most_bytes, silence_s=10.0, whole_s=60.0)


def _neighbourhood(address: str) -> str:
    """Whoever has one address of IPv6 has all of its network."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"network {ip_network((parsed, 64), strict=False)}"
    return f"address {parsed}"


@dataclass(slots=True)
class Arrivals:
    """Takes bodies in until they are whole."""

    folder: Path
    memory: Memory = field(default_factory=Memory)
    coming: Counter[str] = field(default_factory=Counter)
    """Bodies on their way, of each bearer and of each group."""
    held: Counter[str] = field(default_factory=Counter)
    """Bytes of each, with those that are being answered."""

    @asynccontextmanager
    async def body(
        self, chunks: AsyncIterator[bytes], bearer: Bearer, most: int, stated: str = ""
    ) -> AsyncIterator[bytes]:
        """A whole body, for as long as the block lasts; *stated* is how long it is said to be.

        Raises:
            TooLarge: it is over the limit; the rest was not read.
            TooSlow: it did not come in time.
            RateLimited, Unavailable: others are on their way that must be finished first.
            StorageFull: there is no space for it.
        """
        if stated.isdecimal() and int(stated) > most:
            raise _too_large(most)
        kept = Kept(self.folder, most)
        try:
            with self._holding(bearer) as hold:
                with self._counted(bearer):
                    await _fill(kept, _in_time(chunks, bearer), hold)
                async with self.memory.turn(kept, TURN_S):
                    whole = await kept.read()
                    kept.close()
                    yield whole or b""
        finally:
            kept.close()

    @contextmanager
    def _holding(self, bearer: Bearer) -> Iterator[Callable[[int], None]]:
        """Count bytes until the block ends. What it gives raises RateLimited."""
        most, mine = {bearer.name: bearer.most_bytes, bearer.group: MOST_BYTES}, 0

        def hold(size: int) -> None:
            nonlocal mine
            if any(self.held[name] + size > bytes_ for name, bytes_ in most.items()):
                raise _too_many(bearer)
            self.held.update(dict.fromkeys(most, size))
            mine += size

        try:
            yield hold
        finally:
            for name in most:
                _less(self.held, name, mine)

    @contextmanager
    def _counted(self, bearer: Bearer) -> Iterator[None]:
        most = {bearer.group: MOST_AT_ONCE, bearer.name: bearer.at_once}
        if any(self.coming[name] >= at_once for name, at_once in most.items()):
            raise _too_many(bearer)
        self.coming.update(most.keys())
        try:
            yield
        finally:
            for name in most:
                _less(self.coming, name, 1)


async def _fill(kept: Kept, chunks: AsyncIterator[bytes], hold: Callable[[int], None]) -> None:
    buffer = bytearray()
    async for chunk in chunks:
        if kept.size + len(buffer) + len(chunk) > kept.most:
            raise _too_large(kept.most)
        hold(len(chunk))
        buffer += chunk
        if len(buffer) > KEPT_BYTES:
            await kept.put(bytes(buffer))
            buffer.clear()
    kept.end(bytes(buffer))


async def _in_time(chunks: AsyncIterator[bytes], bearer: Bearer) -> AsyncIterator[bytes]:
    """Each piece as it comes. Raises TooSlow."""
    loop = asyncio.get_running_loop()
    end = loop.time() + bearer.whole_s
    while True:
        try:
            async with asyncio.timeout_at(min(end, loop.time() + bearer.silence_s)):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TooSlow(
                "the body of the request did not come in time: keep no silence of "
                f"{bearer.silence_s:g} s, and send all of it within {bearer.whole_s:g} s"
            ) from None
        yield chunk


def _too_large(most: int) -> TooLarge:
    """What somebody is told who brings more than is taken."""
    return TooLarge(f"the body of the request is over the limit of {most} bytes")


def _too_many(bearer: Bearer) -> RateLimited:
    whose = "of providers" if bearer.group == STRANGERS else "of this key"
    return RateLimited(
        f"too many requests {whose} are on their way; wait for answers", retry_after=1
    )


def _less(counter: Counter[str], name: str, by: int) -> None:
    """Subtract, and forget who has nothing left."""
    counter[name] -= by
    if counter[name] <= 0:
        del counter[name]
