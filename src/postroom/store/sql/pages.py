"""Lists in the order of their rows' numbers, one page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from postroom.model.page import Found, Slice
from postroom.store.sql.conditions import Conditions
from postroom.store.transaction import Row, Transaction

T = TypeVar("T")
_BEYOND_ALL = 2**62


@dataclass(frozen=True, slots=True)
class Listing:
    """What is listed, and the number that orders it, oldest first if nothing else is said."""

    columns: str
    tables: str
    number: str
    position: int = 0
    """Where the number stands among the columns."""
    is_newest_first: bool = False
    counted: str = ""
    """The tables that are enough to count what is listed, if not all of them are needed."""

    def page(
        self, tx: Transaction, where: Conditions, page: Slice, read: Callable[[Row], T]
    ) -> Found[T]:
        """One page of what is so, each row of it read into a value."""
        ahead, passed, order = ("<", ">=", " DESC") if self.is_newest_first else (">", "<=", "")
        total, offset = self._count(tx, where), page.offset
        place = _BEYOND_ALL if self.is_newest_first else 0
        if page.after:
            place = int(page.after[0])
            offset = self._count(tx, where, f" AND {self.number} {passed} :place", place=place)
        rows = tx.all(
            f"""SELECT {self.columns} FROM {self.tables}
                 WHERE {where.sql} AND {self.number} {ahead} :place
                 ORDER BY {self.number}{order} LIMIT :limit OFFSET :skipped""",
            **where.params,
            place=place,
            limit=page.limit,
            skipped=page.offset,
        )
        has_more = rows and offset + len(rows) < total
        following = (rows[-1][self.position],) if has_more else None
        return Found(tuple(read(row) for row in rows), total, offset, following)

    def _count(self, tx: Transaction, where: Conditions, more: str = "", **params: object) -> int:
        row = tx.one(
            f"SELECT count(*) FROM {self.counted or self.tables} WHERE {where.sql}{more}",
            **where.params,
            **params,
        )
        return int(row[0]) if row else 0
