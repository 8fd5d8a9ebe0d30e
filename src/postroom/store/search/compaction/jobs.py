"""Merge jobs: choosing one, and the short transactions that claim, write and finish it.

The new segment of a job names its holder and lease; every write checks both, so a process that lost
its lease changes nothing. Beside a merge of segments, which can take minutes, the buffer and much
smaller segments are still merged, because searches scan the buffer. Segments are only merged once
the rows of earlier ones are deleted, which bounds the space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from postroom.errors import Conflict
from postroom.model.values import dataclass
from postroom.store.search.compaction.policy import Candidate, MergePolicy, choose_segments
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.segment import (
    BUILDING,
    DROPPED,
    LIVE,
    BuiltSegment,
    SegmentRow,
    find_doc_ids,
)
from postroom.store.sql.values import any_of
from postroom.store.transaction import Row, Transaction

_BATCH = 500

SETS_BATCH = "SELECT name FROM search_sets WHERE segment = :segment LIMIT :limit"
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
    for segment in _dropped_segments(tx)[:1]:
        if not _delete_rows(tx, segment) and not _delete_sets(tx, segment):
            tx.run("DELETE FROM search_segments WHERE number = :segment", segment=segment)
        return True
    return False


def _dropped_segments(tx: Transaction) -> list[int]:
    sql = "SELECT number FROM search_segments WHERE state = :state ORDER BY number"
    return [row[0] for row in tx.all(sql, state=DROPPED)]


def _delete_rows(tx: Transaction, segment: int) -> bool:
    last = tx.one(LAST_ROW_OF_BATCH, segment=segment, offset=_BATCH)
    if last is None:
        return tx.run("DELETE FROM search_rows WHERE segment = :segment", segment=segment) > 0
    tx.run(DELETE_ROWS, segment=segment, kind=last[0], key=last[1], part=last[2])
    return True


def _delete_sets(tx: Transaction, segment: int) -> bool:
    names = [row[0] for row in tx.all(SETS_BATCH, segment=segment, limit=_BATCH)]
    among, params = any_of("name", names)
    sql = f"DELETE FROM search_sets WHERE segment = :segment AND name {among}"
    return bool(names) and tx.run(sql, segment=segment, **params) > 0


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
IS_OURS = """
    SELECT 1 FROM search_segments
     WHERE number = :number AND state = :state AND holder = :holder
"""
CANDIDATES = """
    SELECT s.number, s.size, s.bytes, s.created_at, r.value, s.merging
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
INSERT_ROW = """
    INSERT INTO search_rows (segment, kind, key, part, value)
    VALUES (:segment, :kind, :key, :part, :value)
"""
LIVE_SETS = """
    SELECT s.number, s.size, x.value FROM search_sets x
      JOIN search_segments s ON s.number = x.segment
     WHERE x.name = :name AND s.state = :live
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


@dataclass(frozen=True, slots=True)
class _Choice:
    """Segments to merge, or else a number of buffered messages, or nothing."""

    sources: tuple[int, ...] = ()
    messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.sources or self.messages)


def claim(tx: Transaction, holder: str, policy: MergePolicy, now: int) -> Job | None:
    """Claim the next job, if any."""
    rows = tx.all(BUILDING_SEGMENTS, state=BUILDING)
    for number, until, _ in rows:
        if not _is_active(until, now):
            abandon(tx, number)
    choice = _choose(tx, policy, now, _active(rows, now))
    if not choice:
        return None
    messages = tx.all(OLDEST_IN_BUFFER, limit=choice.messages) if choice.messages else []
    row = tx.one(NEW_SEGMENT, state=BUILDING, now=now, holder=holder, until=now + LEASE_S)
    numbers = tuple(message[0] for message in messages)
    job = Job(row[0] if row else 0, holder, choice.sources, numbers)
    _set_merging(tx, job)
    return job


def has_work(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    """Whether there is work that no process is doing."""
    rows = tx.all(BUILDING_SEGMENTS, state=BUILDING)
    active = _active(rows, now)
    has_abandoned = len(active) < len(rows)
    return has_abandoned or bool(_dropped_segments(tx)) or bool(_choose(tx, policy, now, active))


def _active(rows: Sequence[Row], now: int) -> list[int]:
    """The number of messages of each job with a valid lease."""
    return [int(size or 0) for _, until, size in rows if _is_active(until, now)]


def _choose(tx: Transaction, policy: MergePolicy, now: int, active: Sequence[int]) -> _Choice:
    """The buffer first, unless it holds more than one job takes, as after a rebuild."""
    is_idle, limit = _is_idle(tx, policy, now), policy.max_docs // 2
    row = tx.one(BUFFER_SIZE, limit=limit + 1)
    buffered = int(row[0]) if row else 0
    due = min(policy.idle_buffer, policy.buffer_docs) if is_idle else policy.buffer_docs
    from_buffer = _Choice()
    if buffered >= due:
        taken = min(limit, _PARALLEL_BUFFERS * policy.buffer_docs) if active else limit
        from_buffer = _Choice(messages=taken)
        if buffered <= limit:
            return from_buffer
    if _dropped_segments(tx):
        return _Choice()
    candidates = [s for s in _candidates(tx) if not s.is_taken]
    sources = choose_segments(candidates, policy, is_idle=is_idle, now=now)
    size = sum(s.size for s in candidates if s.number in sources)
    if sources and all(_PARALLEL_RATIO * size <= other for other in active if other):
        return _Choice(tuple(sources))
    return from_buffer


def all_segments(tx: Transaction) -> list[int]:
    return [row[0] for row in tx.all("SELECT number FROM search_segments")]


def building_segments(tx: Transaction) -> list[int]:
    return [row[0] for row in tx.all(BUILDING_SEGMENTS, state=BUILDING)]


def segments_with_tombstones(tx: Transaction) -> list[int]:
    """Segments with tombstones, and dropped ones whose rows still exist."""
    return [*_dropped_segments(tx), *(s.number for s in _candidates(tx) if s.removed)]


def _is_active(until: int, now: int) -> bool:
    return now < until <= now + 2 * LEASE_S


def _is_idle(tx: Transaction, policy: MergePolicy, now: int) -> bool:
    row = tx.one("SELECT received_at FROM messages ORDER BY number DESC LIMIT 1")
    return row is not None and bool(row[0] + policy.idle_s <= now)


def _candidates(tx: Transaction) -> list[Candidate]:
    rows = tx.all(CANDIDATES, removed=message_sets.REMOVED, live=LIVE)
    return [
        Candidate(number, size, text, made_at, _count_set(removed), is_taken=merging is not None)
        for number, size, text, made_at, removed, merging in rows
    ]


def _count_set(value: bytes | None) -> int:
    if not value:
        return 0
    return int.from_bytes(value[1:], "big").bit_count() if value[0] else len(value) // 2


def _set_merging(tx: Transaction, job: Job) -> None:
    if job.sources:
        among, params = any_of("source", job.sources)
        sql = f"UPDATE search_segments SET merging = :number WHERE number {among}"
        tx.run(sql, number=job.number, **params)
    else:
        tx.run(CLAIM_BUFFER, number=job.number, last=job.messages[-1])


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


def release(tx: Transaction, job: Job) -> None:
    """Abandon our own job."""
    if tx.one(IS_OURS, number=job.number, state=BUILDING, holder=job.holder):
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


def unindex_inbox(tx: Transaction, inbox: int) -> None:
    """Remove all messages of an inbox from the index."""
    tx.run("DELETE FROM search_buffer WHERE inbox = :inbox", inbox=inbox)
    for number in building_segments(tx):
        abandon(tx, number)
    name = message_sets.inbox_set(inbox)
    for segment, size, value in tx.all(LIVE_SETS, name=name, live=LIVE):
        doc_ids = message_sets.tombstones(tx, segment) | {*message_sets.decode_set(value)}
        removed = message_sets.encode_set(sorted(doc_ids), size)
        tx.run(message_sets.WRITE_SET, name=message_sets.REMOVED, segment=segment, value=removed)
    tx.run("DELETE FROM search_sets WHERE name = :name", name=name)


def reset_index(tx: Transaction) -> None:
    """Drop all segments and put every message into the buffer."""
    tx.run("UPDATE search_segments SET state = :dropped, merging = NULL", dropped=DROPPED)
    for table in ("search_sets", "search_changes", "search_buffer"):
        tx.run(f"DELETE FROM {table}")
    tx.run("INSERT INTO search_buffer (message, inbox) SELECT number, inbox FROM messages")
