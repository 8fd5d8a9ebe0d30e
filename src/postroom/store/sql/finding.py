"""Which messages answer a question: what the search index is asked, and the rows it names."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import NotFound, no_such
from postroom.model.inbox import Visible
from postroom.model.message import MessageRow
from postroom.model.page import Found
from postroom.model.stored import FIELD_BORDER, MessageQuery
from postroom.store.search.find import Finder
from postroom.store.search.wanted import Wanted
from postroom.store.sql.adding import ADDRESS_END
from postroom.store.sql.conditions import within
from postroom.store.sql.excerpts import excerpt
from postroom.store.sql.rows import ROW_COLUMNS, ROW_TABLES, message_row
from postroom.store.sql.threading import NAMED
from postroom.store.sql.values import any_of, caseless, seconds, visible_numbers
from postroom.store.transaction import Row, Transaction

FILENAMES = """
    SELECT message, filename FROM attachments
     WHERE {within} AND message {among} ORDER BY number
"""
BODIES = """
    SELECT b.message, b.text, s.searchable
      FROM bodies b JOIN search_texts s ON +s.inbox = +b.inbox AND s.message = b.message
     WHERE {within} AND b.message {among}
"""


def find_messages(tx: Transaction, query: MessageQuery, finder: Finder) -> Found[MessageRow]:
    """One page of the messages that answer a question, newest first.

    Raises:
        NotFound: the inbox or thread does not exist for the caller.
    """
    wanted = wanted_of(tx, query)
    answer = finder.find(tx, wanted)
    rows = message_rows(tx, answer.numbers, wanted.inboxes)
    excerpts = _excerpts(tx, rows, query.q) if query.q else {}
    found = tuple(message_row(row, excerpts.get(row[-1])) for row in rows)
    has_more = rows and answer.offset + len(rows) < answer.total
    after = (rows[-1][8], rows[-1][-1]) if has_more else None
    return Found(found, answer.total, answer.offset, after)


def matching_numbers(tx: Transaction, query: MessageQuery, finder: Finder) -> tuple[int, ...]:
    """The numbers of one page of the messages that answer a question. Raises NotFound."""
    return finder.find(tx, wanted_of(tx, query)).numbers


def wanted_of(tx: Transaction, query: MessageQuery) -> Wanted:
    """What the index is asked. Raises NotFound."""
    inboxes = visible_numbers(tx, query.visible)
    if query.inbox_id is not None:
        inboxes = [inbox_number(tx, query.inbox_id, query.visible)]
    thread = None
    if query.thread_id is not None:
        thread, inbox = thread_number(tx, query.thread_id, query.visible)
        inboxes = [inbox] if inboxes is None or inbox in inboxes else []
    after = query.page.after
    return Wanted(
        inboxes=None if inboxes is None else tuple(inboxes),
        thread=thread,
        q=query.q,
        sender=None if query.sender is None else address_pattern(query.sender),
        recipient=None if query.recipient is None else address_pattern(query.recipient),
        labels=tuple(caseless(label) for label in query.labels),
        mailbox=None if query.mailbox is None else caseless(query.mailbox),
        has_attachment=query.has_attachment,
        since=None if query.after is None else seconds(query.after),
        before=None if query.before is None else seconds(query.before),
        limit=query.page.limit,
        offset=query.page.offset,
        after=None if after is None else (int(after[0]), int(after[1])),
    )


def inbox_number(tx: Transaction, inbox_id: str, visible: Visible) -> int:
    """The number of an inbox. Raises NotFound."""
    row = tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
    if row is None or (visible is not None and inbox_id not in visible):
        raise NotFound(f"no inbox {inbox_id}; list_inboxes shows those you may use")
    return int(row[0])


def thread_number(tx: Transaction, thread_id: str, visible: Visible) -> tuple[int, int]:
    """The numbers of a thread and its inbox. Raises NotFound."""
    row = tx.one(NAMED, id=thread_id)
    owner = row and tx.one("SELECT id FROM inboxes WHERE number = :inbox", inbox=row[1])
    if row is None or (visible is not None and (owner is None or owner[0] not in visible)):
        raise NotFound(no_such("thread", thread_id))
    return row[0], row[1]


def address_pattern(folded: str) -> str:
    """What to look for among folded addresses: all of one, a whole domain, or any part."""
    local, at, domain = folded.partition("@")
    if not at or not domain or " " in folded or "@" in domain:
        return folded
    return f"{FIELD_BORDER if local else ''}{folded}{ADDRESS_END}"


def message_rows(
    tx: Transaction, numbers: Sequence[int], inboxes: Sequence[int] | None
) -> list[Row]:
    """The rows of some messages, newest first; the last columns are the inbox and the number."""
    among, params = any_of("number", numbers)
    where, scope = within("+m.inbox", inboxes)
    return tx.all(
        f"""SELECT {ROW_COLUMNS}, m.inbox, m.number FROM {ROW_TABLES}
             WHERE {where} AND m.number {among} ORDER BY m.date DESC, m.number DESC""",
        **params,
        **scope,
    )


def _excerpts(tx: Transaction, rows: Sequence[Row], q: str) -> dict[int, str]:
    among, params = any_of("number", [row[-1] for row in rows])
    inboxes, scope = any_of("inbox", sorted({row[-2] for row in rows}))
    files: dict[int, list[str]] = {}
    filenames = FILENAMES.format(within=f"+inbox {inboxes}", among=among)
    for message, filename in tx.all(filenames, **params, **scope):
        files.setdefault(message, []).append(filename)
    texts = BODIES.format(within=f"b.inbox {inboxes}", among=among)
    bodies = {row[0]: row[1:] for row in tx.all(texts, **params, **scope)}
    found = {}
    for row in rows:
        text, folded = bodies[row[-1]]
        fields = _fields(row, text, files.get(row[-1], ()), folded)
        found[row[-1]] = excerpt(folded, q, fields)
    return found


def _fields(row: Row, text: str, files: Sequence[str], folded: str) -> tuple[str, ...]:
    """The fields of a message, in the order of the folded ones; not every mail has a sender."""
    has_sender = folded.count(FIELD_BORDER) > 1 + len(files)
    return (row[4], text, *(row[5:7] if has_sender else ()), *files)
