"""Parts of SQL statements: conditions, views and pages; and which blobs are in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.model.message import BlobKey
from postroom.model.page import Found, Slice
from postroom.model.values import dataclass
from postroom.model.view import Everything, Numbers, Only, View
from postroom.store.sql.values import (
    CONTAINS,
    any_of,
    batches,
    dumps,
    from_text,
    pattern,
    scalar,
    view_in,
)
from postroom.store.transaction import Row, Transaction


def within(column: str, view: View | Numbers, name: str = "inbox") -> tuple[str, dict[str, object]]:
    """A condition that limits a query to a view; an empty view matches nothing.

    On inboxes it also selects the partition. The column begins with a plus where rows are found by
    their numbers, see `postgres.connection`.
    """
    if isinstance(view, Everything):
        return "1 = 1", {}
    among, params = any_of(name, view.named)
    return f"{column} {among}", params


class Conditions:
    """Conditions of a WHERE clause, joined by AND, with their parameters."""

    def __init__(self) -> None:
        self._clauses: list[str] = []
        self.params: dict[str, object] = {}

    def add(self, clause: str, **params: object) -> None:
        self._clauses.append(clause)
        self.params |= params

    def among(self, column: str, name: str, values: Sequence[object]) -> None:
        """Require one of the values; an empty sequence matches nothing."""
        clause, params = any_of(name, values)
        self.add(f"{column} {clause}", **params)

    def within(self, column: str, view: View | Numbers, name: str = "inbox") -> None:
        """Require a value that is in a view."""
        if not isinstance(view, Everything):
            self.among(column, name, view.named)

    @property
    def sql(self) -> str:
        return " AND ".join(self._clauses) or "1 = 1"


T = TypeVar("T")


def page_of(found: Sequence[T], page: Slice) -> Found[T]:
    """One page of a list that is in memory; its cursor is an offset."""
    start = int(page.after[0]) if page.after else page.offset
    shown = found[start : start + page.limit]
    end = start + len(shown)
    return Found(tuple(shown), len(found), start, (end,) if shown and end < len(found) else None)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list query in the order of its key, oldest first by default."""

    columns: str
    tables: str
    key: str
    """The columns that order the rows; together they are unique and not NULL."""
    is_newest_first: bool = False
    counted: str = ""
    """The tables that suffice for counting, if not all are needed."""

    def page(
        self, tx: Transaction, where: Conditions, page: Slice, read: Callable[[Row], T]
    ) -> Found[T]:
        """One page of the matching rows, each converted to a value.

        The columns of the key are added to those that *read* gets; they are the cursor.
        """
        names = self.key.split(", ")
        total, offset, ahead = self._count(tx, where), page.offset, ""
        place = {f"after{n}": int(value) for n, value in enumerate(page.after or ())}
        if place:
            after = ", ".join(f":{name}" for name in place)
            ahead = f" AND ({self.key}) {'<' if self.is_newest_first else '>'} ({after})"
            offset = total - self._count(tx, where, ahead, **place)
        order = [f"{name} DESC" if self.is_newest_first else name for name in names]
        rows = tx.all(
            f"""SELECT {self.columns}, {self.key} FROM {self.tables} WHERE {where.sql}{ahead}
                 ORDER BY {", ".join(order)} LIMIT :limit OFFSET :skipped""",
            **where.params,
            **place,
            limit=page.limit,
            skipped=page.offset,
        )
        has_more = rows and offset + len(rows) < total
        cursor = tuple(rows[-1][-len(names) :]) if has_more else None
        return Found(tuple(read(row) for row in rows), total, offset, cursor)

    def _count(self, tx: Transaction, where: Conditions, more: str = "", **params: object) -> int:
        sql = f"SELECT count(*) FROM {self.counted or self.tables} WHERE {where.sql}{more}"
        return int(scalar(tx, sql, **where.params, **params))


_TABLES_WITH_INBOXES = ("rules", "plans", "webhooks")


def remove_inbox_references(tx: Transaction, inbox_id: str, account_id: str | None) -> None:
    """Remove a deleted inbox and its account from the rules, plans, webhooks and keys naming it."""
    for table in _TABLES_WITH_INBOXES:
        for row_id, stored in _rows_naming(tx, table, "inboxes", inbox_id):
            tx.run(
                f"""UPDATE {table}
                     SET inboxes = :remaining, visible_inboxes = coalesce(visible_inboxes, inboxes)
                     WHERE id = :id""",
                remaining=_without(stored, inbox_id),
                id=row_id,
            )
    _remove_from_keys(tx, "inboxes", inbox_id, inbox_id)
    if account_id is not None:
        _remove_from_keys(tx, "accounts", account_id, inbox_id)
    tx.announce("keys")


def _remove_from_keys(tx: Transaction, column: str, removed_id: str, inbox_id: str) -> None:
    for key_id, stored in _rows_naming(tx, "keys", column, removed_id):
        former = scalar(tx, "SELECT former_inboxes FROM keys WHERE id = :id", id=key_id)
        known = from_text(former) if former else []
        tx.run(
            f"UPDATE keys SET {column} = :remaining, former_inboxes = :former WHERE id = :id",
            remaining=_without(stored, removed_id),
            former=dumps(list(dict.fromkeys([*known, inbox_id]))),
            id=key_id,
        )


def _rows_naming(tx: Transaction, table: str, column: str, removed_id: str) -> list[Row]:
    contains = CONTAINS.format(name="removed_id")
    rows = tx.all(
        f"SELECT id, {column} FROM {table} WHERE {column} {contains}",
        removed_id=pattern(dumps(removed_id)),
    )
    return [row for row in rows if isinstance(view_in(row[1]), Only)]


def _without(stored: str, removed_id: str) -> str:
    return dumps([one for one in from_text(stored) if one != removed_id])


OF_MESSAGES = (
    "bodies",
    "search_texts",
    "message_labels",
    "message_mailboxes",
    "attachments",
    "outbox",
)
"""The tables of rows that belong to a message."""

BLOBS_AFTER = """
    SELECT raw, size_bytes FROM messages WHERE raw > :after
    UNION
    SELECT sha256, size FROM attachments WHERE sha256 > :after
    ORDER BY 1 LIMIT :limit
"""


def used_blobs(tx: Transaction, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    """The keys that a message or an attachment uses."""
    used: set[BlobKey] = set()
    for batch in batches(keys):
        among, params = any_of("key", batch)
        rows = tx.all(
            f"""SELECT raw FROM messages WHERE raw {among}
                UNION SELECT sha256 FROM attachments WHERE sha256 {among}""",
            **params,
        )
        used.update(row[0] for row in rows)
    return frozenset(used)


def unused_of(tx: Transaction, keys: Sequence[BlobKey]) -> tuple[BlobKey, ...]:
    """The keys that nothing uses."""
    used = used_blobs(tx, keys)
    return tuple(key for key in dict.fromkeys(keys) if key not in used)


def blobs_after(tx: Transaction, after: BlobKey, limit: int) -> list[tuple[BlobKey, int]]:
    """The next used blobs in the order of their keys, with their sizes."""
    return [(row[0], row[1]) for row in tx.all(BLOBS_AFTER, after=after, limit=limit)]
