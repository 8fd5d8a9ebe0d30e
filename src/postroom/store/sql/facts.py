"""Messages as rules look at them: found with the search index, read in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postroom.model.facts import Facts, Named, State
from postroom.model.page import Slice
from postroom.model.stored import FIELD_BORDER, MessageQuery
from postroom.store.search.find import Finder
from postroom.store.sql.finding import wanted_of
from postroom.store.sql.rows import direction
from postroom.store.sql.values import any_of, flag_names, from_text, moment
from postroom.store.transaction import Row, Transaction

ALL = Slice(limit=2**31 - 1)
FACTS = """
    SELECT m.number, m.id, i.id, t.id, m.is_outbound, m.subject, m.addresses, m.date, m.size_bytes,
           m.labels, m.flags, m.mailboxes, m.has_attachment, m.details, m.raw, s.searchable, m.inbox
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
      JOIN inboxes i ON i.number = +m.inbox
      JOIN search_texts s ON +s.inbox = +m.inbox AND s.message = m.number
     WHERE m.number {among} ORDER BY m.date DESC, m.number DESC
"""
FILES = """
    SELECT message, filename, content_type FROM attachments
     WHERE +inbox {inboxes} AND message {among} ORDER BY number
"""
TEXTS = "SELECT message, text FROM bodies WHERE inbox {inboxes} AND message {among}"


def candidates(tx: Transaction, queries: Sequence[MessageQuery], finder: Finder) -> list[int]:
    """The numbers of all messages that answer one of the questions."""
    found: set[int] = set()
    for query in queries:
        found.update(finder.find(tx, wanted_of(tx, replace(query, page=ALL))).numbers)
    return sorted(found, reverse=True)


def read_facts(
    tx: Transaction, numbers: Sequence[int], *, with_text: bool, with_files: bool
) -> list[Facts]:
    """What is known of some messages; texts and files only if somebody looks at them."""
    among, params = any_of("number", numbers)
    rows = tx.all(FACTS.format(among=among), **params)
    inboxes, scope = any_of("inbox", sorted({row[16] for row in rows}))
    files: dict[int, list[tuple[str, str]]] = {}
    if with_files:
        sql = FILES.format(inboxes=inboxes, among=among)
        for number, filename, kind in tx.all(sql, **params, **scope):
            files.setdefault(number, []).append((filename, kind))
    texts: dict[int, str] = {}
    if with_text:
        sql = TEXTS.format(inboxes=inboxes, among=among)
        texts.update((row[0], row[1]) for row in tx.all(sql, **params, **scope))
    return [_facts(row, texts.get(row[0], ""), files.get(row[0], ())) for row in rows]


def _facts(row: Row, text: str, files: Sequence[tuple[str, str]]) -> Facts:
    lines = from_text(row[6])
    folded = row[15].split(FIELD_BORDER, 2)
    auth = from_text(row[13])["auth"]
    return Facts(
        message_id=row[1],
        inbox_id=row[2],
        thread_id=row[3],
        direction=direction(row[4]),
        subject=row[5],
        folded_subject=folded[0],
        senders=_people(lines, "from"),
        to=_people(lines, "to"),
        cc=_people(lines, "cc"),
        date=moment(row[7]),
        size_bytes=row[8],
        state=State(tuple(from_text(row[9])), flag_names(row[10]), tuple(from_text(row[11]))),
        text=text,
        folded_text=folded[1] if text else "",
        files=tuple(files),
        has_attachment=bool(row[12]),
        auth=tuple(f"{name}={verdict}".lower() for name, verdict in auth.items()),
        raw=row[14],
        number=row[0],
    )


def _people(lines: Sequence[Sequence[str]], role: str) -> tuple[Named, ...]:
    return tuple(Named(name, address) for kind, name, address in lines if kind == role)
