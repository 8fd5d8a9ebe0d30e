"""The way in to the search index: search it, keep it up to date, and compact it.

- `IndexSearcher.search` answers a `SearchQuery` inside a read transaction.
- `buffer_row`, `reindex_message`, `unindex_message`, `unindex_inbox` and `update_message_sets`
  run in the transaction that changes the message. While a segment is merged, each change of a set
  is also logged, and applied to the new segment before that becomes live.
- `compact` does one piece of background work; `purge`, `rebuild` and `find_problems` belong to it.

All other modules of this package are private to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from postroom.extras import is_installed
from postroom.model.view import Everything, Numbers, only
from postroom.store.search.compaction.jobs import BULK_POLICY, DEFAULT_POLICY, abandon
from postroom.store.search.compaction.merging import compact, purge
from postroom.store.search.query.scan import (
    Counts,
    MailboxKey,
    ScanLimits,
    SearchQuery,
    SearchResult,
    count_up_to,
    scan,
    scan_labels,
    scan_mailboxes,
)
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.message_sets import REMOVED, DocChange, flag_set, mutable_sets
from postroom.store.search.segments.segment import (
    BUILDING,
    DROPPED,
    FORMAT_WITH_FLAGS,
    LIVE,
    Segment,
    live_segments,
    locate_messages,
    messages_by_doc_id,
    segment_numbers,
)
from postroom.store.sql.statements import any_of, flag_names, insert
from postroom.store.transaction import Engine, Transaction, remembered

if TYPE_CHECKING:
    from postroom.store.search.query.segment_search import SegmentSearcher

__all__ = (
    "BULK_POLICY",
    "DEFAULT_POLICY",
    "SearchQuery",
    "SearchResult",
    "compact",
    "flag_set",
    "mutable_sets",
    "purge",
)
"""What is defined elsewhere; the rest is below."""

_BATCH = 500
_MAX_LARGE_SCOPES = 1_000
_STAMP_BITS = 62

RESET_IN_BUFFER = """
    UPDATE search_buffer SET merging = NULL, stamp = :stamp
     WHERE message = :message AND inbox = :inbox
"""
IN_BUFFER = """
    SELECT message, merging FROM search_buffer WHERE inbox {inboxes} AND message {messages}
"""
LOG_CHANGE = """
    INSERT INTO search_changes (segment, message, name, is_member)
    VALUES (:segment, :message, :name, :is_member)
"""
WITHOUT_FLAGS = """
    SELECT s.number FROM search_segments s
     WHERE s.state = :live AND s.format < :format AND NOT EXISTS (
           SELECT 1 FROM search_sets x WHERE x.name = :name AND x.segment = s.number)
"""
LIVE_SETS = """
    SELECT s.number, s.size, x.value FROM search_sets x
      JOIN search_segments s ON s.number = x.segment
     WHERE x.name = :name AND s.state = :live
"""


class IndexSearcher:
    """Searches the index, with caches of what never changes in segments.

    It also remembers which scopes are large; one that has shrunk is only searched more slowly.
    Segments are read with numpy. Without it every scope counts as small, and is scanned.
    """

    def __init__(self, limits: ScanLimits | None = None) -> None:
        self._limits = limits or ScanLimits()
        self._can_read_segments = is_installed("index")
        self._loaded: SegmentSearcher | None = None
        self._large_scopes: set[tuple[Numbers, int]] = set()

    def search(self, tx: Transaction, query: SearchQuery) -> SearchResult:
        """Find one page of messages: scan a small scope, ask the segments about a large one."""
        segments = remembered(tx, live_segments, lambda: live_segments(tx))
        if not segments or self._is_small(tx, query, segments):
            return scan(tx, query)
        return self._segment_searcher().search(tx, query, segments)

    def count_mailboxes(
        self, tx: Transaction, keys: Sequence[MailboxKey]
    ) -> dict[MailboxKey, Counts]:
        """How many messages are in each mailbox, and how many of them are unread."""
        segments = remembered(tx, live_segments, lambda: live_segments(tx))
        inboxes = list(dict.fromkeys(inbox for inbox, _ in keys))
        small = [
            inbox
            for inbox in inboxes
            if not segments or self._is_small(tx, SearchQuery(inboxes=only(inbox)), segments)
        ]
        counts = dict.fromkeys(keys, (0, 0))
        if small:
            counts |= scan_mailboxes(tx, small)
        large = [key for key in keys if key[0] not in small]
        if large:
            counts |= self._segment_searcher().count_mailboxes(tx, large, segments)
            found = scan_mailboxes(tx, [i for i in inboxes if i not in small], buffered=True)
            for key, (total, unread) in found.items():
                before = counts.get(key, (0, 0))
                counts[key] = before[0] + total, before[1] + unread
        return counts

    def count_labels(
        self, tx: Transaction, inboxes: Numbers, names: Sequence[str]
    ) -> dict[str, Counts]:
        """How many messages that are not hidden have each label, and how many are unread."""

        def count() -> dict[str, Counts]:
            none = dict.fromkeys(names, (0, 0))
            segments = remembered(tx, live_segments, lambda: live_segments(tx))
            if not segments or self._is_small(tx, SearchQuery(inboxes=inboxes), segments):
                return none | scan_labels(tx, inboxes)
            counts = self._segment_searcher().count_labels(tx, inboxes, names, segments)
            for name, (total, unread) in scan_labels(tx, inboxes, buffered=True).items():
                before = counts.get(name, (0, 0))
                counts[name] = before[0] + total, before[1] + unread
            return counts

        return remembered(tx, (scan_labels, inboxes), count)

    def _segment_searcher(self) -> SegmentSearcher:
        if self._loaded is None:
            # Importing numpy takes longer than searching a small store without it.
            from postroom.store.search.query.segment_search import SegmentSearcher

            self._loaded = SegmentSearcher()
        return self._loaded

    def _is_small(self, tx: Transaction, query: SearchQuery, segments: Sequence[Segment]) -> bool:
        if query.thread is not None or not self._can_read_segments:
            return True
        limit = self._limits.max_messages(len(segments))
        if (query.inboxes, limit) in self._large_scopes:
            return False
        if isinstance(query.inboxes, Everything):
            size = sum(segment.size for segment in segments)
        else:
            key = (count_up_to, query.inboxes, limit)
            size = remembered(tx, key, lambda: count_up_to(tx, query, limit + 1))
        if size <= limit:
            return size <= self._limits.for_query(query, len(segments))
        if len(self._large_scopes) >= _MAX_LARGE_SCOPES:
            self._large_scopes.clear()
        self._large_scopes.add((query.inboxes, limit))
        return False


def buffer_row(number: int, inbox: int) -> dict[str, int]:
    """The row of `search_buffer` that puts a new message into the buffer."""
    return {"message": number, "inbox": inbox, "stamp": _new_stamp()}


def _new_stamp() -> int:
    """Unique for each text: a rolled-back message number can be reused."""
    return 1 + secrets.randbits(_STAMP_BITS)


def reindex_message(tx: Transaction, number: int, inbox: int) -> None:
    """Index a message again after its text has changed."""
    if _add_tombstone(tx, number, inbox):
        tx.put(RESET_IN_BUFFER, message=number, inbox=inbox, stamp=_new_stamp())
    else:
        insert(tx, "search_buffer", **buffer_row(number, inbox))


def unindex_message(tx: Transaction, number: int, inbox: int) -> None:
    if _add_tombstone(tx, number, inbox):
        sql = "DELETE FROM search_buffer WHERE message = :message AND inbox = :inbox"
        tx.put(sql, message=number, inbox=inbox)


def _add_tombstone(tx: Transaction, number: int, inbox: int) -> bool:
    """Mark a message as removed in its segment; return whether it is in the buffer."""
    return number in _apply_changes(tx, {number: {REMOVED: True}}, {inbox})


class SetChange(NamedTuple):
    """The sets of a message before and after a change."""

    number: int
    inbox: int
    before: set[str]
    after: set[str]


def update_message_sets(tx: Transaction, changes: Sequence[SetChange]) -> None:
    """Move messages from the sets they were in to those they are in now."""
    by_message: dict[int, dict[str, bool]] = {}
    for number, _, before, after in changes:
        for name in sorted(before ^ after):
            by_message.setdefault(number, {})[name] = name in after
    _apply_changes(tx, by_message, {change.inbox for change in changes})


def _apply_changes(
    tx: Transaction, changes: Mapping[int, Mapping[str, bool]], inboxes: Collection[int]
) -> Collection[int]:
    """Add messages to sets or remove them; return those that are in the buffer."""
    buffer = _in_buffer(tx, sorted(changes), sorted(inboxes))
    targets = [(n, target) for n, target in buffer.items() if target is not None]
    set_changes: dict[tuple[int, int, str], list[DocChange]] = {}
    for number, location in locate_messages(tx, sorted(changes.keys() - buffer.keys())):
        for name, is_in in changes[number].items():
            changed_set = location.segment, location.size, name
            set_changes.setdefault(changed_set, []).append((location.doc_id, is_in))
        if location.merging is not None:
            targets.append((number, location.merging))
    for (segment, size, name), own in set_changes.items():
        message_sets.change_set(tx, segment, size, name, own)
    logged = [
        {"segment": target, "message": number, "name": name, "is_member": int(is_in)}
        for number, target in targets
        for name, is_in in changes[number].items()
    ]
    if logged:
        tx.many(LOG_CHANGE, logged)
    return buffer.keys()


def _in_buffer(
    tx: Transaction, numbers: Sequence[int], inboxes: Sequence[int]
) -> dict[int, int | None]:
    """Those of some messages that are in the buffer, and the segment they are merged into."""
    among_inboxes, scope = any_of("inbox", inboxes)
    found: dict[int, int | None] = {}
    for first in range(0, len(numbers), _BATCH):
        among, params = any_of("message", numbers[first : first + _BATCH])
        sql = IN_BUFFER.format(inboxes=among_inboxes, messages=among)
        found.update((row[0], row[1]) for row in tx.all(sql, **scope, **params))
    return found


def unindex_inbox(tx: Transaction, inbox: int) -> None:
    """Remove all messages of an inbox from the index."""
    tx.run("DELETE FROM search_buffer WHERE inbox = :inbox", inbox=inbox)
    for number in segment_numbers(tx, BUILDING):
        abandon(tx, number)
    name = message_sets.inbox_set(inbox)
    for segment, size, value in tx.all(LIVE_SETS, name=name, live=LIVE):
        doc_ids = message_sets.tombstones(tx, segment) | {*message_sets.decode_set(value)}
        removed = message_sets.encode_set(sorted(doc_ids), size)
        tx.run(message_sets.WRITE_SET, name=REMOVED, segment=segment, value=removed)
    tx.run("DELETE FROM search_sets WHERE name = :name", name=name)


async def add_missing_flag_sets(engine: Engine) -> None:
    """Add the sets of flags to segments of an earlier version, which have none."""
    for segment in await engine.read(_segments_without_flags):
        await engine.write(partial(_add_flag_sets, segment=segment))


def _segments_without_flags(tx: Transaction) -> list[int]:
    rows = tx.all(WITHOUT_FLAGS, live=LIVE, format=FORMAT_WITH_FLAGS, name=message_sets.HAS_FLAGS)
    return [row[0] for row in rows]


def _add_flag_sets(tx: Transaction, segment: int) -> None:
    by_doc_id = messages_by_doc_id(tx, segment)
    members: dict[str, list[int]] = {message_sets.HAS_FLAGS: []}
    for first in range(0, len(by_doc_id), _BATCH):
        numbers = by_doc_id[first : first + _BATCH].tolist()
        among, params = any_of("number", numbers)
        sql = f"SELECT number, flags FROM messages WHERE number {among}"
        flags: dict[int, int] = dict(tx.all(sql, **params))
        for doc_id, number in enumerate(numbers, first):
            for flag in flag_names(flags.get(number, 0)):
                members.setdefault(flag_set(flag), []).append(doc_id)
    for name, doc_ids in members.items():
        value = message_sets.encode_set(doc_ids, len(by_doc_id))
        tx.put(message_sets.WRITE_SET, name=name, segment=segment, value=value)


async def rebuild(engine: Engine) -> None:
    """Build the whole index again from the messages; without numpy, put them into the buffer."""
    await engine.write(reset_index)
    while await compact(engine):
        pass


def reset_index(tx: Transaction) -> None:
    """Drop all segments and put every message into the buffer."""
    tx.run("UPDATE search_segments SET state = :dropped, merging = NULL", dropped=DROPPED)
    for table in ("search_sets", "search_changes", "search_buffer"):
        tx.run(f"DELETE FROM {table}")
    tx.run("INSERT INTO search_buffer (message, inbox) SELECT number, inbox FROM messages")


async def find_problems(engine: Engine) -> tuple[str, ...]:
    """Compare the index with the messages; one sentence for each problem."""
    # Not needed by most commands.
    from postroom.store.search.segments.verification import check_membership, check_segment

    found = await engine.read(check_membership)
    for segment in await engine.read(partial(segment_numbers, state=LIVE)):
        found += await engine.read(partial(check_segment, segment=segment))
    return found
