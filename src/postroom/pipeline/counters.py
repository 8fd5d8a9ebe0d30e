"""Counters of what happened since the start, shared by the processes of a server.

    a part      number of words used, then the records
    a record    length of the name in bytes, number of values, the name (padded), the values

The memory is one anonymous mapping, made before the processes are forked. Each process adds to
its own part, without a lock; reading sums over all parts. A process that replaces a killed one
continues with the values of its part. Everything is a word of 8 bytes, and the number of words used
is written last, so that a reader never sees half of a record.
docs/decisions/0003-metrics.md says why this is not a library.

Calls of tools are counted in memory and written to the store once a minute. A call writes nothing
itself: every write would end what readers have cached. What a process has counted since its last
write is lost if it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, date, datetime

from postroom.errors import MailError
from postroom.model.health import CallCount

log = logging.getLogger(__name__)

Name = tuple[str, ...]
"""Never text of a caller, so that the number of names is bounded."""

PART_BYTES = 1 << 20
"""The operating system allocates a page of it when it is first written."""

_WORD = 8
_HEAD = 2


class SharedCounters:
    """Values by name: those that this process has added, and the sums over all processes."""

    def __init__(self, parts: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, parts * PART_BYTES)).cast("q")
        size = PART_BYTES // _WORD
        self._parts = [memory[n * size : (n + 1) * size] for n in range(parts)]
        self._take(0)

    def part(self, number: int) -> SharedCounters:
        """The same counters, for the process that adds to this part."""
        other = copy(self)
        other._take(number)  # noqa: SLF001 - our own class
        return other

    def _take(self, number: int) -> None:
        self._part = self._parts[number]
        self._own = dict(_records(self._part))

    def own(self, name: Name, size: int = 1) -> memoryview[int]:
        """The values under a name that this process may add to."""
        found = self._own.get(name)
        if found is None:
            found = self._own[name] = self._append("\t".join(name).encode(), size)
        return found

    def totals(self) -> dict[Name, list[int]]:
        """Every name that any process has used, with the sums."""
        found: dict[Name, list[int]] = {}
        for part in self._parts:
            for name, numbers in _records(part):
                before = found.get(name, [0] * len(numbers))
                found[name] = [a + b for a, b in zip(before, numbers, strict=True)]
        return found

    def _append(self, name: bytes, size: int) -> memoryview[int]:
        start = 1 + self._part[0]
        first = start + _HEAD + _word_count(len(name))
        end = first + size
        if end > len(self._part):
            # The part is full: the request succeeds, and is not counted.
            return memoryview(bytearray(size * _WORD)).cast("q")
        self._part[start], self._part[start + 1] = len(name), size
        filled = name.ljust(_word_count(len(name)) * _WORD, b"\0")
        self._part[start + _HEAD : first] = memoryview(filled).cast("q")
        # A process that was killed here may have left a part of its record.
        self._part[first:end] = memoryview(bytes(size * _WORD)).cast("q")
        self._part[0] = end - 1
        return self._part[first:end]


def _records(part: memoryview[int]) -> Iterator[tuple[Name, memoryview[int]]]:
    at, end = 1, 1 + part[0]
    while at < end:
        length, size = part[at], part[at + 1]
        first = at + _HEAD + _word_count(length)
        name = part[at + _HEAD : first].tobytes()[:length].decode()
        at = first + size
        yield tuple(name.split("\t")), part[first:at]


def _word_count(length: int) -> int:
    return -(-length // _WORD)


OUTCOME_COUNTERS = {
    "smtp_connections": "Connections to the SMTP listener.",
    "smtp_accepted": "Mails acknowledged over SMTP.",
    "smtp_refused": "Mails rejected permanently over SMTP.",
    "smtp_recipients_refused": "Recipients rejected over SMTP.",
    "outbox_sent": "Recipients for whom the relay accepted a mail.",
    "outbox_deferred": "Attempts that the relay deferred, by recipient.",
    "webhooks_told": "Webhook deliveries that succeeded.",
}
"""Counters of normal operation."""

FAILURE_COUNTERS = {
    "smtp_failed": "Mails that could not be stored; the sender retries.",
    "smtp_smuggled": "Mails refused for a bare newline, or for commands sent before the reply.",
    "smtp_looping": "Mails refused as a mail loop (more than 50 Received headers).",
    "smtp_limited": "Connections and mails delayed: too many from one address.",
    "parsing_failed": "Mails whose body could not be parsed within the limits; the bytes are "
    "stored.",
    "outbox_failed": "Recipients that the relay rejected permanently.",
    "outbox_unknown": "Recipients for whom it is not known whether the relay accepted the mail.",
    "outbox_bounced": "Recipients abandoned after 48 hours.",
    "outbox_errors": "Mails that could not be sent because of an internal error.",
    "outbox_claims_lost": "Mails taken over by another process because this one appeared to have "
    "stopped.",
    "outbox_unsettled": "Mails whose outcome could not be written immediately; it is retried.",
    "sync_skipped": "Mails of accounts that could not be fetched or stored.",
    "sync_failed": "Sync passes that failed; they are retried.",
    "pushes_refused": "Changes that a provider refused; the message is set back.",
    "webhooks_failed": "Webhook delivery attempts that failed.",
    "webhooks_dead": "Webhook deliveries abandoned after 24 hours.",
    "readiness_failed": "Readiness checks that could not write.",
    "tools_failed": "MCP calls that failed because of an internal error.",
}
"""Counters of failures; the same call writes each to the log."""

ALL_COUNTERS = OUTCOME_COUNTERS | FAILURE_COUNTERS
"""Every counter, with what it counts."""

_PREFIX = "counter"


class Counts:
    """Counters by name; a name that is not in the table is a bug."""

    def __init__(self, counters: SharedCounters | None = None) -> None:
        self.counters = counters or SharedCounters()

    def add(self, name: str, count: int = 1) -> None:
        if name not in OUTCOME_COUNTERS:
            raise KeyError(name)
        self.counters.own((_PREFIX, name))[0] += count

    def failed(
        self,
        name: str,
        about: Mapping[str, object],
        *,
        count: int = 1,
        cause: Exception | None = None,
    ) -> None:
        """Count a failure and log it: `smtp_failed` is `smtp.failed` in the log.

        A *cause* is an internal error, and is logged with its traceback.
        """
        if name not in FAILURE_COUNTERS:
            raise KeyError(name)
        self.counters.own((_PREFIX, name))[0] += count
        level = logging.WARNING if cause is None else logging.ERROR
        log.log(level, name.replace("_", ".", 1), extra=about, exc_info=cause)

    def totals(self) -> dict[str, int]:
        """The values of all counters."""
        found = self.counters.totals()
        return {name: sum(found.get((_PREFIX, name), ())) for name in ALL_COUNTERS}

    def __getitem__(self, name: str) -> int:
        return self.totals()[name]


WRITE_EVERY_S = 60.0
_CLOSE_S = 2.0
Write = Callable[[Sequence[CallCount]], Awaitable[None]]
_Name = tuple[date, str, str, str]


class CallCounts:
    """The calls that this process has not written yet."""

    def __init__(self, write: Write | None = None) -> None:
        self._write = write
        self._pending: dict[_Name, list[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, at: datetime, caller: str, via: str, tool: str, *, is_error: bool) -> None:
        """Count a call; it is written within a minute."""
        name = (at.astimezone(UTC).date(), caller, via, tool)
        numbers = self._pending.setdefault(name, [0, 0])
        numbers[0] += 1
        numbers[1] += is_error
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_EVERY_S, self._begin_write)

    def pending(self) -> list[CallCount]:
        """What is not written yet."""
        return [CallCount(*name, *numbers) for name, numbers in self._pending.items()]

    def _begin_write(self) -> None:
        self._timer = None
        self._writing = asyncio.ensure_future(self.write())

    async def write(self) -> None:
        """Write what was counted; if that fails, it is written with the next calls."""
        if self._write is None or not self._pending:
            return
        calls, self._pending = self.pending(), {}
        try:
            await self._write(calls)
        except MailError as error:
            log.warning("call_counts.failed", extra={"error": str(error)})
            for day, caller, via, tool, count, errors in calls:
                numbers = self._pending.setdefault((day, caller, via, tool), [0, 0])
                numbers[0] += count
                numbers[1] += errors

    async def close(self) -> None:
        """Write the rest, unless that takes long."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if self._writing is not None:
                    await self._writing
                await self.write()
