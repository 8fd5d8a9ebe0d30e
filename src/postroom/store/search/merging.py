"""Merging in the background: the work is done beside all transactions but short ones that write.

It is done in one thread, the one that scans: each thread keeps some of the memory it had.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from postroom.store.search.choice import AT_ONCE, SIZES, Sizes
from postroom.store.search.jobs import (
    LEASE_S,
    Job,
    Overtaken,
    all_numbers,
    building_numbers,
    claim,
    decayed_numbers,
    finish,
    give_up,
    has_work,
    put_rows,
    put_sets,
    release_after,
    renew,
)
from postroom.store.search.kinds import COLUMNS, Kind, SegmentRow
from postroom.store.search.sets import (
    READ_SET,
    REMOVED,
    WITH_FILE,
    inbox_set,
    moving_sets,
    places_in,
)
from postroom.store.search.sweeping import sweep
from postroom.store.sql.values import any_of, caseless, from_text
from postroom.store.transaction import Engine, Row, Transaction

if TYPE_CHECKING:
    from postroom.store.search.build import SegmentBuilder

_READ_AT_ONCE = 256
_WRITE_BYTES, _SETS_AT_ONCE = 1 << 19, 500
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.004, 0.1
T = TypeVar("T")

NUMBERS = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key = :key AND part = 1
"""
MESSAGES = f"""
    SELECT m.number, m.date, {", ".join(f"b.{column}" for column in COLUMNS)},
           m.inbox, m.is_hidden, m.has_attachment, m.mailboxes, m.labels
      FROM messages m JOIN search_texts b ON +b.inbox = +m.inbox AND b.message = m.number
     WHERE m.number {{among}} ORDER BY m.number
"""


async def merge_once(
    engine: Engine, sizes: Sizes = SIZES, now: Callable[[], float] = time.time
) -> bool:
    """Do one piece of work on the index; say whether there is more.

    Any number may call this at any time, in this process and in others: none does what another is
    at, see `jobs`.
    """
    if not await engine.read(lambda tx: has_work(tx, sizes, int(now()))):
        return False
    job, has_swept = await _write(engine, lambda tx: _begin(tx, sizes, int(now())))
    if job is None:
        return has_swept
    renewing = asyncio.create_task(_renew_often(engine, job, now))
    try:
        await _build(engine, job, sizes, now)
    except Overtaken:
        return False
    except BaseException:
        await asyncio.shield(engine.write(lambda tx: give_up(tx, job)))
        raise
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    return True


def _begin(tx: Transaction, sizes: Sizes, now: int) -> tuple[Job | None, bool]:
    """Take the next job; if there is none, sweep a little, and say whether there was anything."""
    job = claim(tx, secrets.token_hex(8), sizes, now)
    return job, job is None and sweep(tx)


async def purge(engine: Engine, now: Callable[[], float] = time.time) -> None:
    """Make all segments anew of which messages were removed, beside whoever else merges.

    A segment that is being made now may have such messages in it, too.
    """
    for of_interest, remaining in (
        (building_numbers, building_numbers),
        (decayed_numbers, all_numbers),
    ):
        numbers = set(await engine.read(of_interest))
        while numbers & set(await engine.read(remaining)):
            if not await merge_once(engine, AT_ONCE, now):
                await asyncio.sleep(_MOST_PAUSE_S)


async def _renew_often(engine: Engine, job: Job, now: Callable[[], float]) -> None:
    """Say again and again that we are at work, which may be long between two writes."""
    while True:
        await asyncio.sleep(LEASE_S / 6)
        await engine.write(lambda tx: renew(tx, job, int(now())))


async def _build(engine: Engine, job: Job, sizes: Sizes, now: Callable[[], float]) -> None:
    # numpy is loaded only where there is something to merge
    from postroom.store.search.build import SegmentBuilder

    builder, sets = SegmentBuilder(), Membership()
    numbers = list(job.messages) or await engine.scan(lambda tx: job_messages(tx, job.sources))
    for first in range(0, len(numbers), _READ_AT_ONCE):
        some = numbers[first : first + _READ_AT_ONCE]
        rows = await engine.scan(partial(read_messages, numbers=some))
        await engine.compute(partial(_take, builder, sets, rows))
        if builder.text_bytes > sizes.most_bytes and job.messages:
            await engine.write(_releaser(job, some[-1]))
            break
    made = builder.made()
    rows_of = builder.rows() if made.size else iter(())
    while batch := await engine.compute(partial(_batch, rows_of)):
        await _write(engine, _writer(job, batch, int(now())))
    encoded = builder.sets | await engine.compute(partial(sets.encoded, builder))
    ready = list(encoded.items())
    for first in range(0, len(ready), _SETS_AT_ONCE):
        await _write(engine, _setter(job, ready[first : first + _SETS_AT_ONCE], int(now())))
    await _write(engine, lambda tx: finish(tx, job, made, int(now())))


async def _write(engine: Engine, work: Callable[[Transaction], T]) -> T:
    """Write, then wait for as long as it took: other processes want to write as well."""
    started = time.monotonic()
    result = await engine.write(work)
    await asyncio.sleep(min(max(time.monotonic() - started, _LEAST_PAUSE_S), _MOST_PAUSE_S))
    return result


def job_messages(tx: Transaction, sources: Sequence[int]) -> list[int]:
    """The messages of some segments that were not removed."""
    found: list[int] = []
    for source in sources:
        numbers = ordered_messages(tx, source)
        removed = tx.one(READ_SET, name=REMOVED, segment=source)
        gone = set(places_in(removed[0])) if removed else set[int]()
        found += [number for place, number in enumerate(numbers) if place not in gone]
    return sorted(found)


def ordered_messages(tx: Transaction, segment: int) -> array[int]:
    """All messages of a segment, by their places, the removed ones too."""
    row = tx.one(NUMBERS, segment=segment, kind=Kind.ORDER, key=b"")
    return array("q", row[0] if row else b"")


def read_messages(tx: Transaction, numbers: Sequence[int]) -> list[Row]:
    """What the index needs to know of some messages."""
    among, params = any_of("number", numbers)
    return tx.all(MESSAGES.format(among=among), **params)


def _releaser(job: Job, last: int) -> Callable[[Transaction], None]:
    return lambda tx: release_after(tx, job, last)


def _writer(job: Job, rows: Sequence[SegmentRow], now: int) -> Callable[[Transaction], None]:
    return lambda tx: put_rows(tx, job, rows, now)


def _setter(job: Job, sets: Sequence[tuple[str, bytes]], now: int) -> Callable[[Transaction], None]:
    return lambda tx: put_sets(tx, job, sets, now)


def _take(builder: SegmentBuilder, sets: Membership, rows: Sequence[Row]) -> None:
    if rows:
        builder.add([row[:5] for row in rows])
        sets.add(rows)


def _batch(rows: Iterator[SegmentRow]) -> list[SegmentRow]:
    """As many rows as one short transaction may write."""
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += len(row.key) + len(row.value) + 50
        if size >= _WRITE_BYTES:
            break
    return batch


class Membership:
    """Which messages are in which sets."""

    def __init__(self) -> None:
        self._members: dict[str, list[int]] = {}

    def add(self, rows: Sequence[Row]) -> None:
        """Take what is known of some messages."""
        for number, *_, inbox, is_hidden, has_attachment, mailboxes, labels in rows:
            names = moving_sets(
                is_hidden=bool(is_hidden),
                mailboxes=map(caseless, from_text(mailboxes)),
                labels=map(caseless, from_text(labels)),
            )
            names.add(inbox_set(inbox))
            if has_attachment:
                names.add(WITH_FILE)
            for name in names:
                self._members.setdefault(name, []).append(number)

    def encoded(self, builder: SegmentBuilder) -> dict[str, bytes]:
        """Every set as it is written."""
        places = builder.places()
        return {
            name: builder.encoded([places[number] for number in members])
            for name, members in sorted(self._members.items())
        }
