"""Merge policy and merge jobs: choosing one, and the short transactions that claim and finish it.

Segments of similar size are merged, so messages are rewritten rarely. The new segment of a job
names its holder and lease; every write checks both, so a process that lost its lease changes
nothing. Beside a merge of segments, which can take minutes, the buffer and much smaller segments
are still merged, because searches scan the buffer. Segments are only merged once the rows of
earlier ones are deleted, which bounds the space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict

from postroom.errors import Conflict
from postroom.model.values import dataclass
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.message_sets import decode_set
from postroom.store.search.segments.messages import live_messages
from postroom.store.search.segments.segment import (
    BUILDING,
    CURRENT_FORMAT,
    DROPPED,
    LIVE,
    BuiltSegment,
    SegmentRow,
    find_doc_ids,
    segment_numbers,
)
from postroom.store.sql.statements import any_of
from postroom.store.transaction import Row, Transaction

_TOMBSTONE_SHARE = 8


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Sizes and delays: `buffer_docs` messages become a segment, `fan_out` segments of a level one.

    If no mail arrives for `idle_s`, `idle_buffer` messages are enough, and segments are merged
    unless the largest has more than `idle_ratio` times the messages of the smaller ones together.

    A segment with a tombstone is rewritten at an age of `tombstone_s` (`idle_tombstone_s` if idle)
    for each of its messages: deleted text soon disappears, at a bounded cost. A segment of an older
    format is rewritten if idle, or at an age of `outdated_s`.
    """

    buffer_docs: int = 512
    fan_out: int = 11
    max_docs: int = 1 << 16
    max_bytes: int = 160 << 20
    idle_s: int = 10
    idle_buffer: int = 32
    idle_ratio: int = 8
    tombstone_s: float = 1.0
    idle_tombstone_s: float = 0.25
    outdated_s: int = 86_400


DEFAULT_POLICY = MergePolicy()
BULK_POLICY = MergePolicy(buffer_docs=DEFAULT_POLICY.buffer_docs * DEFAULT_POLICY.fan_out)
"""For an import while no server runs: without the smallest segments, which would soon be merged."""
PURGE_POLICY = MergePolicy(tombstone_s=0, idle_tombstone_s=0)
"""Rewrite all segments with tombstones now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live segment and its number of tombstones; a taken one is being merged."""

    number: int
    size: int
    text_bytes: int
    made_at: int
    removed: int
    is_taken: bool = False
    format: int = CURRENT_FORMAT


def choose_segments(
    segments: Sequence[Candidate], policy: MergePolicy, *, is_idle: bool, now: int
) -> list[int]:
    """The segments to merge into one, in order of arrival; empty if there is nothing to do."""
    growing = [
        s for s in segments if 2 * s.size < policy.max_docs and 2 * s.text_bytes < policy.max_bytes
    ]
    smallest, largest = 0, policy.buffer_docs * policy.fan_out
    while smallest < policy.max_docs:
        level = [s for s in growing if smallest <= s.size < largest]
        if len(level) >= policy.fan_out or sum(s.size for s in level) >= policy.max_docs:
            return [s.number for s in _fitting(level[: policy.fan_out], policy)]
        smallest, largest = largest, largest * policy.fan_out
    if is_idle and (idle := _idle_merge(growing, policy)):
        return [s.number for s in segments if s in idle]
    tombstone_s = policy.idle_tombstone_s if is_idle else policy.tombstone_s
    due = [s for s in segments if _is_due_for_rewrite(s, tombstone_s, now)] or [
        s
        for s in segments
        if s.format < CURRENT_FORMAT and (is_idle or now - s.made_at >= policy.outdated_s)
    ]
    return [s.number for s in sorted(due, key=lambda s: s.size)[:1]]


def _idle_merge(segments: Sequence[Candidate], policy: MergePolicy) -> list[Candidate]:
    """The smallest segments to merge while idle; one that is much smaller than the others waits."""
    ordered = sorted(segments, key=lambda s: s.size)
    for first in range(len(ordered) - 1):
        chosen: list[Candidate] = []
        size = 0
        for segment in _fitting(ordered[first:], policy):
            if chosen and segment.size > size * policy.idle_ratio:
                break
            chosen.append(segment)
            size += segment.size
        if len(chosen) > 1:
            return chosen
    return []


def _fitting(segments: Iterable[Candidate], policy: MergePolicy) -> list[Candidate]:
    """The longest prefix that fits into one segment; two that are not full always fit."""
    chosen: list[Candidate] = []
    size = text_bytes = 0
    for segment in segments:
        size, text_bytes = size + segment.size, text_bytes + segment.text_bytes
        if chosen and (size > policy.max_docs or text_bytes > policy.max_bytes):
            break
        chosen.append(segment)
    return chosen


def _is_due_for_rewrite(segment: Candidate, tombstone_s: float, now: int) -> bool:
    """Whether a segment has too many tombstones, or has had one for too long."""
    if segment.removed * _TOMBSTONE_SHARE > segment.size:
        return True
    is_recent = 0 <= now - segment.made_at < tombstone_s * segment.size
    return segment.removed > 0 and not is_recent


_BATCH = 500

DELETE_SETS = """
    DELETE FROM search_sets WHERE segment = :segment AND name IN (
        SELECT name FROM search_sets WHERE segment = :segment LIMIT :limit
    )
"""
LAST_ROW_OF_BATCH = """
    SELECT kind, key, part FROM search_rows WHERE segment = :segment
     ORDER BY kind, key, part LIMIT 1 OFFSET :offset
"""
DELETE_ROWS = """
    DELETE FROM search_rows
     WHERE segment = :segment AND (kind, key, part) <= (:kind, :key, :part)
"""


def delete_dropped_rows(tx: Transaction) -> bool:
    """Delete some rows or sets of a dropped segment; False if there is none."""
    for segment in segment_numbers(tx, DROPPED)[:1]:
        is_empty = not _delete_rows(tx, segment)
        if is_empty and not tx.run(DELETE_SETS, segment=segment, limit=_BATCH):
            tx.run("DELETE FROM search_segments WHERE number = :segment", segment=segment)
        return True
    return False


def _delete_rows(tx: Transaction, segment: int) -> bool:
    last = tx.one(LAST_ROW_OF_BATCH, segment=segment, offset=_BATCH)
    if last is None:
        return tx.run("DELETE FROM search_rows WHERE segment = :segment", segment=segment) > 0
    tx.run(DELETE_ROWS, segment=segment, kind=last[0], key=last[1], part=last[2])
    return True


LEASE_S = 30
"""Renewed during the work. A lease that ends much later was claimed by a clock that is ahead."""

_PARALLEL_RATIO = 4
"""Segments are merged beside a job that has this many times their messages."""
_PARALLEL_BUFFERS = 8
"""Beside another job, at most this many times `buffer_docs` messages are taken."""

BUILDING_SEGMENTS = """
    SELECT s.number, s.until,
           (SELECT sum(x.size) FROM search_segments x WHERE x.merging = s.number)
      FROM search_segments s WHERE s.state = :state
"""
NEW_SEGMENT = """
    INSERT INTO search_segments
        (state, size, bytes, first, last, oldest, newest, created_at, holder, until)
    VALUES (:state, 0, 0, 0, 0, 0, 0, :now, :holder, :until) RETURNING number
"""
RENEW = """
    UPDATE search_segments SET until = :until
     WHERE number = :number AND state = :state AND holder = :holder
"""
CANDIDATES = """
    SELECT s.number, s.size, s.bytes, s.created_at, r.value, s.merging, s.format
      FROM search_segments s
      LEFT JOIN search_sets r ON r.segment = s.number AND r.name = :removed
     WHERE s.state = :live ORDER BY s.first
"""
BUFFER_SIZE = """
    SELECT count(*) FROM (SELECT 1 FROM search_buffer
     WHERE merging IS NULL LIMIT :limit) AS buffered
"""
OLDEST_IN_BUFFER = """
    SELECT message FROM search_buffer WHERE merging IS NULL ORDER BY message LIMIT :limit
"""
CLAIM_BUFFER = """
    UPDATE search_buffer SET merging = :number WHERE merging IS NULL AND message <= :last
"""
RETURN_TO_BUFFER = """
    INSERT INTO search_buffer (message, inbox) SELECT number, inbox FROM messages
     WHERE number {among}
"""
INSERT_ROW = """
    INSERT INTO search_rows (segment, kind, key, part, value)
    VALUES (:segment, :kind, :key, :part, :value)
"""
INSERT_SET = "INSERT INTO search_sets (name, segment, value) VALUES (:name, :segment, :value)"
FINISH = """
    UPDATE search_segments
       SET state = :state, size = :size, bytes = :text_bytes, first = :first, last = :last,
           oldest = :oldest, newest = :newest, format = :format, holder = NULL, until = NULL
     WHERE number = :number
"""
LOGGED_CHANGES = """
    SELECT message, name, is_member FROM search_changes WHERE segment = :number ORDER BY number
"""


class LeaseLost(Conflict):
    """Another process has taken over this job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One new segment, merged from `sources`, or from `messages` of the buffer."""

    number: int
    holder: str
    sources: tuple[int, ...]
    messages: tuple[int, ...]


_Choice = tuple[tuple[int, ...], int]
"""Segments to merge, or else a number of buffered messages; neither if there is nothing to do."""


def claim(tx: Transaction, holder: str, policy: MergePolicy, now: int) -> Job | None:
    sources, limit = _choose(tx, policy, now, _active(_abandon_expired(tx, now), now))
    if not sources and not limit:
        return None
    messages = tuple(row[0] for row in tx.all(OLDEST_IN_BUFFER, limit=limit))
    row = tx.one(NEW_SEGMENT, state=BUILDING, now=now, holder=holder, until=now + LEASE_S)
    job = Job(row[0] if row else 0, holder, sources, messages)
    if sources:
        among, params = any_of("source", sources)
        sql = f"UPDATE search_segments SET merging = :number WHERE number {among}"
        tx.run(sql, number=job.number, **params)
    else:
        tx.run(CLAIM_BUFFER, number=job.number, last=messages[-1])
    return job


def has_work(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    """Whether there is work that no process is doing."""
    active = _active(tx.all(BUILDING_SEGMENTS, state=BUILDING), now)
    return _has_rows_to_delete(tx, now) or any(_choose(tx, policy, now, active))


def _has_rows_to_delete(tx: Transaction, now: int) -> bool:
    """Whether there are rows to delete, or jobs that ended without finishing."""
    rows = tx.all(BUILDING_SEGMENTS, state=BUILDING)
    return len(_active(rows, now)) < len(rows) or bool(segment_numbers(tx, DROPPED))


def _abandon_expired(tx: Transaction, now: int) -> list[Row]:
    """Abandon the segments whose lease has expired; return all that were being built."""
    rows = tx.all(BUILDING_SEGMENTS, state=BUILDING)
    for number, until, _ in rows:
        if not _is_active(until, now):
            abandon(tx, number)
    return rows


def _active(rows: Sequence[Row], now: int) -> list[int]:
    """The number of messages of each job with a valid lease."""
    return [int(size or 0) for _, until, size in rows if _is_active(until, now)]


def _choose(tx: Transaction, policy: MergePolicy, now: int, active: Sequence[int]) -> _Choice:
    """The buffer first, unless it holds more than one job takes, as after a rebuild."""
    is_idle = _is_idle(tx, policy, now)
    limit = policy.max_docs // 2
    row = tx.one(BUFFER_SIZE, limit=limit + 1)
    buffered = int(row[0]) if row else 0
    due = min(policy.idle_buffer, policy.buffer_docs) if is_idle else policy.buffer_docs
    taken = 0
    if buffered >= due:
        taken = min(limit, _PARALLEL_BUFFERS * policy.buffer_docs) if active else limit
        if buffered <= limit:
            return (), taken
    if segment_numbers(tx, DROPPED):
        return (), 0
    candidates = [s for s in _candidates(tx) if not s.is_taken]
    sources = choose_segments(candidates, policy, is_idle=is_idle, now=now)
    size = sum(s.size for s in candidates if s.number in sources)
    if sources and all(_PARALLEL_RATIO * size <= other for other in active if other):
        return tuple(sources), 0
    return (), taken


def _is_idle(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    """Whether no mail has arrived for a while."""
    newest = tx.one("SELECT received_at FROM messages ORDER BY number DESC LIMIT 1")
    return newest is not None and bool(newest[0] + policy.idle_s <= now)


def return_segment_to_buffer(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    """Where no segment can be built: return one that is due for a rewrite to the buffer.

    So deleted text disappears from the index there as well. Without such a segment, delete some
    dropped rows. Returns whether there was anything to do.
    """
    _abandon_expired(tx, now)
    for segment in _due_segments(tx, policy, now)[:1]:
        numbers = live_messages(tx, [segment])
        for first in range(0, len(numbers), _BATCH):
            among, params = any_of("number", numbers[first : first + _BATCH])
            tx.run(RETURN_TO_BUFFER.format(among=among), **params)
        drop_segment(tx, segment)
        return True
    return delete_dropped_rows(tx)


def has_work_without_building(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    """Whether `return_segment_to_buffer` has anything to do."""
    return _has_rows_to_delete(tx, now) or bool(_due_segments(tx, policy, now))


def _due_segments(tx: Transaction, policy: MergePolicy, now: int) -> list[int]:
    """The segments that have too many tombstones, or have had one for too long."""
    tombstone_s = policy.idle_tombstone_s if _is_idle(tx, policy, now) else policy.tombstone_s
    free = [s for s in _candidates(tx) if not s.is_taken]
    return [s.number for s in free if _is_due_for_rewrite(s, tombstone_s, now)]


def segments_with_tombstones(tx: Transaction) -> list[int]:
    """Segments with tombstones, and dropped ones whose rows still exist."""
    return [*segment_numbers(tx, DROPPED), *(s.number for s in _candidates(tx) if s.removed)]


def _is_active(until: int, now: int) -> bool:
    return now < until <= now + 2 * LEASE_S


def _candidates(tx: Transaction) -> list[Candidate]:
    rows = tx.all(CANDIDATES, removed=message_sets.REMOVED, live=LIVE)
    return [
        Candidate(number, size, text, at, len(decode_set(removed)), merging is not None, form)
        for number, size, text, at, removed, merging, form in rows
    ]


def renew(tx: Transaction, job: Job, now: int) -> None:
    """Renew the lease. Raises LeaseLost."""
    until = now + LEASE_S
    if not tx.run(RENEW, until=until, number=job.number, state=BUILDING, holder=job.holder):
        raise LeaseLost("another process has taken over this merge of the search index")


def release_after(tx: Transaction, job: Job, last: int) -> None:
    """Return the buffered messages after *last* to the buffer."""
    sql = "UPDATE search_buffer SET merging = NULL WHERE merging = :number AND message > :last"
    tx.run(sql, number=job.number, last=last)


def write_rows(tx: Transaction, job: Job, rows: Iterable[SegmentRow], now: int) -> None:
    """Write rows of the new segment. Raises LeaseLost."""
    renew(tx, job, now)
    tx.many(INSERT_ROW, ({"segment": job.number, **row._asdict()} for row in rows))


def write_sets(tx: Transaction, job: Job, sets: Iterable[tuple[str, bytes]], now: int) -> None:
    """Write sets of the new segment. Raises LeaseLost."""
    renew(tx, job, now)
    rows = ({"name": name, "segment": job.number, "value": value} for name, value in sets)
    tx.many(INSERT_SET, rows)


def finish(tx: Transaction, job: Job, built: BuiltSegment, now: int) -> None:
    """Replace the sources by the new segment. Raises LeaseLost."""
    renew(tx, job, now)
    state = LIVE if built.size else DROPPED
    tx.run(FINISH, number=job.number, state=state, **asdict(built))
    _apply_logged_changes(tx, job, built.size)
    tx.run("DELETE FROM search_buffer WHERE merging = :number", number=job.number)
    for source in job.sources:
        drop_segment(tx, source)


def _apply_logged_changes(tx: Transaction, job: Job, size: int) -> None:
    """Apply the changes that were made to the sources since the job was claimed."""
    logged = {(row[0], row[1]): bool(row[2]) for row in tx.all(LOGGED_CHANGES, number=job.number)}
    doc_ids = dict(find_doc_ids(tx, job.number, sorted({message for message, _ in logged})))
    set_changes: dict[str, list[message_sets.DocChange]] = {}
    for (message, name), is_in in logged.items():
        if message in doc_ids:
            set_changes.setdefault(name, []).append((doc_ids[message], is_in))
    for name, own in set_changes.items():
        message_sets.change_set(tx, job.number, size, name, own)
    tx.run("DELETE FROM search_changes WHERE segment = :number", number=job.number)


def release(tx: Transaction, job: Job, now: int) -> None:
    """Abandon our own job, unless the lease is lost."""
    with suppress(LeaseLost):
        renew(tx, job, now)
        abandon(tx, job.number)


def abandon(tx: Transaction, number: int) -> None:
    """Abandon a segment that is being built."""
    for table in ("search_segments", "search_buffer"):
        tx.run(f"UPDATE {table} SET merging = NULL WHERE merging = :number", number=number)
    tx.run("DELETE FROM search_changes WHERE segment = :number", number=number)
    drop_segment(tx, number)


def drop_segment(tx: Transaction, number: int) -> None:
    """Stop searching a segment; its rows and sets are deleted later."""
    sql = "UPDATE search_segments SET state = :state, merging = NULL WHERE number = :number"
    tx.run(sql, state=DROPPED, number=number)
