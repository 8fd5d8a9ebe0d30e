"""The query, its result, and searching without segments by scanning small scopes and the buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postroom.model.values import dataclass
from postroom.model.view import Numbers
from postroom.store.search.segments.segment import (
    COLUMNS,
    RECIPIENTS,
    SEARCHABLE,
    SENDERS,
    SUBJECT,
)
from postroom.store.search.tokens.boundaries import split_query
from postroom.store.sql.statements import (
    CONTAINS,
    any_of,
    flag_bits,
    is_storable,
    padded,
    pattern,
    within,
)
from postroom.store.transaction import Transaction

EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Which messages to find. Texts and names are folded; None does not restrict.

    `words`, `sender_words` and `recipient_words` must all be contained. A `mailbox` of None
    excludes hidden messages, `*` excludes nothing. `sender` and `recipient` are searched in the
    joined addresses. `flags` are all required, `without_flags` are all excluded. `after` is the
    date and number of the last message of the page before.
    """

    inboxes: Numbers
    thread: int | None = None
    q: str | None = None
    words: tuple[str, ...] = ()
    sender: str | None = None
    sender_words: tuple[str, ...] = ()
    recipient: str | None = None
    recipient_words: tuple[str, ...] = ()
    subject: str | None = None
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    without_flags: tuple[str, ...] = ()
    mailbox: str | None = None
    has_attachment: bool | None = None
    since: int | None = None
    before: int | None = None
    limit: int = 50
    offset: int = 0
    after: tuple[int, int] | None = None
    oldest_first: bool = False

    def texts(self) -> Iterator[tuple[int, str]]:
        """The streams to search, and each text to find there."""
        for stream, texts in (
            (SUBJECT, (self.subject,)),
            (SEARCHABLE, (self.q, *self.words)),
            (SENDERS, (self.sender, *self.sender_words)),
            (RECIPIENTS, (self.recipient, *self.recipient_words)),
        ):
            yield from ((stream, text) for text in texts if text is not None)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The message numbers of one page, in order, and the total of all matches."""

    numbers: tuple[int, ...]
    total: int
    offset: int


Match = tuple[int, int]
"""Date and number of a message; lists are sorted by it, descending."""

MailboxKey = tuple[int, str]
"""The number of an inbox, and the folded name of a mailbox."""

Counts = tuple[int, int]
"""How many messages have a mailbox or a label, and how many of them are unread."""

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


_FIXED_COST = 10
"""The fixed cost of asking the index, in segments."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Up to how many messages, per segment, scanning is faster than asking the index."""

    words: int = 8
    phrases: int = 30
    lists: int = 20

    def max_messages(self, segments: int) -> int:
        """The most messages that any query would scan."""
        return max(self.words, self.phrases, self.lists) * (segments + _FIXED_COST)

    def for_query(self, query: SearchQuery, segments: int) -> int:
        """Up to how many messages this query scans."""
        texts = [text for _, text in query.texts()]
        per_segment = self.words if texts else self.lists
        if any(split_query(text)[1] for text in texts):
            per_segment = self.phrases
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
    found, offset = _matches(tx, query, "messages m", scope, params), query.offset
    if query.oldest_first:
        found.reverse()
    if query.after is not None:
        offset = sum(is_before(match, query) for match in found)
    page = found[offset : offset + query.limit]
    return SearchResult(tuple(number for _, number in page), len(found), offset)


def is_before(match: Match, query: SearchQuery) -> bool:
    """Whether a match is on a page before the one that starts after `query.after`."""
    if query.after is None:
        return False
    return match <= query.after if query.oldest_first else match >= query.after


MAILBOX_COUNTS = """
    SELECT m.inbox, n.folded, count(*), sum(CASE WHEN (m.flags & :seen) = 0 THEN 1 ELSE 0 END)
      FROM {tables} JOIN message_mailboxes x ON +x.inbox = +m.inbox AND x.message = m.number
      JOIN mailboxes n ON +n.inbox = +x.inbox AND n.number = x.mailbox
     WHERE {scope} GROUP BY m.inbox, n.folded
"""


def scan_mailboxes(
    tx: Transaction, inboxes: Sequence[int], *, buffered: bool = False
) -> dict[MailboxKey, Counts]:
    """Count the messages of each mailbox of some inboxes, or those that are in the buffer."""
    tables, scope = "messages m", "m.inbox"
    if buffered:
        tables, scope = "search_buffer b CROSS JOIN messages m", "b.inbox"
    among, params = any_of("inbox", inboxes)
    where = f"{scope} {among}"
    if buffered:
        where += " AND m.number = b.message AND +m.inbox = +b.inbox"
    rows = tx.all(
        MAILBOX_COUNTS.format(tables=tables, scope=where), seen=flag_bits(("seen",)), **params
    )
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in rows}


LABEL_COUNTS = """
    SELECT n.folded, count(*), sum(CASE WHEN (m.flags & :seen) = 0 THEN 1 ELSE 0 END)
      FROM {tables} JOIN messages m ON +m.inbox = +x.inbox AND m.number = x.message
      JOIN labels n ON +n.inbox = +x.inbox AND n.number = x.label
     WHERE {scope} AND m.is_hidden = 0 GROUP BY n.folded
"""


def scan_labels(tx: Transaction, inboxes: Numbers, *, buffered: bool = False) -> dict[str, Counts]:
    """Count the messages of some inboxes by label, or those that are in the buffer."""
    tables = "message_labels x"
    scope, params = within("b.inbox" if buffered else "n.inbox", inboxes)
    if buffered:
        # A cross join makes the planner start with the buffer, which is short.
        tables = "search_buffer b CROSS JOIN message_labels x"
        scope += " AND x.message = b.message AND +x.inbox = +b.inbox"
    sql = LABEL_COUNTS.format(tables=tables, scope=scope)
    rows = tx.all(sql, seen=flag_bits(("seen",)), **params)
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}


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
    if query.thread is None:
        return within(f"{table}.inbox", query.inboxes)
    # Threads have a separate index.
    condition, inboxes = within(f"+{table}.inbox", query.inboxes)
    return f"m.thread = :thread AND {condition}", {"thread": query.thread, **inboxes}


def _matches(
    tx: Transaction, query: SearchQuery, tables: str, scope: str, params: dict[str, object]
) -> list[Match]:
    texts = list(query.texts())
    if not all(is_storable(text) for _, text in texts):
        return []
    conditions, more = _conditions(query)
    if texts:
        contain = [
            f"{'' if stream == SUBJECT else 'b.'}{COLUMNS[stream]} "
            f"{CONTAINS.format(name=f'text{at}')}"
            for at, (stream, _) in enumerate(texts)
        ]
        inboxes, _ = within("b.inbox", query.inboxes)
        conditions.append(HAS_TEXTS.format(within=inboxes, texts=" AND ".join(contain)))
        more |= {f"text{at}": pattern(text) for at, (_, text) in enumerate(texts)}
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
    for clause, name, flags in (
        ("(m.flags & :flags) = :flags", "flags", query.flags),
        ("(m.flags & :without) = 0", "without", query.without_flags),
    ):
        if flags:
            clauses.append(clause)
            params[name] = flag_bits(flags)
    for clause, name, value in (
        ("m.has_attachment = :file", "file", query.has_attachment),
        ("m.date >= :since", "since", query.since),
        ("m.date < :before", "before", query.before),
    ):
        if value is not None:
            clauses.append(clause)
            params[name] = int(value)
    return clauses, params
