"""Threads: read, list, merge and split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from postroom.errors import InvalidInput, NotFound
from postroom.mail.threads import subject_key
from postroom.model.inbox import Visible
from postroom.model.mail.message import Thread, ThreadRow
from postroom.model.mail.storage import ThreadQuery
from postroom.model.page import Found
from postroom.model.view import only
from postroom.store.sql.messages.message_insert import numbers_by_name
from postroom.store.sql.messages.message_search import (
    MESSAGE_TABLES,
    ROW_COLUMNS,
    thread_message,
    thread_number,
    visible_inbox,
)
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.sql.messages.thread_merging import join_threads, recount
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    any_of,
    from_text,
    insert_numbered,
    moment,
    update,
    visible_numbers,
    within,
)
from postroom.store.transaction import Row, Transaction

_PEOPLE_SEEN = 50
_PEOPLE_SHOWN = 20
_SUBJECT_SHOWN = 250

THREAD_COLUMNS = """
    t.number, t.id, i.id, t.subject, t.message_count, t.first_date, t.last_date, t.inbox
"""
_TABLES = "threads t JOIN inboxes i ON i.number = t.inbox"
_LISTING = Listing(
    THREAD_COLUMNS, _TABLES, "t.last_date, t.number", is_newest_first=True, counted="threads t"
)
THREAD = f"""
    SELECT {THREAD_COLUMNS} FROM {_TABLES} WHERE t.inbox = :inbox AND t.number = :thread
"""
NEWEST_OF = """
    SELECT addresses, labels, snippet FROM messages
     WHERE +inbox = :inbox AND thread = :thread AND is_hidden = :is_hidden
     ORDER BY date DESC, number DESC LIMIT :limit
"""
MOVE = "UPDATE messages SET thread = :new WHERE inbox = :inbox AND number = :number"
MOVE_ID = """
    UPDATE thread_ids SET thread = :new
     WHERE inbox = :inbox AND internet_id = :internet_id AND thread = :thread
"""
COUNT_ALL = """
    SELECT count(*), min(date), max(date) FROM messages WHERE +inbox = :inbox AND thread = :thread
"""


def find_threads(tx: Transaction, query: ThreadQuery) -> Found[ThreadRow]:
    """One page of threads, newest message first; threads wholly in Trash or Junk are left out."""
    return _LISTING.page(tx, _conditions(tx, query), query.page, partial(_thread_row, tx))


def _conditions(tx: Transaction, query: ThreadQuery) -> Conditions:
    where = Conditions()
    where.add("t.last_date IS NOT NULL")
    inboxes = visible_numbers(tx, query.visible)
    if query.inbox_id is not None:
        inboxes = only(visible_inbox(tx, query.inbox_id, query.visible))
    where.within("t.inbox", inboxes)
    if query.label is not None:
        among, params = any_of("label", numbers_by_name(tx, "labels", query.label, inboxes))
        where.add(
            f"""t.number IN (SELECT m.thread FROM messages m
                  JOIN message_labels ml ON +ml.inbox = +m.inbox AND ml.message = m.number
                 WHERE {within("+m.inbox", inboxes)[0]} AND ml.label {among}
                   AND m.is_hidden = 0)""",
            **params,
        )
    return where


def _thread_row(tx: Transaction, row: Row) -> ThreadRow:
    newest = _newest(tx, row, is_hidden=0)
    summary = _summary(row, newest)
    return ThreadRow(
        **{**summary, "subject": row[3][:_SUBJECT_SHOWN]}, snippet=newest[0][2] if newest else ""
    )


def _summary(row: Row, newest: Sequence[Row]) -> dict[str, Any]:
    """The fields that a thread and its list entry share."""
    names = (name for message in newest for name in from_text(message[1]))
    return {
        "id": row[1],
        "inbox_id": row[2],
        "subject": row[3],
        "participants": _people(newest),
        "message_count": row[4],
        "first_date": moment(row[5]),
        "last_date": moment(row[6]),
        "labels": tuple(sorted(set(names), key=str.casefold)),
    }


def _newest(tx: Transaction, row: Row, *, is_hidden: int) -> list[Row]:
    """The newest messages of a thread, for its summary."""
    return tx.all(NEWEST_OF, inbox=row[7], thread=row[0], is_hidden=is_hidden, limit=_PEOPLE_SEEN)


def _people(newest: Sequence[Row]) -> tuple[str, ...]:
    """The participants of a thread, in order of appearance."""
    lines = [line for row in reversed(newest) for line in from_text(row[0])]
    people = {line[2].lower(): line[2] for line in lines if line[0] in ("from", "to", "cc")}
    return tuple(people.values())[:_PEOPLE_SHOWN]


def get_thread(
    tx: Transaction, thread_id: str, visible: Visible, *, limit: int, before: str | None
) -> Thread | None:
    """A thread with its newest messages, or those before the message *before*.

    A thread wholly in Trash or Junk shows those.
    """
    named = tx.one(NAMED, id=thread_id)
    row = named and tx.one(THREAD, thread=named[0], inbox=named[1])
    if row is None or not visible.sees(row[2]):
        return None
    is_hidden = int(row[6] is None)
    if is_hidden:
        row = _hidden_counts(tx, row)
    rows = _messages(tx, row, is_hidden, limit + 1, _sort_key(tx, row, before))
    newest = _newest(tx, row, is_hidden=is_hidden)
    messages = tuple(thread_message(r, r[-2], r[-1]) for r in reversed(rows[:limit]))
    return Thread(**_summary(row, newest), messages=messages, has_more=len(rows) > limit)


def _hidden_counts(tx: Transaction, row: Row) -> Row:
    counts = tx.one(COUNT_ALL, inbox=row[7], thread=row[0])
    return (*row[:4], *counts, row[7]) if counts else row


def _sort_key(tx: Transaction, thread: Row, before: str | None) -> tuple[int, int] | None:
    if before is None:
        return None
    row = tx.one(
        """SELECT date, number FROM messages
            WHERE +inbox = :inbox AND id = :id AND thread = :thread""",
        inbox=thread[7],
        id=before,
        thread=thread[0],
    )
    if row is None:
        raise NotFound(f"before: no message {before} in this thread")
    return row[0], row[1]


def _messages(
    tx: Transaction, thread: Row, is_hidden: int, limit: int, before: tuple[int, int] | None
) -> list[Row]:
    start = "(m.date, m.number) < (:date, :number)" if before else "1 = 1"
    return tx.all(
        f"""SELECT {ROW_COLUMNS}, b.text, b.new_text FROM {MESSAGE_TABLES}
             WHERE +m.inbox = :inbox AND m.thread = :thread AND m.is_hidden = :is_hidden
               AND {start}
             ORDER BY m.date DESC, m.number DESC LIMIT :limit""",
        inbox=thread[7],
        thread=thread[0],
        is_hidden=is_hidden,
        **({"date": before[0], "number": before[1]} if before else {}),
        limit=limit,
    )


def merge_threads(tx: Transaction, thread_ids: Sequence[str], visible: Visible) -> str:
    """Move all messages into the first thread. Raises NotFound, InvalidInput."""
    found = [thread_number(tx, thread_id, visible) for thread_id in thread_ids]
    if len({inbox for _, inbox in found}) > 1:
        raise InvalidInput("thread_ids: threads of different inboxes cannot be merged")
    into, inbox = found[0]
    others = [number for number, _ in found[1:] if number != into]
    if others:
        join_threads(tx, inbox, into, list(dict.fromkeys(others)))
    return thread_ids[0]


def split_thread(
    tx: Transaction,
    thread_id: str,
    message_ids: Sequence[str],
    new_thread_id: str,
    visible: Visible,
) -> None:
    """Move messages of a thread into a new one, which is never merged automatically.

    Raises:
        NotFound: the thread does not exist, or one of the messages is not in it.
        InvalidInput: no message would be left.
    """
    thread, inbox = thread_number(tx, thread_id, visible)
    among, params = any_of("id", message_ids)
    rows = tx.all(
        f"""SELECT number, internet_id, id, subject FROM messages
             WHERE +inbox = :inbox AND thread = :thread AND id {among} ORDER BY date, number""",
        inbox=inbox,
        thread=thread,
        **params,
    )
    missing = set(message_ids) - {row[2] for row in rows}
    if missing:
        raise NotFound(f"no message {min(missing)} in the thread {thread_id}")
    counted = tx.one(COUNT_ALL, inbox=inbox, thread=thread)
    if counted and counted[0] == len(rows):
        raise InvalidInput("message_ids: that is the whole thread; leave at least one message")
    _split_off(tx, inbox, thread, new_thread_id, rows)


def _split_off(
    tx: Transaction, inbox: int, thread: int, new_thread_id: str, rows: Sequence[Row]
) -> None:
    subject = rows[0][3]
    new = insert_numbered(
        tx,
        "threads",
        id=new_thread_id,
        inbox=inbox,
        subject=subject,
        base_subject=subject_key(subject),
        is_pinned=1,
        message_count=0,
    )
    update(tx, "threads", {"inbox": inbox, "number": thread}, is_pinned=1)
    tx.many(MOVE, [{"new": new, "inbox": inbox, "number": row[0]} for row in rows])
    moved = {"new": new, "inbox": inbox, "thread": thread}
    tx.many(MOVE_ID, [{**moved, "internet_id": row[1]} for row in rows if row[1]])
    recount(tx, inbox, thread)
    recount(tx, inbox, new)
