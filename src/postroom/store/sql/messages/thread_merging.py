"""Merging of threads, and counting what is in one."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.store.sql.memories.memory_links import redirect_links
from postroom.store.sql.statements import any_of
from postroom.store.transaction import Transaction

RECOUNT = """
    UPDATE threads SET (message_count, first_date, last_date) = (
        SELECT count(*), min(date), max(date) FROM messages
         WHERE +inbox = :inbox AND thread = :thread AND is_hidden = 0
    ) WHERE inbox = :inbox AND number = :thread
"""
HAS_MESSAGES = "SELECT 1 FROM messages WHERE +inbox = :inbox AND thread = :thread LIMIT 1"
INSERT_ALIASES = """
    INSERT INTO thread_aliases (id, thread, inbox)
    SELECT id, CAST(:into AS BIGINT), inbox FROM threads WHERE +inbox = :inbox AND number {among}
"""


def join_threads(tx: Transaction, inbox: int, into: int, others: Sequence[int]) -> None:
    """Move all messages of some threads into one, whose aliases their ids become."""
    redirect_links(tx, inbox, into, others)
    among, params = any_of("thread", others)
    which = {"inbox": inbox, "into": into, **params}
    tx.put(INSERT_ALIASES.format(among=among), **which)
    for table in ("messages", "thread_ids", "thread_aliases"):
        tx.put(
            f"UPDATE {table} SET thread = :into WHERE +inbox = :inbox AND thread {among}", **which
        )
    tx.put(f"DELETE FROM threads WHERE +inbox = :inbox AND number {among}", **which)
    tx.put(RECOUNT, inbox=inbox, thread=into)


def recount(tx: Transaction, inbox: int, thread: int) -> None:
    """Recompute the counts of a thread; a thread without messages is removed."""
    which = {"inbox": inbox, "thread": thread}
    if tx.one(HAS_MESSAGES, **which):
        tx.put(RECOUNT, **which)
        return
    for table in ("thread_ids", "thread_aliases"):
        tx.put(f"DELETE FROM {table} WHERE +inbox = :inbox AND thread = :thread", **which)
    tx.put("DELETE FROM threads WHERE inbox = :inbox AND number = :thread", **which)
