"""Searching without the index: small scopes, and the tail."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.store.search.characters import split_query
from postroom.store.search.wanted import EVERYWHERE, Answer, Match, Wanted
from postroom.store.sql.conditions import within
from postroom.store.sql.values import CONTAINS, any_of, in_lots, is_storable, pattern
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
"""Not a join, nor what PostgreSQL makes one of (hence the offset): no plan may begin with the
texts, and read those of every inbox. The inboxes are said once more, because what is left out of a
plan for good must stand in the query itself."""


@dataclass(frozen=True, slots=True)
class Small:
    """For how many messages, times its segments, it is quicker to look at each than at the index.

    What any question costs the index counts like ten segments.
    """

    words: int = 8
    phrases: int = 30
    lists: int = 20

    def at_most(self, segments: int) -> int:
        """How many messages of a scope any question would look at."""
        return max(self.words, self.phrases, self.lists) * (segments + _ALWAYS)


_ALWAYS = 10
SMALL = Small()


def most_to_scan(wanted: Wanted, small: Small, segments: int) -> int:
    """Up to how many messages it is quicker to look at each."""
    each = small.words if wanted.columns() else small.lists
    if any(split_query(text)[1] for _, text in wanted.texts()):
        each = small.phrases
    return each * (segments + _ALWAYS)


def size_up_to(tx: Transaction, wanted: Wanted, most: int) -> int:
    """How many messages the inboxes have, counted up to this many."""
    scope, params = _scope(wanted)
    row = tx.one(
        f"SELECT count(*) FROM (SELECT 1 FROM messages m WHERE {scope} LIMIT :most) AS few",
        **params,
        most=most,
    )
    return int(row[0]) if row else 0


def scan(tx: Transaction, wanted: Wanted) -> Answer:
    """Answer a question by looking at every message of its scope."""
    scope, params = _scope(wanted)
    return _page(_matches(tx, wanted, "messages m", scope, params), wanted)


def has_tail(tx: Transaction, inboxes: Sequence[int] | None) -> bool:
    """Whether any message of some inboxes is in no segment yet."""
    scope, params = within("inbox", inboxes)
    return tx.one(f"SELECT 1 FROM search_tail WHERE {scope} LIMIT 1", **params) is not None


def scan_tail(tx: Transaction, wanted: Wanted, numbers: Sequence[int] | None = None) -> list[Match]:
    """The matches among the messages that are in no segment yet, or some of them, newest first."""
    # A cross join says to begin with the tail, which is short.
    tables = "search_tail tail CROSS JOIN messages m"
    scope, params = _scope(wanted, "tail")
    clauses = ["m.number = tail.message AND +m.inbox = +tail.inbox", scope]
    if numbers is not None:
        among, some = any_of("message", in_lots(numbers))
        clauses.append(f"tail.message {among}")
        params |= some
    return _matches(tx, wanted, tables, " AND ".join(clauses), params)


def _scope(wanted: Wanted, table: str = "m") -> tuple[str, dict[str, object]]:
    clauses, params = ["1 = 1"], dict[str, object]()
    if wanted.thread is not None:
        clauses.append("m.thread = :thread")
        params["thread"] = wanted.thread
    if wanted.inboxes is not None:
        among, inboxes = any_of("inbox", wanted.inboxes)
        # a thread is found by its own index
        clauses.append(f"{'' if wanted.thread is None else '+'}{table}.inbox {among}")
        params |= inboxes
    return " AND ".join(clauses), params


def _matches(
    tx: Transaction, wanted: Wanted, tables: str, scope: str, params: dict[str, object]
) -> list[Match]:
    columns, texts = wanted.columns(), [text for _, text in wanted.texts()]
    if not all(map(is_storable, texts)):
        return []
    conditions, more = _conditions(wanted)
    names = [f"text{position}" for position in range(len(texts))]
    if names:
        contain = [f"b.{c} {CONTAINS.format(name=n)}" for c, n in zip(columns, names, strict=True)]
        inboxes, _ = within("b.inbox", wanted.inboxes)
        conditions.append(HAS_TEXTS.format(within=inboxes, texts=" AND ".join(contain)))
        more |= zip(names, map(pattern, texts), strict=True)
    where = " AND ".join([scope, *conditions])
    rows = tx.all(f"SELECT m.date, m.number FROM {tables} WHERE {where}", **params, **more)
    return sorted(((row[0], row[1]) for row in rows), reverse=True)


def _conditions(wanted: Wanted) -> tuple[list[str], dict[str, object]]:
    """All but the scope and the texts."""
    clauses, params = [], dict[str, object]()
    inboxes, _ = within("x.inbox", wanted.inboxes)
    if wanted.mailbox is None:
        clauses.append("m.is_hidden = 0")
    elif wanted.mailbox != EVERYWHERE:
        clauses.append(IN_MAILBOX.format(name="mailbox", within=inboxes))
        params["mailbox"] = wanted.mailbox
    for position, label in enumerate(wanted.labels):
        clauses.append(HAS_LABEL.format(name=f"label{position}", within=inboxes))
        params[f"label{position}"] = label
    for clause, name, value in (
        ("m.has_attachment = :file", "file", wanted.has_attachment),
        ("m.date >= :since", "since", wanted.since),
        ("m.date < :before", "before", wanted.before),
    ):
        if value is not None:
            clauses.append(clause)
            params[name] = int(value)
    return clauses, params


def _page(found: list[Match], wanted: Wanted) -> Answer:
    offset = wanted.offset
    if wanted.after is not None:
        offset = not_older(found, wanted.after)
    page = found[offset : offset + wanted.limit]
    return Answer(tuple(number for _, number in page), len(found), offset)


def not_older(found: list[Match], match: Match) -> int:
    """How many of the matches, newest first, are not older than this one."""
    return bisect_left(found, (-match[0], -match[1] + 1), key=lambda m: (-m[0], -m[1]))
