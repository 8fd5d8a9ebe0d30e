"""The checks of `postroom verify` on rows: a query for each inconsistency."""

from __future__ import annotations

from postroom.model.storage import Reading, Words
from postroom.store.transaction import Row, Transaction

_ITS_MESSAGE = "y.message = x.number AND y.inbox = x.inbox"
_MAILBOX = """
    message_mailboxes y JOIN mailboxes b ON b.number = y.mailbox AND b.inbox = y.inbox
"""
_FED_INBOXES = "(SELECT id, account_id FROM inboxes WHERE account_id IS NOT NULL)"
_PUSHED = "(SELECT message_id, message FROM pushes WHERE message IS NOT NULL)"
_PLACED = """
    (SELECT r.message, a.inbox FROM remote_messages r JOIN accounts a ON a.number = r.account
      WHERE r.message IS NOT NULL)
"""
_INDEXED = """
    (SELECT d.item FROM ranking_documents d JOIN ranking_collections c ON c.number = d.collection
      WHERE c.kind = '{}')
"""
REQUIRED = {
    "messages y WHERE y.number = x.message AND y.inbox = x.inbox": {
        "attachment {} belongs to no message": "attachments.id",
        "text of message number {} belongs to no message": "bodies.message",
        "text to search of message number {} belongs to no message": "search_texts.message",
        "a label is on message number {}, which does not exist": "message_labels.message",
        "message number {} is in a mailbox, and does not exist": "message_mailboxes.message",
        "message number {} is in the outbox, and does not exist": "outbox.message",
        "a place at a provider holds message number {}, which is not in its account": (
            f"{_PLACED}.message"
        ),
    },
    "messages y WHERE y.number = x.message": {
        "a change of {} waits, and its message does not exist": f"{_PUSHED}.message_id",
    },
    "messages y WHERE y.thread = x.number": {"thread {} has no message": "threads.id"},
    "messages y WHERE y.number = x.item": {
        "the index holds message number {}, which does not exist": f"{_INDEXED.format('mail')}.item"
    },
    f"bodies y WHERE {_ITS_MESSAGE}": {"message {} has no text": "messages.id"},
    f"search_texts y WHERE {_ITS_MESSAGE}": {"message {} has no text to search": "messages.id"},
    f"{_MAILBOX} WHERE {_ITS_MESSAGE}": {"message {} is in no mailbox": "messages.id"},
    "threads y WHERE y.number = x.thread AND y.inbox = x.inbox": {
        "message {} is in no thread": "messages.id",
        "thread id {} leads to no thread": "thread_aliases.id",
        "thread reference {} leads to no thread": "thread_ids.internet_id",
    },
    "inboxes y WHERE y.number = x.inbox": {
        "message {} is in no inbox": "messages.id",
        "contact {} belongs to no inbox": "contacts.address",
        "the address {} belongs to no inbox": "identities.email",
    },
    "inboxes y WHERE y.number = x.inbox AND y.account_id = x.id": {
        "account {} feeds no inbox": "accounts.id",
    },
    "identities y WHERE y.inbox = x.number": {"inbox {} has no address to send from": "inboxes.id"},
    "accounts y WHERE y.id = x.account_id": {
        "inbox {} is fed by an account that does not exist": f"{_FED_INBOXES}.id",
    },
    "accounts y WHERE y.number = x.account": {
        "a place at a provider ({}) belongs to no account": "remote_messages.key",
        "a change of {} waits for an account that does not exist": "pushes.message_id",
    },
    "memories y WHERE y.number = x.item": {
        "the index holds memory number {}, which does not exist": (
            f"{_INDEXED.format('memories')}.item"
        ),
    },
    "memories y WHERE y.number = x.memory": {
        "a link belongs to memory number {}, which does not exist": "memory_links.memory",
    },
    "ranking_documents y WHERE y.collection = x.collection AND y.item = x.number": {
        "memory {} is not in the index": "memories.key",
    },
}
"""What must exist for each row: the sentence if it does not, and table and column of the row."""


def _without(required: str, place: str) -> str:
    """The query for the rows of a table that lack what is required."""
    table, _, column = place.rpartition(".")
    return f"SELECT x.{column} FROM {table} x WHERE NOT EXISTS (SELECT 1 FROM {required})"


CHECKS = {
    **{
        sentence: _without(required, place)
        for required, places in REQUIRED.items()
        for sentence, place in places.items()
    },
    "thread {} counts its messages wrong": """
        SELECT t.id FROM threads t
          LEFT JOIN (SELECT thread, count(*) AS n, min(date) AS a, max(date) AS z FROM messages
                      WHERE is_hidden = 0 GROUP BY thread) m ON m.thread = t.number
         WHERE t.message_count <> coalesce(m.n, 0) OR coalesce(t.first_date, -1) <>
               coalesce(m.a, -1) OR coalesce(t.last_date, -1) <> coalesce(m.z, -1)
    """,
    "ranking collection {} has wrong counts": """
        SELECT c.name FROM ranking_collections c
          LEFT JOIN (SELECT collection, count(*) AS n, sum(length) AS total,
                            count(terms) AS buffered
                       FROM ranking_documents GROUP BY collection) d ON d.collection = c.number
         WHERE c.documents <> coalesce(d.n, 0) OR c.total_length <> coalesce(d.total, 0)
            OR c.buffered <> coalesce(d.buffered, 0)
    """,
}
"""The sentence for a problem, and the query that finds the rows with it."""

READINGS = """
    SELECT m.number, m.id, m.raw, m.subject, m.from_address, m.internet_id, m.snippet, b.text,
           s.searchable
      FROM messages m JOIN bodies b ON b.inbox = m.inbox AND b.message = m.number
      JOIN search_texts s ON s.inbox = m.inbox AND s.message = m.number
     WHERE m.number > :after AND m.parser_version = :version
     ORDER BY m.number LIMIT :limit
"""
FILES = """
    SELECT message, sha256 FROM attachments
     WHERE message BETWEEN :first AND :last ORDER BY message, position
"""


def problems(tx: Transaction) -> tuple[str, ...]:
    """Run every check; one sentence for each row with a problem."""
    return tuple(
        sentence.format(row[0]) for sentence, query in CHECKS.items() for row in tx.all(query)
    )


def readings(tx: Transaction, version: int, after: int, limit: int) -> list[Reading]:
    """The next messages that this version of the parser has read, and what it stored."""
    rows = tx.all(READINGS, version=version, after=after, limit=limit)
    if not rows:
        return []
    files: dict[int, list[str]] = {}
    for message, sha256 in tx.all(FILES, first=rows[0][0], last=rows[-1][0]):
        files.setdefault(message, []).append(sha256)
    return [_reading(row, tuple(files.get(row[0], ()))) for row in rows]


def _reading(row: Row, files: tuple[str, ...]) -> Reading:
    number, id_, raw, subject, sender, internet_id, snippet, text, searchable = row
    words = Words(subject, sender, internet_id, snippet, text, searchable, files)
    return Reading(number, id_, raw, words)
