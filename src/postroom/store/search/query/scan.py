"""Searching without segments: small scopes and the buffer are scanned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.model.view import Numbers
from postroom.store.search.query.search_query import EVERYWHERE, Match, SearchQuery, SearchResult
from postroom.store.search.tokens.boundaries import split_query
from postroom.store.sql.conditions import within
from postroom.store.sql.values import CONTAINS, any_of, is_storable, padded, pattern
from postroom.store.transaction import Transaction

HAS_LABEL = """EXISTS (
    SELECT 1 FROM message_labels x JOIN labels n ON +n.inbox = +x.inbox AND n.number = x.label
     WHERE +x.inbox = +m.inbox AND {within} AND x.message = m.number AND n.folded = :{name}
)"""
IN_MAILBOX = """EXISTS (
    SELECT 1 FROM message_mailboxes x
      JOIN mailboxes n ON +n.inbox = +x.inbox AND n.number = x.mailbox
     WHERE +x.inbox = +m.inbox AND {within} AND x.message = m.number AND n.folded = :{name}
)"""

HAS_TEXTS = """EXISTS (
    SELECT 1 FROM search_texts b
     WHERE +b.inbox = +m.inbox AND {within} AND b.message = m.number AND {texts} LIMIT 1 OFFSET 0
)"""
"""A subquery with OFFSET 0, so that PostgreSQL does not turn it into a join that starts with the
texts of all inboxes. The inboxes are repeated because partitions are only pruned by what the
subquery itself names."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Up to how many messages, per segment, scanning is faster than asking the index."""

    words: int = 8
    phrases: int = 30
    lists: int = 20

    def max_messages(self, segments: int) -> int:
        """The most messages that any query would scan."""
        return max(self.words, self.phrases, self.lists) * (segments + _FIXED_COST)


_FIXED_COST = 10
"""The fixed cost of asking the index, in segments."""
DEFAULT_SCAN_LIMITS = ScanLimits()


def scan_limit(query: SearchQuery, limits: ScanLimits, segments: int) -> int:
    """Up to how many messages this query scans."""
    per_segment = limits.words if query.columns() else limits.lists
    if any(split_query(text)[1] for _, text in query.texts()):
        per_segment = limits.phrases
    return per_segment * (segments + _FIXED_COST)


def count_up_to(tx: Transaction, query: SearchQuery, limit: int) -> int:
    """The number of messages of the inboxes, counted up to *limit*."""
    scope, params = _scope(query)
    row = tx.one(
        f"SELECT count(*) FROM (SELECT 1 FROM messages m WHERE {scope} LIMIT :limit) AS scope",
        **params,
        limit=limit,
    )
    return int(row[0]) if row else 0


def scan(tx: Transaction, query: SearchQuery) -> SearchResult:
    """Answer a query by reading every message of its scope."""
    scope, params = _scope(query)
    return _page(_matches(tx, query, "messages m", scope, params), query)


def has_buffered(tx: Transaction, inboxes: Numbers) -> bool:
    scope, params = within("inbox", inboxes)
    return tx.one(f"SELECT 1 FROM search_buffer WHERE {scope} LIMIT 1", **params) is not None


def scan_buffer(
    tx: Transaction, query: SearchQuery, numbers: Sequence[int] | None = None
) -> list[Match]:
    """The matches in the buffer, or among *numbers* of it, newest first."""
    # A cross join makes the planner start with the buffer, which is short.
    tables = "search_buffer buffer CROSS JOIN messages m"
    scope, params = _scope(query, "buffer")
    clauses = ["m.number = buffer.message AND +m.inbox = +buffer.inbox", scope]
    if numbers is not None:
        among, more = any_of("message", padded(numbers))
        clauses.append(f"buffer.message {among}")
        params |= more
    return _matches(tx, query, tables, " AND ".join(clauses), params)


def _scope(query: SearchQuery, table: str = "m") -> tuple[str, dict[str, object]]:
    clauses, params = list[str](), dict[str, object]()
    if query.thread is not None:
        clauses.append("m.thread = :thread")
        params["thread"] = query.thread
    # A thread has an index of its own.
    plus = "" if query.thread is None else "+"
    condition, inboxes = within(f"{plus}{table}.inbox", query.inboxes)
    clauses.append(condition)
    params |= inboxes
    return " AND ".join(clauses), params


def _matches(
    tx: Transaction, query: SearchQuery, tables: str, scope: str, params: dict[str, object]
) -> list[Match]:
    columns, texts = query.columns(), [text for _, text in query.texts()]
    if not all(map(is_storable, texts)):
        return []
    conditions, more = _conditions(query)
    names = [f"text{position}" for position in range(len(texts))]
    if names:
        contain = [f"b.{c} {CONTAINS.format(name=n)}" for c, n in zip(columns, names, strict=True)]
        inboxes, _ = within("b.inbox", query.inboxes)
        conditions.append(HAS_TEXTS.format(within=inboxes, texts=" AND ".join(contain)))
        more |= zip(names, map(pattern, texts), strict=True)
    where = " AND ".join([scope, *conditions])
    rows = tx.all(f"SELECT m.date, m.number FROM {tables} WHERE {where}", **params, **more)
    return sorted(((row[0], row[1]) for row in rows), reverse=True)


def _conditions(query: SearchQuery) -> tuple[list[str], dict[str, object]]:
    """The conditions except scope and texts."""
    clauses, params = [], dict[str, object]()
    inboxes, _ = within("x.inbox", query.inboxes)
    if query.mailbox is None:
        clauses.append("m.is_hidden = 0")
    elif query.mailbox != EVERYWHERE:
        clauses.append(IN_MAILBOX.format(name="mailbox", within=inboxes))
        params["mailbox"] = query.mailbox
    for position, label in enumerate(query.labels):
        clauses.append(HAS_LABEL.format(name=f"label{position}", within=inboxes))
        params[f"label{position}"] = label
    for clause, name, value in (
        ("m.has_attachment = :file", "file", query.has_attachment),
        ("m.date >= :since", "since", query.since),
        ("m.date < :before", "before", query.before),
    ):
        if value is not None:
            clauses.append(clause)
            params[name] = int(value)
    return clauses, params


def _page(found: list[Match], query: SearchQuery) -> SearchResult:
    offset = query.offset
    if query.after is not None:
        offset = count_not_older(found, query.after)
    page = found[offset : offset + query.limit]
    return SearchResult(tuple(number for _, number in page), len(found), offset)


def count_not_older(found: list[Match], match: Match) -> int:
    """How many matches, newest first, are not older than *match*."""
    return bisect_left(found, (-match[0], -match[1] + 1), key=lambda m: (-m[0], -m[1]))
