"""Received bytes in memory, or in a temporary file above a size; request bodies within limits."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import IO

from postroom.blocking import in_thread
from postroom.errors import RateLimited, StorageFull, TooLarge, TooSlow, Unavailable
from postroom.model.values import dataclass

MEMORY_BYTES = 128 * 1024
MAX_BYTES_AT_ONCE = 64 * 1024 * 1024
_RELEASE: ContextVar[Callable[[], None] | None] = ContextVar("release", default=None)


def release() -> None:
    """Release the memory budget of the current request, which is going to wait."""
    if (free := _RELEASE.get()) is not None:
        free()


@dataclass(slots=True)
class SpooledBytes:
    """The bytes received so far; none are kept above `max_bytes`."""

    folder: Path
    max_bytes: int
    size: int = 0
    _tail: bytes = b""
    _file: IO[bytes] | None = None
    _failure: OSError | None = None

    @property
    def is_large(self) -> bool:
        return self._file is not None

    async def put(self, data: bytes) -> None:
        """Append bytes to the file."""
        await in_thread(self._put, data)

    def end(self, data: bytes) -> None:
        """Append the last bytes, which stay in memory."""
        self._tail = data
        self.size += len(data)

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        try:
            if self.size > self.max_bytes or self._failure is not None:
                self.close()
                return
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed by us
            self._file.write(data)
        except OSError as error:
            self._failure = error
            self.close()

    async def read(self) -> bytes | None:
        """All bytes; None if there are more than `max_bytes`. Raises StorageFull."""
        return await in_thread(self._read) if self.is_large else self._whole(self._tail)

    def _whole(self, data: bytes) -> bytes | None:
        if self._failure is not None:
            reason = self._failure.strerror
            raise StorageFull(f"the received bytes could not be written to disk: {reason}")
        return None if self.size > self.max_bytes else data

    def _read(self) -> bytes | None:
        assert self._file is not None
        try:
            self._file.write(self._tail)
            self._file.seek(0)
            return self._whole(self._file.read())
        except OSError as error:
            self._failure = error
            return self._whole(b"")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class MemoryBudget:
    """How many bytes of spooled files are in memory at once."""

    _held: int = 0
    _next: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def reserve(
        self, spooled: SpooledBytes, within_s: float | None = None
    ) -> AsyncIterator[None]:
        """Wait until there is memory for a spooled file, in order of arrival.

        The memory is held until the block ends, or until `release` is called in it.

        Raises:
            Unavailable: there was none *within_s*.
        """
        size = min(spooled.size, MAX_BYTES_AT_ONCE) if spooled.is_large else 0
        if size:
            await self._take(size, within_s)

        def free() -> None:
            nonlocal size
            self._held -= size
            size = 0
            self._freed.set()

        before = _RELEASE.set(free)
        try:
            yield
        finally:
            _RELEASE.reset(before)
            free()

    async def _take(self, size: int, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s), self._next:
                while self._held + size > MAX_BYTES_AT_ONCE:
                    self._freed.clear()
                    await self._freed.wait()
                self._held += size
        except TimeoutError:
            raise Unavailable(
                "the server is at capacity; try again in 5 s", retry_after=5
            ) from None


MAX_AT_ONCE = 64
MAX_BYTES = 256 * 1024 * 1024
MEMORY_WAIT_S = 30.0
KEYLESS_CLIENTS = "clients without a key"


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The sender of a body, and the limits of its group."""

    name: str
    group: str
    at_once: int
    max_bytes: int
    silence_s: float
    whole_s: float


def keyed_client(key_id: str) -> BodyLimits:
    """A caller with a key."""
    name = f"key {key_id}"
    return BodyLimits(name, name, MAX_AT_ONCE, MAX_BYTES, silence_s=30.0, whole_s=300.0)


def keyless_client(address: str) -> BodyLimits:
    """A sender that is known by its address only."""
    at_once, max_bytes = MAX_AT_ONCE // 2, MAX_BYTES // 2
    name = _network_of(address)
    return BodyLimits(name, KEYLESS_CLIENTS, at_once, max_bytes, silence_s=10.0, whole_s=60.0)


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
        self, chunks: AsyncIterator[bytes], sender: BodyLimits, max_bytes: int, stated: str = ""
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
                async with self.memory.reserve(spooled, MEMORY_WAIT_S):
                    whole = await spooled.read()
                    spooled.close()
                    yield whole or b""
        finally:
            spooled.close()

    @contextmanager
    def _holding(self, sender: BodyLimits) -> Iterator[Callable[[int], None]]:
        """Count bytes until the block ends. The function it yields raises RateLimited."""
        max_bytes, held_here = {sender.name: sender.max_bytes, sender.group: MAX_BYTES}, 0

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
    def _counted(self, sender: BodyLimits) -> Iterator[None]:
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


async def _with_timeouts(chunks: AsyncIterator[bytes], sender: BodyLimits) -> AsyncIterator[bytes]:
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
                "the request body was not received in time: send data at least every "
                f"{sender.silence_s:g} s, and all of it within {sender.whole_s:g} s"
            ) from None
        yield chunk


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request body is over the limit of {max_bytes} bytes")


def _too_many(sender: BodyLimits) -> RateLimited:
    whose = "of providers" if sender.group == KEYLESS_CLIENTS else "of this key"
    return RateLimited(
        f"too many requests {whose} are being received; wait for responses", retry_after=1
    )
