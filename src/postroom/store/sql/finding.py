"""Which messages answer a question: conditions, the exact total, one page.

This is the plain way, which looks at every message of the scope; the search index takes its
place where a scope is large.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import NotFound
from postroom.model.inbox import EVERY_MAILBOX, Visible
from postroom.model.message import MessageRow
from postroom.model.page import Found, Slice
from postroom.model.stored import FIELD_BORDER, MessageQuery
from postroom.store.sql.adding import ADDRESS_END
from postroom.store.sql.excerpts import excerpt
from postroom.store.sql.names import numbers_named
from postroom.store.sql.rows import ROW_COLUMNS, ROW_TABLES, message_row
from postroom.store.sql.values import any_of, seconds, visible_numbers
from postroom.store.transaction import Row, Transaction

FILENAMES = "SELECT message, filename FROM attachments WHERE message {among} ORDER BY number"
BODIES = "SELECT message, text, searchable FROM bodies WHERE message {among}"


class Conditions:
    """Conditions of a WHERE clause with their parameters, all of which must hold."""

    def __init__(self) -> None:
        self._clauses: list[str] = []
        self.params: dict[str, object] = {}

    def add(self, clause: str, **params: object) -> None:
        """Add one condition."""
        self._clauses.append(clause)
        self.params |= params

    def among(self, column: str, name: str, values: Sequence[object]) -> None:
        """A column holds one of the values; of none, nothing is found."""
        clause, params = any_of(name, values)
        self.add(f"{column} {clause}", **params)

    @property
    def sql(self) -> str:
        return " AND ".join(self._clauses) or "1 = 1"


def find_messages(tx: Transaction, query: MessageQuery) -> Found[MessageRow]:
    """One page of the messages that answer a question, newest first."""
    where = _conditions(tx, query)
    total, offset = _count(tx, where, query.page)
    rows = _page(tx, where, query.page)
    excerpts = _excerpts(tx, rows, query.q) if query.q else {}
    found = tuple(message_row(row, excerpts.get(row[-1])) for row in rows)
    has_more = rows and offset + len(rows) < total
    return Found(found, total, offset, (rows[-1][8], rows[-1][-1]) if has_more else None)


def _conditions(tx: Transaction, query: MessageQuery) -> Conditions:
    where = Conditions()
    inboxes = _scope(tx, where, query)
    if query.mailbox is None:
        where.add("m.is_hidden = 0")
    elif query.mailbox != EVERY_MAILBOX:
        _named(tx, where, "mailboxes", query.mailbox, inboxes)
    for position, label in enumerate(query.labels):
        _named(tx, where, "labels", label, inboxes, position)
    if query.has_attachment is not None:
        where.add("m.has_attachment = :has_attachment", has_attachment=int(query.has_attachment))
    if query.after is not None:
        where.add("m.date >= :after", after=seconds(query.after))
    if query.before is not None:
        where.add("m.date < :before", before=seconds(query.before))
    _texts(where, query)
    return where


def _scope(tx: Transaction, where: Conditions, query: MessageQuery) -> list[int] | None:
    """Limit to the inbox, the thread or what the caller may see.

    Raises:
        NotFound: the inbox or thread does not exist for the caller.
    """
    inboxes = visible_numbers(tx, query.visible)
    if query.inbox_id is not None:
        inboxes = [inbox_number(tx, query.inbox_id, query.visible)]
    if query.thread_id is not None:
        where.add("m.thread = :thread", thread=thread_number(tx, query.thread_id, query.visible)[0])
    if inboxes is not None:
        where.among("m.inbox", "inbox", inboxes)
    return inboxes


def inbox_number(tx: Transaction, inbox_id: str, visible: Visible) -> int:
    """The number of an inbox. Raises NotFound."""
    row = tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
    if row is None or (visible is not None and inbox_id not in visible):
        raise NotFound(f"no inbox {inbox_id}; list_inboxes shows those you may use")
    return int(row[0])


def thread_number(tx: Transaction, thread_id: str, visible: Visible) -> tuple[int, int]:
    """The numbers of a thread and its inbox. Raises NotFound."""
    row = tx.one(
        """SELECT t.number, t.inbox, i.id FROM threads t JOIN inboxes i ON i.number = t.inbox
            WHERE t.id = :id""",
        id=thread_id,
    )
    if row is None or (visible is not None and row[2] not in visible):
        raise NotFound(f"no thread {thread_id}")
    return row[0], row[1]


def _named(
    tx: Transaction,
    where: Conditions,
    table: str,
    name: str,
    inboxes: list[int] | None,
    position: int = 0,
) -> None:
    kind = "mailbox" if table == "mailboxes" else "label"
    numbers = numbers_named(tx, "mailboxes" if kind == "mailbox" else "labels", name, inboxes)
    clause, params = any_of(f"{kind}{position}_", numbers)
    where.add(
        f"m.number IN (SELECT message FROM message_{table} WHERE {kind} {clause})",
        **params,
    )


def _texts(where: Conditions, query: MessageQuery) -> None:
    if query.q is not None:
        where.add("instr(b.searchable, :q) > 0", q=query.q)
    for column, text in (("senders", query.sender), ("recipients", query.recipient)):
        if text is not None:
            where.add(f"instr(b.{column}, :{column}) > 0", **{column: address_pattern(text)})


def address_pattern(folded: str) -> str:
    """What to look for among folded addresses: all of one, a whole domain, or any part."""
    local, at, domain = folded.partition("@")
    if not at or not domain or " " in folded or "@" in domain:
        return folded
    return f"{FIELD_BORDER if local else ''}{folded}{ADDRESS_END}"


def _count(tx: Transaction, where: Conditions, page: Slice) -> tuple[int, int]:
    """How many match, and how many of them stand before the page."""
    if page.after is None:
        row = tx.one(f"SELECT count(*) FROM {_tables(where)} WHERE {where.sql}", **where.params)
        return (int(row[0]) if row else 0), page.offset
    row = tx.one(
        f"""SELECT count(*),
                   coalesce(sum(CASE WHEN (m.date, m.number) >= (:date, :number)
                                     THEN 1 ELSE 0 END), 0)
              FROM {_tables(where)} WHERE {where.sql}""",
        **where.params,
        date=page.after[0],
        number=page.after[1],
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _tables(where: Conditions) -> str:
    bodies = " JOIN bodies b ON b.message = m.number" if "b." in where.sql else ""
    return f"messages m{bodies}"


def _page(tx: Transaction, where: Conditions, page: Slice) -> list[Row]:
    start = "(m.date, m.number) < (:date, :number)" if page.after else "1 = 1"
    date, number = page.after or (0, 0)
    numbers = tx.all(
        f"""SELECT m.number FROM {_tables(where)} WHERE {where.sql} AND {start}
             ORDER BY m.date DESC, m.number DESC LIMIT :limit OFFSET :offset""",
        **where.params,
        date=date,
        number=number,
        limit=page.limit,
        offset=page.offset,
    )
    return message_rows(tx, [row[0] for row in numbers])


def message_rows(tx: Transaction, numbers: Sequence[int]) -> list[Row]:
    """The rows of some messages, newest first; the last column is the number."""
    among, params = any_of("number", numbers)
    return tx.all(
        f"""SELECT {ROW_COLUMNS}, m.number FROM {ROW_TABLES} WHERE m.number {among}
             ORDER BY m.date DESC, m.number DESC""",
        **params,
    )


def _excerpts(tx: Transaction, rows: Sequence[Row], q: str) -> dict[int, str]:
    among, params = any_of("number", [row[-1] for row in rows])
    files: dict[int, list[str]] = {}
    for message, filename in tx.all(FILENAMES.format(among=among), **params):
        files.setdefault(message, []).append(filename)
    bodies = {row[0]: row for row in tx.all(BODIES.format(among=among), **params)}
    return {
        row[-1]: excerpt(
            bodies[row[-1]][2],
            q,
            (row[4], bodies[row[-1]][1], row[5], row[6], *files.get(row[-1], ())),
        )
        for row in rows
    }
