"""Request bodies: counted and bounded while they arrive, in memory or in a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from postroom.admission.spool import MEMORY_BYTES, MemoryBudget, SpooledBytes
from postroom.errors import RateLimited, TooLarge, TooSlow
from postroom.model.values import dataclass

MAX_AT_ONCE = 64
MAX_BYTES = 256 * 1024 * 1024
WAIT_FOR_TURN_S = 30.0
STRANGERS = "strangers"


@dataclass(frozen=True, slots=True)
class BodySender:
    """The sender of a body, and the limits of its group."""

    name: str
    group: str
    at_once: int
    most_bytes: int
    silence_s: float
    whole_s: float


def known(key_id: str) -> BodySender:
    """A caller with a key."""
    name = f"key {key_id}"
    return BodySender(name, name, MAX_AT_ONCE, MAX_BYTES, silence_s=30.0, whole_s=300.0)


def stranger(address: str) -> BodySender:
    """A sender that is known by its address only."""
    at_once, most_bytes = MAX_AT_ONCE // 2, MAX_BYTES // 2
    name = _network_of(address)
    return BodySender(name, STRANGERS, at_once, most_bytes, silence_s=10.0, whole_s=60.0)


def _network_of(address: str) -> str:
    """The address, or the /64 network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"network {ip_network((parsed, 64), strict=False)}"
    return f"address {parsed}"


@dataclass(slots=True)
class RequestBodies:
    """Reads bodies until they are complete."""

    folder: Path
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    arriving: Counter[str] = field(default_factory=Counter)
    """Bodies that are arriving, by sender and by group."""
    held: Counter[str] = field(default_factory=Counter)
    """Bytes by sender and by group, including those of running requests."""

    @asynccontextmanager
    async def body(
        self, chunks: AsyncIterator[bytes], sender: BodySender, max_bytes: int, stated: str = ""
    ) -> AsyncIterator[bytes]:
        """A complete body, until the block ends; *stated* is its Content-Length.

        Raises:
            TooLarge: it is over the limit; the rest was not read.
            TooSlow: it did not arrive in time.
            RateLimited, Unavailable: too many other bodies are arriving.
            StorageFull: the disk is full.
        """
        if stated.isdecimal() and int(stated) > max_bytes:
            raise _too_large(max_bytes)
        spooled = SpooledBytes(self.folder, max_bytes)
        try:
            with self._holding(sender) as hold:
                with self._counted(sender):
                    await _fill(spooled, _with_timeouts(chunks, sender), hold)
                async with self.memory.turn(spooled, WAIT_FOR_TURN_S):
                    whole = await spooled.read()
                    spooled.close()
                    yield whole or b""
        finally:
            spooled.close()

    @contextmanager
    def _holding(self, sender: BodySender) -> Iterator[Callable[[int], None]]:
        """Count bytes until the block ends. The function it yields raises RateLimited."""
        max_bytes, held_here = {sender.name: sender.most_bytes, sender.group: MAX_BYTES}, 0

        def hold(size: int) -> None:
            nonlocal held_here
            if any(self.held[name] + size > bytes_ for name, bytes_ in max_bytes.items()):
                raise _too_many(sender)
            self.held.update(dict.fromkeys(max_bytes, size))
            held_here += size

        try:
            yield hold
        finally:
            self.held -= Counter(dict.fromkeys(max_bytes, held_here))

    @contextmanager
    def _counted(self, sender: BodySender) -> Iterator[None]:
        limits = {sender.group: MAX_AT_ONCE, sender.name: sender.at_once}
        if any(self.arriving[name] >= at_once for name, at_once in limits.items()):
            raise _too_many(sender)
        self.arriving.update(limits.keys())
        try:
            yield
        finally:
            self.arriving -= Counter(limits.keys())


async def _fill(
    spooled: SpooledBytes, chunks: AsyncIterator[bytes], hold: Callable[[int], None]
) -> None:
    buffer = bytearray()
    async for chunk in chunks:
        if spooled.size + len(buffer) + len(chunk) > spooled.max_bytes:
            raise _too_large(spooled.max_bytes)
        hold(len(chunk))
        buffer += chunk
        if len(buffer) > MEMORY_BYTES:
            await spooled.put(bytes(buffer))
            buffer.clear()
    spooled.end(bytes(buffer))


async def _with_timeouts(chunks: AsyncIterator[bytes], sender: BodySender) -> AsyncIterator[bytes]:
    """Each chunk as it arrives. Raises TooSlow."""
    loop = asyncio.get_running_loop()
    end = loop.time() + sender.whole_s
    while True:
        try:
            async with asyncio.timeout_at(min(end, loop.time() + sender.silence_s)):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TooSlow(
                "the request body did not arrive in time: send some of it every "
                f"{sender.silence_s:g} s, and all of it within {sender.whole_s:g} s"
            ) from None
        yield chunk


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request body is over the limit of {max_bytes} bytes")


def _too_many(sender: BodySender) -> RateLimited:
    whose = "of providers" if sender.group == STRANGERS else "of this key"
    return RateLimited(f"too many requests {whose} are arriving; wait for responses", retry_after=1)
