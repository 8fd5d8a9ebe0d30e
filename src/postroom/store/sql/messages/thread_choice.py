"""The thread that an arriving message joins."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Sequence

from postroom.errors import NotFound, no_such
from postroom.mail.threads import (
    WINDOW,
    Candidate,
    choose_by_reference,
    choose_by_subject,
    is_reply_subject,
    thread_keys,
)
from postroom.model.storage import NewMessage
from postroom.store.sql.memories.memory_links import redirect_links
from postroom.store.sql.values import any_of, from_text, insert_numbered, moment, scalar, seconds
from postroom.store.transaction import Row, Transaction

_MAX_CANDIDATES = 20
_MAX_MESSAGES = 50

COUNT_IN = """
    UPDATE threads
       SET message_count = message_count + 1,
           first_date = CASE WHEN first_date < :date THEN first_date ELSE :date END,
           last_date = CASE WHEN last_date > :date THEN last_date ELSE :date END
     WHERE inbox = :inbox AND number = :thread
"""
RECOUNT = """
    UPDATE threads SET (message_count, first_date, last_date) = (
        SELECT count(*), min(date), max(date) FROM messages
         WHERE +inbox = :inbox AND thread = :thread AND is_hidden = 0
    ) WHERE inbox = :inbox AND number = :thread
"""
HAS_MESSAGES = "SELECT 1 FROM messages WHERE +inbox = :inbox AND thread = :thread LIMIT 1"
INSERT_THREAD_ID = """
    INSERT INTO thread_ids (inbox, internet_id, thread) VALUES (:inbox, :internet_id, :thread)
    ON CONFLICT (inbox, internet_id) DO NOTHING
"""
INSERT_ALIASES = """
    INSERT INTO thread_aliases (id, thread, inbox)
    SELECT id, CAST(:into AS BIGINT), inbox FROM threads WHERE +inbox = :inbox AND number {among}
"""
NAMED = """
    SELECT number, inbox FROM threads WHERE id = :id
    UNION ALL
    SELECT thread, inbox FROM thread_aliases WHERE id = :id
"""
"""The number and inbox of a thread: a thread is found by its id once, then by both."""

KNOWN_IDS = """
    SELECT i.internet_id, t.number, t.id, t.is_pinned FROM thread_ids i
      JOIN threads t ON +t.inbox = +i.inbox AND t.number = i.thread
     WHERE i.inbox = :inbox AND i.internet_id {among}
"""
SAME_SUBJECT = """
    SELECT number, id, last_date FROM threads
     WHERE inbox = :inbox AND base_subject = :base_subject
       AND last_date BETWEEN :earliest AND :latest
     ORDER BY last_date DESC, number DESC LIMIT :limit
"""
ADDRESSES = """
    SELECT addresses FROM messages WHERE +inbox = :inbox AND thread = :thread
     ORDER BY date DESC, number DESC LIMIT :limit
"""


def choose_thread(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str]:
    """The number and id of the thread of a message; a new one if it continues none."""
    if message.thread_id is not None:
        return _named_thread(tx, message.thread_id)
    return (
        _by_reference(tx, message, inbox)
        or _by_subject(tx, message, inbox)
        or _new_thread(tx, message, inbox)
    )


def _named_thread(tx: Transaction, thread_id: str) -> tuple[int, str]:
    row = tx.one(NAMED, id=thread_id)
    if row is None:
        raise NotFound(no_such("thread", thread_id))
    sql = "SELECT id FROM threads WHERE number = :number AND inbox = :inbox"
    return row[0], scalar(tx, sql, number=row[0], inbox=row[1]) or ""


def _by_reference(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str] | None:
    """The thread of the mails that a message refers to; several such threads are merged.

    The message's own id counts last: an earlier reply may have recorded it.
    """
    keys = [*thread_keys(message), *filter(None, [message.internet_message_id])]
    among, params = any_of("key", keys)
    rows = tx.all(KNOWN_IDS.format(among=among), inbox=inbox, **params)
    numbers = {row[2]: row[1] for row in rows}
    apart = {row[2] for row in rows if row[3]}
    chosen, merged = choose_by_reference(keys, {r[0]: r[2] for r in rows}, kept_apart=apart)
    if chosen is None:
        return None
    if merged:
        join_threads(tx, inbox, numbers[chosen], [numbers[other] for other in merged])
    return numbers[chosen], chosen


def join_threads(tx: Transaction, inbox: int, into: int, others: Sequence[int]) -> None:
    """Move all messages of some threads into one, whose aliases their ids become."""
    redirect_links(tx, inbox, into, others)
    among, params = any_of("thread", others)
    tx.put(INSERT_ALIASES.format(among=among), inbox=inbox, into=into, **params)
    for table in ("messages", "thread_ids", "thread_aliases"):
        tx.put(
            f"UPDATE {table} SET thread = :into WHERE +inbox = :inbox AND thread {among}",
            inbox=inbox,
            into=into,
            **params,
        )
    tx.put(f"DELETE FROM threads WHERE +inbox = :inbox AND number {among}", inbox=inbox, **params)
    tx.put(RECOUNT, inbox=inbox, thread=into)


def _by_subject(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str] | None:
    if not message.base_subject or not is_reply_subject(message.subject):
        return None
    rows = tx.all(
        SAME_SUBJECT,
        inbox=inbox,
        base_subject=message.base_subject,
        earliest=seconds(message.date - WINDOW),
        latest=seconds(message.date + WINDOW),
        limit=_MAX_CANDIDATES,
    )
    candidates = [_candidate(tx, inbox, row) for row in rows]
    own = tx.one("SELECT address FROM inboxes WHERE number = :inbox", inbox=inbox)
    chosen = choose_by_subject(message, candidates, date=message.date, own=frozenset(own or ()))
    return next(((row[0], row[1]) for row in rows if row[1] == chosen), None)


def _candidate(tx: Transaction, inbox: int, row: Row) -> Candidate:
    found = tx.all(ADDRESSES, inbox=inbox, thread=row[0], limit=_MAX_MESSAGES)
    lines = [line for (addresses,) in found for line in from_text(addresses)]
    return Candidate(
        thread_id=row[1],
        authors=frozenset(line[2] for line in lines if line[0] == "from"),
        participants=frozenset(line[2] for line in lines),
        last_date=moment(row[2]),
    )


def _new_thread(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str]:
    thread_id = thread_id_of(message.id)
    number = insert_numbered(
        tx,
        "threads",
        id=thread_id,
        inbox=inbox,
        subject=message.subject,
        base_subject=message.base_subject,
        message_count=0,
    )
    return number, thread_id


def thread_id_of(message_id: str) -> str:
    """The id of the thread that a message begins, derived from the random id of the message."""
    digest = hashlib.sha256(f"thread of {message_id}".encode()).digest()
    return "thr_" + b32encode(digest[:16]).decode().rstrip("=").lower()


def count_in(tx: Transaction, inbox: int, thread: int, date: int, *, is_hidden: bool) -> None:
    """Count one more message in a thread."""
    if not is_hidden:
        tx.put(COUNT_IN, inbox=inbox, thread=thread, date=date)


def recount(tx: Transaction, inbox: int, thread: int) -> None:
    """Recompute the counts of a thread; a thread without messages is removed."""
    which = {"inbox": inbox, "thread": thread}
    if tx.one(HAS_MESSAGES, **which):
        tx.put(RECOUNT, **which)
        return
    for table in ("thread_ids", "thread_aliases"):
        tx.put(f"DELETE FROM {table} WHERE +inbox = :inbox AND thread = :thread", **which)
    tx.put("DELETE FROM threads WHERE inbox = :inbox AND number = :thread", **which)


def insert_thread_ids(tx: Transaction, message: NewMessage, inbox: int, thread: int) -> None:
    """Record the Message-IDs of a message and its references, for later replies."""
    own = message.internet_message_id
    keys = [*filter(None, [own]), *thread_keys(message)]
    rows = [{"inbox": inbox, "internet_id": key, "thread": thread} for key in keys]
    if rows:
        tx.many(INSERT_THREAD_ID, rows)
