"""Labels and mailboxes of an inbox: found by name, made on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from postroom.model.inbox import HIDDEN_MAILBOXES, Label, Visible
from postroom.model.page import Found, Slice
from postroom.store.sql.values import any_of, caseless, visible_numbers
from postroom.store.transaction import Transaction

Table = Literal["labels", "mailboxes"]
_HIDDEN = frozenset(caseless(name) for name in HIDDEN_MAILBOXES)


def is_hidden(mailboxes: Sequence[str]) -> bool:
    """Whether a message in these mailboxes is left out of lists."""
    return all(caseless(name) in _HIDDEN for name in mailboxes)


def name_of(tx: Transaction, table: Table, inbox: int, name: str) -> tuple[int, str]:
    """The number of a label or mailbox and its name as first written; made if it is new."""
    folded = caseless(name)
    known: tuple[int, str] | None = tx.known.get((table, inbox, folded))
    if known is None:
        known = tx.known[table, inbox, folded] = _look_up(tx, table, inbox, name, folded)
    return known


def _look_up(tx: Transaction, table: Table, inbox: int, name: str, folded: str) -> tuple[int, str]:
    row = tx.one(
        f"SELECT number, name FROM {table} WHERE inbox = :inbox AND folded = :folded",
        inbox=inbox,
        folded=folded,
    )
    if row is None:
        row = tx.one(
            f"""INSERT INTO {table} (inbox, name, folded) VALUES (:inbox, :name, :folded)
                RETURNING number, name""",
            inbox=inbox,
            name=name,
            folded=folded,
        )
    return (row[0], row[1]) if row else (0, name)


def numbers_named(
    tx: Transaction, table: Table, name: str, inboxes: Sequence[int] | None
) -> list[int]:
    """The numbers under which a name stands, one for each inbox that has it."""
    among, params = ("IS NOT NULL", {}) if inboxes is None else any_of("inbox", inboxes)
    rows = tx.all(
        f"SELECT number FROM {table} WHERE folded = :folded AND inbox {among}",
        folded=caseless(name),
        **params,
    )
    return [row[0] for row in rows]


def list_labels(tx: Transaction, visible: Visible, page: Slice) -> Found[Label]:
    """The labels that visible messages carry, by name."""
    inboxes = visible_numbers(tx, visible)
    among, params = ("IS NOT NULL", {}) if inboxes is None else any_of("inbox", inboxes)
    rows = tx.all(
        f"""SELECT min(l.name), l.folded, count(*)
              FROM labels l JOIN message_labels ml ON +ml.inbox = +l.inbox AND ml.label = l.number
              JOIN messages m ON +m.inbox = +ml.inbox AND m.number = ml.message
             WHERE l.inbox {among} AND m.is_hidden = 0
             GROUP BY l.folded ORDER BY l.folded""",
        **params,
    )
    start = page.offset
    if page.after:
        start = sum(1 for row in rows if row[1] <= page.after[0])
    shown = rows[start : start + page.limit]
    has_more = start + len(shown) < len(rows)
    return Found(
        tuple(Label(row[0], row[2]) for row in shown),
        len(rows),
        start,
        (shown[-1][1],) if has_more and shown else None,
    )
