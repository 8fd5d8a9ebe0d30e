"""Failed logins, counted by address, so that guessing is slow.

    score of an address     what a wrong key gets
    up to 10                401 at once
    up to 20                401 after a while: 0.1 s, and longer with each, up to 1 s
    more                    429 with `Retry-After`, after 1 s, without being looked up

Each wrong key adds 1, and each second takes 0.5 away: no more than that are looked up for long,
over however many connections they come. Many clients can begin at once, also with the same key:
what is being looked up does not count. One of the last four wrong keys once more tells nobody
anything new, and a client that has an old key asks again and again: it waits for 0.1 s and is
answered.

A key that was right from the same address within a day is always looked up, and never kept waiting,
whatever its neighbours do. One that is right and was not used from there is looked up if the score
allows it, else it is told 429 like a guess: nobody can know which it is without looking. But the
same key is looked up when it comes again after `Retry-After`, whatever came in the meantime: a
guess is another key each time. Of those that come again, 10 are looked up at once, and then one in
2 s; asking again too early changes nothing.

All addresses together have a score as well, ten times as patient, so that many of them guess no
faster: it makes them wait. If as many wait as may, the next is told 429 at once and not looked up.

The scores are a table in memory that the processes of a server share. A row is 8 words of 8 bytes:

    hash of the address (0: unused) | score | when it was that | when the log was told | of 4 keys

A row belongs to one of `_WAYS` places chosen by the hash; the one that is oldest makes way. Two
processes that write at the same time may lose a count, and nothing else. Right keys are in a table
of the same kind: a row is the hash of the address and the key, and when it was used.
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
"""Wrong keys that are answered at once, and those that are answered at all."""

_FORGIVEN_PER_S = 0.5
_FIRST_S, _LONGEST_S = 0.1, 1.0
_HIGHEST, _MORE = 60, 5
"""The highest score, and what keys that are not looked up add: 10 s after the last, it is over."""

_TOGETHER = 10
"""The factor for the limit of all addresses together."""

_MAX_LOOKUPS = 256
"""Different keys that a process looks up at the same time, beside those that were right lately."""

_TELL_EVERY_S = 60.0
_TOLD_AT_MOST = 20
"""Lines in the log in that time, whoever they are about."""

_ROWS, _WAYS, _FIELDS, _WORD = 4_096, 8, 8, 8
_SCORE, _AT, _TOLD, _KEYS = 1, 2, 3, 4
_RIGHT_FOR_S = 86_400.0
_RETURNS_WITHIN_S = 600.0
"""How long a key that was not looked up is known again after the time it was told."""


class TooManyKeys(RateLimited):
    """A key was not looked up because too many wrong keys came before it."""


class RightKeys:
    """Keys that were valid recently, by address; the oldest are replaced."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, _ROWS * 2 * _WORD)).cast("q")
        self._numbers = memoryview(self._words.obj).cast("d")

    def has(self, name: int, now: float) -> bool:
        """Whether this one was right within a day; it is used again now."""
        for at in self._places(name):
            if self._words[at] == name and now < self._numbers[at + 1] + _RIGHT_FOR_S:
                self._numbers[at + 1] = now
                return True
        return False

    def add(self, name: int, now: float) -> None:
        """Note one in the place of the oldest."""
        oldest = min(self._places(name), key=lambda at: self._numbers[at + 1])
        self._words[oldest], self._numbers[oldest + 1] = name, now

    def remove(self, name: int) -> None:
        """Forget one that is not right any more."""
        for at in self._places(name):
            if self._words[at] == name:
                self._words[at], self._numbers[at + 1] = 0, 0.0

    @staticmethod
    def _places(name: int) -> range:
        first = name % (_ROWS // _WAYS) * _WAYS * 2
        return range(first, first + _WAYS * 2, 2)


class RefusedKeys(RightKeys):
    """Keys that were not looked up, by address, and when they may come again."""

    def returns_at(self, name: int) -> float | None:
        """When this one may come again; None if it was not refused lately."""
        for at in self._places(name):
            if self._words[at] == name:
                return self._numbers[at + 1]
        return None


class Attempts:
    """The table of a server; made before its processes are."""

    def __init__(self, most_waiting: int, clock: Callable[[], float] = time.monotonic) -> None:
        size = (_ROWS + 1) * _FIELDS
        # One more row for all addresses together, which never makes way.
        self._words = memoryview(mmap.mmap(-1, size * _WORD)).cast("q")
        self._numbers = memoryview(self._words.obj).cast("d")
        self._clock, self._salt = clock, secrets.token_bytes(16)
        # So many of a process are kept waiting; it has others to answer.
        self._waiting, self._most_waiting = 0, most_waiting
        self._lookups, self._right = Counter[int](), RightKeys()
        self._refused = RefusedKeys()
        self._told: list[float] = []

    @contextmanager
    def lookup(self, address: str, key: str) -> Iterator[None]:
        """Look a key up inside of this, if it may be; one that is found is right from now on.

        Raises:
            TooManyKeys: it may not.
        """
        who, now = network_of(address), self._clock()
        name = self._hash(f"{who} {key}")
        if self._right.has(name, now):
            try:
                yield
            except Unauthenticated:
                self._right.remove(name)
                raise
            return
        has_waited = name not in self._lookups and self._check(who, key, name, now)
        self._lookups[name] += 1
        try:
            yield
        finally:
            # A wrong one is counted by `refuse`, which comes next.
            self._lookups[name] -= 1
            if not self._lookups[name]:
                del self._lookups[name]
        self._right.add(name, now)
        if has_waited:  # it was no guess when it was refused
            row = self._row(who, now)
            self._set(row, max(0.0, self._score(row, now) - 1), now)

    def _check(self, who: str, key: str, name: int, now: float) -> bool:
        """Refuse to look a key up while too many were wrong, or too many are looked up.

        Returns whether it was refused before and has waited since.
        """
        row = self._row(who, now)
        if self._hash(key) in self._kept(row):
            return False
        if self._has_waited(who, name, now):
            return True
        score = min(self._score(row, now) + 1, MOST + _MORE)
        if score > MOST:
            self._set(row, score, now)
            self._tell(who, row, score, now)
            wait_s = math.ceil((score - MOST) / _FORGIVEN_PER_S)
            self._refused.add(name, now + wait_s)
            raise _limited("from this address", wait_s)
        everybody = (self._score(_ROWS, now) + 1) / _TOGETHER
        is_full = self._waiting >= self._most_waiting or len(self._lookups) >= _MAX_LOOKUPS
        if is_full and max(score, everybody) > FREE:
            raise _limited("at the same time", 1)
        return False

    def _has_waited(self, who: str, name: int, now: float) -> bool:
        """Whether this key was told to come again, and has come when it was told to.

        Raises:
            TooManyKeys: it comes too early, or too many come again.
        """
        returns_at = self._refused.returns_at(name)
        if returns_at is None or now >= returns_at + _RETURNS_WITHIN_S:
            return False
        if now < returns_at:
            raise _limited("from this address", math.ceil(returns_at - now))
        row = self._row(f"{who} again", now)
        if self._score(row, now) + 1 > FREE:
            wait_s = math.ceil(1 / _FORGIVEN_PER_S)
            self._refused.remove(name)
            self._refused.add(name, now + wait_s)
            raise _limited("from this address", wait_s)
        self._add(row, now, FREE)
        self._refused.remove(name)
        return True

    async def pause(self) -> None:
        """Keep whoever was not looked up waiting, if there is room: they would ask on and on."""
        if self._waiting < self._most_waiting:
            await self._wait(_LONGEST_S)

    async def refuse(self, address: str, key: str) -> None:
        """Count a wrong key from an address, and keep its bearer waiting.

        Raises:
            RateLimited: too many came from there, or too many wait.
        """
        who, now = network_of(address), self._clock()
        row = self._row(who, now)
        is_new = self._is_new(row, key)
        score = self._add(row, now, _HIGHEST if is_new else FREE + 1)
        self._tell(who, row, score, now)
        if not is_new:
            await self._wait(min(_FIRST_S, _delay(score)))
            return
        everybody = self._add(_ROWS, now, _HIGHEST * _TOGETHER) / _TOGETHER
        await self._wait(_delay(max(score, everybody)))
        if score > MOST:
            raise _limited("from this address", math.ceil((score - MOST) / _FORGIVEN_PER_S))

    async def _wait(self, seconds: float) -> None:
        if not seconds:
            return
        if self._waiting >= self._most_waiting:
            raise _limited("at the same time", 1)
        self._waiting += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1

    def _row(self, who: str, now: float) -> int:
        """Where the score of an address is; if nowhere, in the place of the oldest."""
        name = self._hash(who)
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
        self._numbers[at + _SCORE], self._numbers[at + _AT], self._numbers[at + _TOLD] = 0, now, 0
        return oldest

    def _kept(self, row: int) -> list[int]:
        """The last wrong keys from there."""
        end = (row + 1) * _FIELDS
        return list(self._words[end - _FIELDS + _KEYS : end])

    def _is_new(self, row: int, key: str) -> bool:
        """Whether it is none of the last keys from there."""
        name, end = self._hash(key), (row + 1) * _FIELDS
        keys = self._kept(row)
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
        forgiven = max(0.0, now - self._numbers[at + _AT]) * _FORGIVEN_PER_S
        if row == _ROWS:
            forgiven *= _TOGETHER
        return max(0.0, self._numbers[at + _SCORE] - forgiven)

    def _add(self, row: int, now: float, most: float) -> float:
        before = self._score(row, now)
        score = max(before, min(most, before + 1))
        self._set(row, score, now)
        return score

    def _set(self, row: int, score: float, now: float) -> None:
        at = row * _FIELDS
        self._numbers[at + _SCORE], self._numbers[at + _AT] = score, now

    def _tell(self, who: str, row: int, score: float, now: float) -> None:
        """Write a line of an address that goes on, once in a while, and not too many of them."""
        told = row * _FIELDS + _TOLD
        if score <= FREE or (self._numbers[told] and now < self._numbers[told] + _TELL_EVERY_S):
            return
        self._told = [at for at in self._told if now < at + _TELL_EVERY_S]
        if len(self._told) < _TOLD_AT_MOST:
            self._told.append(now)
            self._numbers[told] = now
            log.warning("authentication.failed", extra={"address": who, "lately": int(score)})


def _limited(why: str, seconds: int) -> TooManyKeys:
    return TooManyKeys(f"too many wrong keys {why}; try again in {seconds} s", retry_after=seconds)


def network_of(address: str) -> str:
    """Whom an address stands for: one of IPv6 for all that its owner has, which are a /64."""
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
    return 0.0 if score <= FREE else min(_LONGEST_S, _FIRST_S * 1.3 ** (score - FREE - 1))
