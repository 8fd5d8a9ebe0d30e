"""Conditions of a WHERE clause, gathered one by one."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.store.sql.values import any_of


def within(column: str, inboxes: Sequence[int] | None) -> tuple[str, dict[str, object]]:
    """A condition that keeps a query to some inboxes, and so to where their rows are; None is all.

    It begins with a plus where the rows are found by their numbers, see `postgres.connection`.
    """
    if inboxes is None:
        return "1 = 1", {}
    among, params = any_of("inbox", inboxes)
    return f"{column} {among}", params


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
