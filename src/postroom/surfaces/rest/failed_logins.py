"""Rate limits of wrong keys by network address, so that guessing is slow.

    score of an address     response to a wrong key
    up to 10                401 at once
    up to 20                401 after a delay of 0.1 s, growing to 1 s
    more                    429 with `Retry-After` after 1 s, without a lookup

A wrong key adds 1 to the score, and the score falls by 0.5 per second, so about one key in 2 s is
looked up in the long run, however many connections there are. Lookups in progress do not count, so
that many clients may start at once. Repeating one of the last four wrong keys reveals nothing, and
clients with an old key do it: they are answered after 0.1 s.

A key that was valid from the same address within a day is always looked up without delay. Any other
key is looked up if the score allows it; otherwise it gets 429 like a guess. The same key is looked
up when it comes again after `Retry-After`, whatever came in between, because a guess is a new key
each time. Of these retries 10 are looked up at once, then one in 2 s; retrying too early changes
nothing.

All addresses together have a score too, with ten times the limits, against guessing from many
addresses: it only adds delay. When too many requests are delayed already, the next gets 429.

The scores are a table in memory shared by the processes of a server. A row is 8 words of 8 bytes:

    hash of the address (0: unused) | score | time of the score | time of the last log line | 4 keys

The hash selects a set of `_WAYS` rows, of which the oldest is replaced. Two processes that write at
the same time may lose a count, and nothing else. Valid keys are in a table of the same kind: a row
is the hash of address and key, and the time of its last use.
"""

from __future__ import annotations

import asyncio
import logging
import math
import mmap
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from postroom.errors import RateLimited, Unauthenticated

log = logging.getLogger(__name__)

FREE, MOST = 10, 20
"""The scores up to which a wrong key is answered without delay, and up to which it is looked up."""

_DECAY_PER_S = 0.5
_MIN_DELAY_S, _MAX_DELAY_S = 0.1, 1.0
_HIGHEST, _MORE = 60, 5
"""The highest score, and how far above `MOST` keys without a lookup raise it (10 s of decay)."""

_ALL_FACTOR = 10
"""The factor for the limit of all addresses together."""

_MAX_LOOKUPS = 256
"""Different keys that a process looks up at the same time, besides recently valid ones."""

_LOG_EVERY_S = 60.0
_MAX_LOG_LINES = 20
"""The maximum of log lines in that time, over all addresses."""

_ROWS, _WAYS, _FIELDS, _WORD = 4_096, 8, 8, 8
_SCORE, _AT, _LOGGED, _KEYS = 1, 2, 3, 4
_VALID_FOR_S = 86_400.0
_RETRY_WITHIN_S = 600.0
"""How long after its `Retry-After` a retry of a refused key is recognized."""


class TooManyKeys(RateLimited):
    """A key was not looked up because too many wrong keys came before it."""


class ValidKeys:
    """Keys that were valid recently, by address; the oldest are replaced."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, _ROWS * 2 * _WORD)).cast("q")
        self._numbers = memoryview(self._words.obj).cast("d")

    def has(self, name: int, now: float) -> bool:
        """Whether this key was valid within a day; records this use."""
        for at in self._slots(name):
            if self._words[at] == name and now < self._numbers[at + 1] + _VALID_FOR_S:
                self._numbers[at + 1] = now
                return True
        return False

    def add(self, name: int, now: float) -> None:
        """Add a key in place of the oldest."""
        oldest = min(self._slots(name), key=lambda at: self._numbers[at + 1])
        self._words[oldest], self._numbers[oldest + 1] = name, now

    def remove(self, name: int) -> None:
        """Remove a key that is no longer valid."""
        for at in self._slots(name):
            if self._words[at] == name:
                self._words[at], self._numbers[at + 1] = 0, 0.0

    @staticmethod
    def _slots(name: int) -> range:
        first = name % (_ROWS // _WAYS) * _WAYS * 2
        return range(first, first + _WAYS * 2, 2)


class RefusedKeys(ValidKeys):
    """Keys that were not looked up, by address, and when they may be retried."""

    def retry_at(self, name: int) -> float | None:
        """When this key may be retried; None if it was not refused recently."""
        for at in self._slots(name):
            if self._words[at] == name:
                return self._numbers[at + 1]
        return None


class Attempts:
    """The table of a server; created before its processes are forked."""

    def __init__(self, max_delayed: int, clock: Callable[[], float] = time.monotonic) -> None:
        size = (_ROWS + 1) * _FIELDS
        # One more row for all addresses together, which is never replaced.
        self._words = memoryview(mmap.mmap(-1, size * _WORD)).cast("q")
        self._numbers = memoryview(self._words.obj).cast("d")
        self._clock, self._salt = clock, secrets.token_bytes(16)
        # A process delays only so many requests at once.
        self._delayed, self._max_delayed = 0, max_delayed
        self._lookups, self._valid = Counter[int](), ValidKeys()
        self._refused = RefusedKeys()
        self._logged: list[float] = []

    @contextmanager
    def lookup(self, address: str, key: str) -> Iterator[None]:
        """Run the lookup of a key in this block; a key that is found counts as valid from now on.

        Raises:
            TooManyKeys: the key must not be looked up now.
        """
        network, now = network_of(address), self._clock()
        name = self._hash(f"{network} {key}")
        if self._valid.has(name, now):
            try:
                yield
            except Unauthenticated:
                self._valid.remove(name)
                raise
            return
        is_retry = name not in self._lookups and self._check(network, key, name, now)
        self._lookups[name] += 1
        try:
            yield
        finally:
            # A wrong key is counted by `refuse`, which the caller calls next.
            self._lookups[name] -= 1
            if not self._lookups[name]:
                del self._lookups[name]
        self._valid.add(name, now)
        if is_retry:  # the refused key was not a guess
            row = self._row(network, now)
            self._set(row, max(0.0, self._score(row, now) - 1), now)

    def _check(self, network: str, key: str, name: int, now: float) -> bool:
        """Refuse the lookup of a key after too many wrong ones, or during too many lookups.

        Returns whether the key is a retry after its `Retry-After`.
        """
        row = self._row(network, now)
        if self._hash(key) in self._recent_keys(row):
            return False
        if self._is_retry(network, name, now):
            return True
        score = min(self._score(row, now) + 1, MOST + _MORE)
        if score > MOST:
            self._set(row, score, now)
            self._log(network, row, score, now)
            retry_after_s = math.ceil((score - MOST) / _DECAY_PER_S)
            self._refused.add(name, now + retry_after_s)
            raise _limited("from this address", retry_after_s)
        overall = (self._score(_ROWS, now) + 1) / _ALL_FACTOR
        is_full = self._delayed >= self._max_delayed or len(self._lookups) >= _MAX_LOOKUPS
        if is_full and max(score, overall) > FREE:
            raise _limited("at the same time", 1)
        return False

    def _is_retry(self, network: str, name: int, now: float) -> bool:
        """Whether this key was refused before, and is retried after its `Retry-After`.

        Raises:
            TooManyKeys: it is retried too early, or there are too many retries.
        """
        retry_at = self._refused.retry_at(name)
        if retry_at is None or now >= retry_at + _RETRY_WITHIN_S:
            return False
        if now < retry_at:
            raise _limited("from this address", math.ceil(retry_at - now))
        row = self._row(f"{network} again", now)
        if self._score(row, now) + 1 > FREE:
            retry_after_s = math.ceil(1 / _DECAY_PER_S)
            self._refused.remove(name)
            self._refused.add(name, now + retry_after_s)
            raise _limited("from this address", retry_after_s)
        self._add(row, now, FREE)
        self._refused.remove(name)
        return True

    async def pause(self) -> None:
        """Delay the response to a key that was not looked up, which slows its next attempt."""
        if self._delayed < self._max_delayed:
            await self._delay_response(_MAX_DELAY_S)

    async def refuse(self, address: str, key: str) -> None:
        """Count a wrong key from an address, and delay the response.

        Raises:
            RateLimited: too many wrong keys came from there, or too many requests are delayed.
        """
        network, now = network_of(address), self._clock()
        row = self._row(network, now)
        is_new = self._is_new(row, key)
        score = self._add(row, now, _HIGHEST if is_new else FREE + 1)
        self._log(network, row, score, now)
        if not is_new:
            await self._delay_response(min(_MIN_DELAY_S, _delay(score)))
            return
        overall = self._add(_ROWS, now, _HIGHEST * _ALL_FACTOR) / _ALL_FACTOR
        await self._delay_response(_delay(max(score, overall)))
        if score > MOST:
            raise _limited("from this address", math.ceil((score - MOST) / _DECAY_PER_S))

    async def _delay_response(self, seconds: float) -> None:
        if not seconds:
            return
        if self._delayed >= self._max_delayed:
            raise _limited("at the same time", 1)
        self._delayed += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed -= 1

    def _row(self, network: str, now: float) -> int:
        """The row of an address; a new one replaces the oldest."""
        name = self._hash(network)
        first = name % (_ROWS // _WAYS) * _WAYS
        rows = range(first, first + _WAYS)
        for row in rows:
            if self._words[row * _FIELDS] == name:
                return row
        oldest = min(rows, key=lambda row: self._numbers[row * _FIELDS + _AT])
        at = oldest * _FIELDS
        self._words[at] = name
        for key in range(at + _KEYS, at + _FIELDS):
            self._words[key] = 0
        self._numbers[at + _SCORE], self._numbers[at + _AT], self._numbers[at + _LOGGED] = 0, now, 0
        return oldest

    def _recent_keys(self, row: int) -> list[int]:
        """The hashes of the last wrong keys of a row."""
        end = (row + 1) * _FIELDS
        return list(self._words[end - _FIELDS + _KEYS : end])

    def _is_new(self, row: int, key: str) -> bool:
        """Whether a key is none of the last wrong keys of a row; adds it then."""
        name, end = self._hash(key), (row + 1) * _FIELDS
        keys = self._recent_keys(row)
        if name in keys:
            return False
        for at, kept in enumerate([name, *keys[:-1]], end - len(keys)):
            self._words[at] = kept
        return True

    def _hash(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        return (
            int.from_bytes(blake2b(data, digest_size=8, key=self._salt).digest(), "big") >> 1 or 1
        )

    def _score(self, row: int, now: float) -> float:
        at = row * _FIELDS
        decay = max(0.0, now - self._numbers[at + _AT]) * _DECAY_PER_S
        if row == _ROWS:
            decay *= _ALL_FACTOR
        return max(0.0, self._numbers[at + _SCORE] - decay)

    def _add(self, row: int, now: float, most: float) -> float:
        before = self._score(row, now)
        score = max(before, min(most, before + 1))
        self._set(row, score, now)
        return score

    def _set(self, row: int, score: float, now: float) -> None:
        at = row * _FIELDS
        self._numbers[at + _SCORE], self._numbers[at + _AT] = score, now

    def _log(self, network: str, row: int, score: float, now: float) -> None:
        """Log an address with many wrong keys: once a minute, and 20 addresses a minute at most."""
        logged = row * _FIELDS + _LOGGED
        if score <= FREE or (self._numbers[logged] and now < self._numbers[logged] + _LOG_EVERY_S):
            return
        self._logged = [at for at in self._logged if now < at + _LOG_EVERY_S]
        if len(self._logged) < _MAX_LOG_LINES:
            self._logged.append(now)
            self._numbers[logged] = now
            log.warning(
                "authentication.failed", extra={"address": network, "wrong_keys": int(score)}
            )


def _limited(why: str, seconds: int) -> TooManyKeys:
    return TooManyKeys(f"too many wrong keys {why}; try again in {seconds} s", retry_after=seconds)


def network_of(address: str) -> str:
    """The network that an address is counted under: itself, or its /64 for IPv6."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> 64 << 64)}/64"


def _delay(score: float) -> float:
    return 0.0 if score <= FREE else min(_MAX_DELAY_S, _MIN_DELAY_S * 1.3 ** (score - FREE - 1))
