"""Compaction: runs merge jobs in the background, with short write transactions.

All work is done in the thread of `Engine.scan`, because each thread keeps memory it has used.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from postroom.extras import is_installed
from postroom.store.search.compaction import jobs
from postroom.store.search.compaction.jobs import (
    DEFAULT_POLICY,
    LEASE_S,
    PURGE_POLICY,
    Job,
    LeaseLost,
    MergePolicy,
)
from postroom.store.search.segments.messages import live_messages, read_messages
from postroom.store.search.segments.segment import BUILDING, SegmentRow, segment_numbers
from postroom.store.transaction import Engine, Transaction

_READ_BATCH = 256
_WRITE_BYTES, _SETS_BATCH = 1 << 19, 500
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.004, 0.1
T = TypeVar("T")


async def compact(
    engine: Engine, policy: MergePolicy = DEFAULT_POLICY, now: Callable[[], float] = time.time
) -> bool:
    """Do one piece of work on the index; return whether there may be more.

    Any number of tasks and processes can call this at the same time; see `jobs`. Without numpy no
    segment is built, and mail stays in the buffer until a process that has it does this.
    """
    can_build = is_installed("index")
    has_work = jobs.has_work if can_build else jobs.has_work_without_building
    if not await engine.read(lambda tx: has_work(tx, policy, int(now()))):
        return False
    if not can_build:
        return await _write(
            engine, lambda tx: jobs.return_segment_to_buffer(tx, policy, int(now()))
        )
    job, has_cleaned = await _write(engine, lambda tx: _begin(tx, policy, int(now())))
    if job is None:
        return has_cleaned
    renewing = asyncio.create_task(_keep_lease(engine, job, now))
    try:
        await _build(engine, job, policy, now)
    except LeaseLost:
        return False
    except BaseException:
        await asyncio.shield(engine.write(lambda tx: jobs.release(tx, job, int(now()))))
        raise
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    return True


def _begin(tx: Transaction, policy: MergePolicy, now: int) -> tuple[Job | None, bool]:
    """Claim a job; without one, delete some dropped rows, and return whether there were any."""
    job = jobs.claim(tx, secrets.token_hex(8), policy, now)
    return job, job is None and jobs.delete_dropped_rows(tx)


async def purge(engine: Engine, now: Callable[[], float] = time.time) -> None:
    """Rewrite all segments with tombstones, so that no deleted text is left in the index.

    A segment that is being built can contain deleted messages, too.
    """
    building = partial(segment_numbers, state=BUILDING)
    for find, find_remaining in (
        (building, building),
        (jobs.segments_with_tombstones, segment_numbers),
    ):
        numbers = set(await engine.read(find))
        while numbers & set(await engine.read(find_remaining)):
            if not await compact(engine, PURGE_POLICY, now):
                await asyncio.sleep(_MAX_PAUSE_S)


async def _keep_lease(engine: Engine, job: Job, now: Callable[[], float]) -> None:
    """Renew the lease between writes, which can be far apart."""
    while True:
        await asyncio.sleep(LEASE_S / 6)
        await engine.write(lambda tx: jobs.renew(tx, job, int(now())))


async def _build(engine: Engine, job: Job, policy: MergePolicy, now: Callable[[], float]) -> None:
    # numpy is only loaded if there is something to merge.
    from postroom.store.search.segments.builder import SegmentBuilder

    builder = SegmentBuilder()
    numbers = list(job.messages) or await engine.scan(lambda tx: live_messages(tx, job.sources))
    for first in range(0, len(numbers), _READ_BATCH):
        some = numbers[first : first + _READ_BATCH]
        rows = await engine.scan(partial(read_messages, numbers=some))
        await engine.compute(partial(builder.add, rows))
        if builder.text_bytes > policy.max_bytes and job.messages:
            await engine.write(partial(jobs.release_after, job=job, last=some[-1]))
            break
    built = builder.built()
    segment_rows = builder.rows() if built.size else iter(())
    while batch := await engine.compute(partial(_batch, segment_rows)):
        await _write(engine, partial(jobs.write_rows, job=job, rows=batch, now=int(now())))
    sets = list((await engine.compute(builder.sets)).items())
    for first in range(0, len(sets), _SETS_BATCH):
        batch_of_sets = sets[first : first + _SETS_BATCH]
        await _write(engine, partial(jobs.write_sets, job=job, sets=batch_of_sets, now=int(now())))
    await _write(engine, lambda tx: jobs.finish(tx, job, built, int(now())))


async def _write(engine: Engine, work: Callable[[Transaction], T]) -> T:
    """Write, then wait as long as the write took, so that other writers get their turn."""
    started = time.monotonic()
    result = await engine.write(work)
    await asyncio.sleep(min(max(time.monotonic() - started, _MIN_PAUSE_S), _MAX_PAUSE_S))
    return result


def _batch(rows: Iterator[SegmentRow]) -> list[SegmentRow]:
    """As many rows as one short transaction writes."""
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += len(row.key) + len(row.value) + 50
        if size >= _WRITE_BYTES:
            break
    return batch
