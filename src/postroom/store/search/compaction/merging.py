"""Compaction: runs merge jobs in the background, with short write transactions.

All work is done in the thread of `Engine.scan`, because each thread keeps memory it has used.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from postroom.store.search.compaction import jobs
from postroom.store.search.compaction.jobs import LEASE_S, Job, LeaseLost
from postroom.store.search.compaction.policy import DEFAULT_POLICY, PURGE_POLICY, MergePolicy
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.segment import COLUMNS, Kind, SegmentRow
from postroom.store.sql.values import any_of, caseless, from_text
from postroom.store.transaction import Engine, Row, Transaction

if TYPE_CHECKING:
    from postroom.store.search.segments.builder import SegmentBuilder

_READ_BATCH = 256
_WRITE_BYTES, _SETS_BATCH = 1 << 19, 500
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.004, 0.1
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


async def compact(
    engine: Engine, policy: MergePolicy = DEFAULT_POLICY, now: Callable[[], float] = time.time
) -> bool:
    """Do one piece of work on the index; return whether there may be more.

    Any number of tasks and processes can call this at the same time; see `jobs`.
    """
    if not await engine.read(lambda tx: jobs.has_work(tx, policy, int(now()))):
        return False
    job, has_cleaned = await _write(engine, lambda tx: _begin(tx, policy, int(now())))
    if job is None:
        return has_cleaned
    renewing = asyncio.create_task(_keep_lease(engine, job, now))
    try:
        await _build(engine, job, policy, now)
    except LeaseLost:
        return False
    except BaseException:
        await asyncio.shield(engine.write(lambda tx: jobs.release(tx, job)))
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
    for find_old, find_all in (
        (jobs.building_segments, jobs.building_segments),
        (jobs.segments_with_tombstones, jobs.all_segments),
    ):
        numbers = set(await engine.read(find_old))
        while numbers & set(await engine.read(find_all)):
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

    builder, sets = SegmentBuilder(), Membership()
    numbers = list(job.messages) or await engine.scan(lambda tx: live_messages(tx, job.sources))
    for first in range(0, len(numbers), _READ_BATCH):
        some = numbers[first : first + _READ_BATCH]
        rows = await engine.scan(partial(read_messages, numbers=some))
        await engine.compute(partial(add_messages, builder, sets, rows))
        if builder.text_bytes > policy.max_bytes and job.messages:
            await engine.write(partial(jobs.release_after, job=job, last=some[-1]))
            break
    built = builder.built()
    segment_rows = builder.rows() if built.size else iter(())
    while batch := await engine.compute(partial(_batch, segment_rows)):
        await _write(engine, partial(jobs.write_rows, job=job, rows=batch, now=int(now())))
    encoded = builder.sets | await engine.compute(partial(sets.encode, builder))
    for first in range(0, len(encoded), _SETS_BATCH):
        batch_of_sets = list(encoded.items())[first : first + _SETS_BATCH]
        await _write(engine, partial(jobs.write_sets, job=job, sets=batch_of_sets, now=int(now())))
    await _write(engine, lambda tx: jobs.finish(tx, job, built, int(now())))


async def _write(engine: Engine, work: Callable[[Transaction], T]) -> T:
    """Write, then wait as long as the write took, so that other writers get their turn."""
    started = time.monotonic()
    result = await engine.write(work)
    await asyncio.sleep(min(max(time.monotonic() - started, _MIN_PAUSE_S), _MAX_PAUSE_S))
    return result


def live_messages(tx: Transaction, sources: Sequence[int]) -> list[int]:
    """The messages of some segments without tombstones."""
    found: list[int] = []
    for source in sources:
        numbers, tombstones = messages_by_doc_id(tx, source), message_sets.tombstones(tx, source)
        found += [number for doc_id, number in enumerate(numbers) if doc_id not in tombstones]
    return sorted(found)


def messages_by_doc_id(tx: Transaction, segment: int) -> array[int]:
    """All messages of a segment, including removed ones."""
    row = tx.one(NUMBERS, segment=segment, kind=Kind.DOC_VALUES, key=b"")
    return array("q", row[0] if row else b"")


def read_messages(tx: Transaction, numbers: Sequence[int]) -> list[Row]:
    among, params = any_of("number", numbers)
    return tx.all(MESSAGES.format(among=among), **params)


def add_messages(builder: SegmentBuilder, sets: Membership, rows: Sequence[Row]) -> None:
    if rows:
        builder.add([row[:5] for row in rows])
        sets.add(rows)


def _batch(rows: Iterator[SegmentRow]) -> list[SegmentRow]:
    """As many rows as one short transaction writes."""
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += len(row.key) + len(row.value) + 50
        if size >= _WRITE_BYTES:
            break
    return batch


class Membership:
    """Collects the members of each set."""

    def __init__(self) -> None:
        self._members: dict[str, list[int]] = {}

    def add(self, rows: Sequence[Row]) -> None:
        for number, *_, inbox, is_hidden, has_attachment, mailboxes, labels in rows:
            names = message_sets.mutable_sets(
                is_hidden=bool(is_hidden),
                mailboxes=map(caseless, from_text(mailboxes)),
                labels=map(caseless, from_text(labels)),
            )
            names.add(message_sets.inbox_set(inbox))
            if has_attachment:
                names.add(message_sets.HAS_ATTACHMENT)
            for name in names:
                self._members.setdefault(name, []).append(number)

    def encode(self, builder: SegmentBuilder) -> dict[str, bytes]:
        """All sets, encoded."""
        doc_ids = builder.doc_ids()
        return {
            name: builder.encode_members([doc_ids[number] for number in members])
            for name, members in sorted(self._members.items())
        }
