"""What to merge next, and the short transactions in which it is claimed, written and put to use.

A job is safe by itself: its new segment names who builds it and until when that may take. Each
write checks that, so whoever was thought dead and comes back changes nothing. Beside a merge of
segments, which may take minutes, there are much smaller ones and those of the tail: searches look
at the messages of the tail one by one, so it must not become long meanwhile. Segments are merged
when the rows of earlier ones are gone, so that there are never many of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postroom.errors import Conflict
from postroom.store.search.choice import Candidate, Sizes, choose_sources
from postroom.store.search.kinds import SegmentRow
from postroom.store.search.schema import INDEX_ALL
from postroom.store.search.segments import BUILDING, GONE, LIVE, find_places
from postroom.store.search.sets import (
    READ_SET,
    REMOVED,
    WRITE_SET,
    Mark,
    inbox_set,
    places_in,
    put_marks,
    write_places,
)
from postroom.store.sql.values import any_of
from postroom.store.transaction import Row, Transaction

LEASE_S = 30
"""Renewed while the work goes on; a job whose time is much further away was claimed by a clock
that ran ahead."""

_SMALLER = 4
"""Segments become one beside others if those have so many times the messages."""
_BESIDE = 8
"""Beside any other job, one of the tail takes at most so many times what makes it due."""

BUILDINGS = """
    SELECT s.number, s.until,
           (SELECT sum(x.size) FROM search_segments x WHERE x.merging = s.number)
      FROM search_segments s WHERE s.state = :state
"""
NEW_SEGMENT = """
    INSERT INTO search_segments
        (state, size, bytes, first, last, oldest, newest, made_at, holder, until)
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
    SELECT s.number, s.size, s.bytes, s.made_at, s.merging, r.value
      FROM search_segments s
      LEFT JOIN search_sets r ON r.segment = s.number AND r.name = :removed
     WHERE s.state = :live ORDER BY s.first
"""
SIZE_OF_TAIL = """
    SELECT count(*) FROM (SELECT 1 FROM search_tail WHERE merging IS NULL LIMIT :most) AS few
"""
OLDEST_OF_TAIL = """
    SELECT message FROM search_tail WHERE merging IS NULL ORDER BY message LIMIT :most
"""
TAKE_FROM_TAIL = """
    UPDATE search_tail SET merging = :number WHERE merging IS NULL AND message <= :last
"""
PUT_ROW = """
    INSERT INTO search_rows (segment, kind, key, part, value)
    VALUES (:segment, :kind, :key, :part, :value)
"""
LIVE_SETS = """
    SELECT s.number, s.size, x.value FROM search_sets x
      JOIN search_segments s ON s.number = x.segment
     WHERE x.name = :name AND s.state = :live
"""
PUT_SET = "INSERT INTO search_sets (name, segment, value) VALUES (:name, :segment, :value)"
FINISH = """
    UPDATE search_segments
       SET state = :state, size = :size, bytes = :bytes, first = :first, last = :last,
           oldest = :oldest, newest = :newest, format = :format, holder = NULL, until = NULL
     WHERE number = :number
"""
NOTED = """
    SELECT message, name, is_in FROM search_changes WHERE segment = :number ORDER BY number
"""


class Overtaken(Conflict):
    """Another process has taken over this job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One new segment, made of other segments, or of these messages of the tail."""

    number: int
    holder: str
    sources: tuple[int, ...]
    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """What is to be said of a finished segment."""

    size: int
    text_bytes: int
    first: int
    last: int
    oldest: int
    newest: int
    format: int


@dataclass(frozen=True, slots=True)
class _Choice:
    """What to do next: merge segments, or else so many messages of the tail; or neither."""

    sources: tuple[int, ...] = ()
    messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.sources or self.messages)


def claim(tx: Transaction, holder: str, sizes: Sizes, now: int) -> Job | None:
    """Take the next job, unless there is none, or rows are to be swept first."""
    rows = tx.all(BUILDINGS, state=BUILDING)
    for number, until, _ in rows:
        if not _is_held(until, now):
            abandon(tx, number)
    choice = _choose(tx, sizes, now, _held(rows, now))
    if not choice:
        return None
    messages = tx.all(OLDEST_OF_TAIL, most=choice.messages) if choice.messages else []
    made = tx.one(NEW_SEGMENT, state=BUILDING, now=now, holder=holder, until=now + LEASE_S)
    job = Job(made[0] if made else 0, holder, choice.sources, tuple(row[0] for row in messages))
    _set_merging(tx, job)
    return job


def has_work(tx: Transaction, sizes: Sizes, now: int) -> bool:
    """Whether there is anything to do that nobody is doing."""
    rows = tx.all(BUILDINGS, state=BUILDING)
    held = _held(rows, now)
    is_left = len(held) < len(rows)
    return is_left or _has_gone(tx) or bool(_choose(tx, sizes, now, held))


def _held(rows: Sequence[Row], now: int) -> list[int]:
    """How many messages of segments each job has that somebody is at work on."""
    return [int(size or 0) for _, until, size in rows if _is_held(until, now)]


def _has_gone(tx: Transaction) -> bool:
    gone = tx.one("SELECT 1 FROM search_segments WHERE state = :gone LIMIT 1", gone=GONE)
    return gone is not None


def _choose(tx: Transaction, sizes: Sizes, now: int, held: Sequence[int]) -> _Choice:
    """The tail comes first, unless it is more than a job can take, as in an index made anew."""
    is_quiet, most = _is_quiet(tx, sizes, now), sizes.most // 2
    row = tx.one(SIZE_OF_TAIL, most=most + 1)
    waiting = int(row[0]) if row else 0
    is_due = waiting >= (min(sizes.quiet_tail, sizes.tail) if is_quiet else sizes.tail)
    of_tail = (
        _Choice((), min(most, _BESIDE * sizes.tail) if held else most) if is_due else _Choice()
    )
    if is_due and waiting <= most:
        return of_tail
    if _has_gone(tx):
        return _Choice()
    candidates = [s for s in _candidates(tx) if not s.is_taken]
    sources = choose_sources(candidates, sizes, is_quiet=is_quiet, now=now)
    size = sum(s.size for s in candidates if s.number in sources)
    if sources and all(_SMALLER * size <= other for other in held if other):
        return _Choice(tuple(sources))
    return of_tail


def all_numbers(tx: Transaction) -> list[int]:
    """All segments, those too that are being built or swept."""
    return [row[0] for row in tx.all("SELECT number FROM search_segments")]


def building_numbers(tx: Transaction) -> list[int]:
    """The segments that somebody makes."""
    return [row[0] for row in tx.all(BUILDINGS, state=BUILDING)]


def decayed_numbers(tx: Transaction) -> list[int]:
    """The segments of which anything was removed, and those of which anything is still there."""
    gone = tx.all("SELECT number FROM search_segments WHERE state = :gone", gone=GONE)
    return [*(row[0] for row in gone), *(s.number for s in _candidates(tx) if s.removed)]


def _is_held(until: int, now: int) -> bool:
    """Whether whoever claimed a job may still be at work on it."""
    return now < until <= now + 2 * LEASE_S


def _is_quiet(tx: Transaction, sizes: Sizes, now: int) -> bool:
    row = tx.one("SELECT received_at FROM messages ORDER BY number DESC LIMIT 1")
    return row is not None and bool(row[0] + sizes.quiet_s <= now)


def _candidates(tx: Transaction) -> list[Candidate]:
    rows = tx.all(CANDIDATES, removed=REMOVED, live=LIVE)
    return [
        Candidate(number, size, text_bytes, made_at, _count(removed), is_taken=merging is not None)
        for number, size, text_bytes, made_at, merging, removed in rows
    ]


def _count(value: bytes | None) -> int:
    if not value:
        return 0
    return int.from_bytes(value[1:], "big").bit_count() if value[0] else len(value) // 2


def _set_merging(tx: Transaction, job: Job) -> None:
    if job.sources:
        among, params = any_of("source", job.sources)
        sql = f"UPDATE search_segments SET merging = :number WHERE number {among}"
        tx.run(sql, number=job.number, **params)
    else:
        tx.run(TAKE_FROM_TAIL, number=job.number, last=job.messages[-1])


def renew(tx: Transaction, job: Job, now: int) -> None:
    """Say that we are still at work. Raises Overtaken."""
    until = now + LEASE_S
    if not tx.run(RENEW, until=until, number=job.number, state=BUILDING, holder=job.holder):
        raise Overtaken("another process has taken over this merge of the search index")


def release_after(tx: Transaction, job: Job, last: int) -> None:
    """Leave the messages of the tail that are after this one to another job."""
    sql = "UPDATE search_tail SET merging = NULL WHERE merging = :number AND message > :last"
    tx.run(sql, number=job.number, last=last)


def put_rows(tx: Transaction, job: Job, rows: Iterable[SegmentRow], now: int) -> None:
    """Write some rows of the new segment. Raises Overtaken."""
    renew(tx, job, now)
    tx.many(PUT_ROW, ({"segment": job.number, **row._asdict()} for row in rows))


def put_sets(tx: Transaction, job: Job, sets: Iterable[tuple[str, bytes]], now: int) -> None:
    """Write some sets of the new segment. Raises Overtaken."""
    renew(tx, job, now)
    rows = ({"name": name, "segment": job.number, "value": value} for name, value in sets)
    tx.many(PUT_SET, rows)


def finish(tx: Transaction, job: Job, made: Made, now: int) -> None:
    """Let searches use the new segment and no longer what it was made of. Raises Overtaken."""
    renew(tx, job, now)
    tx.run(
        FINISH,
        state=LIVE if made.size else GONE,
        number=job.number,
        size=made.size,
        bytes=made.text_bytes,
        first=made.first,
        last=made.last,
        oldest=made.oldest,
        newest=made.newest,
        format=made.format,
    )
    _catch_up(tx, job, made.size)
    tx.run("DELETE FROM search_tail WHERE merging = :number", number=job.number)
    for source in job.sources:
        drop(tx, source)


def _catch_up(tx: Transaction, job: Job, size: int) -> None:
    """Do to the new segment what was done to the old ones since it was begun."""
    noted = {(row[0], row[1]): bool(row[2]) for row in tx.all(NOTED, number=job.number)}
    places = dict(find_places(tx, job.number, sorted({message for message, _ in noted})))
    marks: dict[str, list[Mark]] = {}
    for (message, name), is_in in noted.items():
        if message in places:
            marks.setdefault(name, []).append((places[message], is_in))
    for name, own in marks.items():
        put_marks(tx, job.number, size, name, own)
    tx.run("DELETE FROM search_changes WHERE segment = :number", number=job.number)


def give_up(tx: Transaction, job: Job) -> None:
    """Leave our own job to whoever comes next."""
    if tx.one(IS_OURS, number=job.number, state=BUILDING, holder=job.holder):
        abandon(tx, job.number)


def abandon(tx: Transaction, number: int) -> None:
    """Give up a segment that is being built."""
    for table in ("search_segments", "search_tail"):
        tx.run(f"UPDATE {table} SET merging = NULL WHERE merging = :number", number=number)
    tx.run("DELETE FROM search_changes WHERE segment = :number", number=number)
    drop(tx, number)


def drop(tx: Transaction, number: int) -> None:
    """Use a segment no more; its rows and sets are swept later."""
    tx.run(
        "UPDATE search_segments SET state = :gone, merging = NULL WHERE number = :number",
        gone=GONE,
        number=number,
    )


def remove_inbox(tx: Transaction, inbox: int) -> None:
    """Let no search find the messages of an inbox any more."""
    tx.run("DELETE FROM search_tail WHERE inbox = :inbox", inbox=inbox)
    for number in building_numbers(tx):
        abandon(tx, number)
    name = inbox_set(inbox)
    for segment, size, value in tx.all(LIVE_SETS, name=name, live=LIVE):
        removed = tx.one(READ_SET, name=REMOVED, segment=segment)
        places = {*places_in(value), *(places_in(removed[0]) if removed else ())}
        written = write_places(sorted(places), size)
        tx.run(WRITE_SET, name=REMOVED, segment=segment, value=written)
    tx.run("DELETE FROM search_sets WHERE name = :name", name=name)


def rebuild(tx: Transaction) -> None:
    """Throw the whole index away; all messages are the tail until they are merged again."""
    tx.run("UPDATE search_segments SET state = :gone, merging = NULL", gone=GONE)
    for table in ("search_sets", "search_changes", "search_tail"):
        tx.run(f"DELETE FROM {table}")
    tx.run(INDEX_ALL)
