"""The checks of `postroom verify` on rows: a query for each inconsistency."""

from __future__ import annotations

from postroom.model.storage import Reading, Words
from postroom.store.transaction import Row, Transaction

CHECKS = {
    "message {} has no text": """
        SELECT id FROM messages m
        WHERE NOT EXISTS (SELECT 1 FROM bodies b WHERE b.message = m.number AND b.inbox = m.inbox)
    """,
    "message {} has no text to search": """
        SELECT id FROM messages m
        WHERE NOT EXISTS (SELECT 1 FROM search_texts s WHERE s.message = m.number AND s.inbox =
            m.inbox)
    """,
    "message {} is in no thread": """
        SELECT id FROM messages m
        WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.number = m.thread AND t.inbox =
            m.inbox)
    """,
    "message {} is in no inbox": """
        SELECT id FROM messages m
        WHERE NOT EXISTS (SELECT 1 FROM inboxes i WHERE i.number = m.inbox)
    """,
    "message {} is in no mailbox": """
        SELECT id FROM messages m
        WHERE NOT EXISTS (SELECT 1 FROM message_mailboxes x JOIN mailboxes b ON b.number =
            x.mailbox AND b.inbox = x.inbox WHERE x.message = m.number AND x.inbox = m.inbox)
    """,
    "thread {} counts its messages wrong": """
        SELECT t.id FROM threads t LEFT JOIN (SELECT thread, count(*) AS n, min(date) AS a,
            max(date) AS z FROM messages WHERE is_hidden = 0 GROUP BY thread) m ON m.thread =
            t.number WHERE t.message_count <> coalesce(m.n, 0) OR coalesce(t.first_date, -1) <>
            coalesce(m.a, -1) OR coalesce(t.last_date, -1) <> coalesce(m.z, -1)
    """,
    "thread {} has no message": """
        SELECT id FROM threads t
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.number)
    """,
    "attachment {} belongs to no message": """
        SELECT id FROM attachments a
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = a.message AND m.inbox =
            a.inbox)
    """,
    "text of message number {} belongs to no message": """
        SELECT message FROM bodies b
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = b.message AND m.inbox =
            b.inbox)
    """,
    "text to search of message number {} belongs to no message": """
        SELECT message FROM search_texts s
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = s.message AND m.inbox =
            s.inbox)
    """,
    "a label is on message number {}, which does not exist": """
        SELECT message FROM message_labels x
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = x.message AND m.inbox =
            x.inbox)
    """,
    "message number {} is in a mailbox, and does not exist": """
        SELECT message FROM message_mailboxes x
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = x.message AND m.inbox =
            x.inbox)
    """,
    "message number {} is in the outbox, and does not exist": """
        SELECT message FROM outbox o
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = o.message AND m.inbox =
            o.inbox)
    """,
    "thread id {} leads to no thread": """
        SELECT id FROM thread_aliases a
        WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.number = a.thread AND t.inbox =
            a.inbox)
    """,
    "contact {} belongs to no inbox": """
        SELECT address FROM contacts c
        WHERE NOT EXISTS (SELECT 1 FROM inboxes i WHERE i.number = c.inbox)
    """,
    "account {} feeds no inbox": """
        SELECT id FROM accounts a
        WHERE NOT EXISTS (SELECT 1 FROM inboxes i WHERE i.number = a.inbox AND i.account_id = a.id)
    """,
    "inbox {} is fed by an account that does not exist": """
        SELECT id FROM inboxes i WHERE account_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = i.account_id)
    """,
    "a place at a provider ({}) belongs to no account": """
        SELECT key FROM remote_messages r
        WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.number = r.account)
    """,
    "a place at a provider holds message number {}, which is not in its account": """
        SELECT r.message FROM remote_messages r JOIN accounts a ON a.number = r.account
        WHERE r.message IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM messages m WHERE m.number = r.message AND m.inbox = a.inbox)
    """,
    "a change of {} waits for an account that does not exist": """
        SELECT message_id FROM pushes p
        WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.number = p.account)
    """,
    "a change of {} waits, and its message does not exist": """
        SELECT message_id FROM pushes p WHERE message IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = p.message)
    """,
    "the address {} belongs to no inbox": """
        SELECT email FROM identities d
        WHERE NOT EXISTS (SELECT 1 FROM inboxes i WHERE i.number = d.inbox)
    """,
    "inbox {} has no address to send from": """
        SELECT id FROM inboxes i
        WHERE NOT EXISTS (SELECT 1 FROM identities d WHERE d.inbox = i.number)
    """,
    "thread reference {} leads to no thread": """
        SELECT internet_id FROM thread_ids x
        WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.number = x.thread AND t.inbox =
            x.inbox)
    """,
    "memory {} is not in the index": """
        SELECT key FROM memories m
        WHERE NOT EXISTS (SELECT 1 FROM ranking_documents l
         WHERE l.collection = m.collection AND l.item = m.number)
    """,
    "the index holds memory number {}, which does not exist": """
        SELECT l.item FROM ranking_documents l JOIN ranking_collections s ON s.number = l.collection
        WHERE s.kind = 'memories'
          AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.number = l.item)
    """,
    "the index holds message number {}, which does not exist": """
        SELECT l.item FROM ranking_documents l JOIN ranking_collections s ON s.number = l.collection
        WHERE s.kind = 'mail' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = l.item)
    """,
    "ranking collection {} has wrong counts": """
        SELECT s.name FROM ranking_collections s
        WHERE s.documents <> (SELECT count(*) FROM ranking_documents l
         WHERE l.collection = s.number)
           OR s.total_length <> (SELECT coalesce(sum(l.length), 0) FROM ranking_documents l
            WHERE l.collection = s.number)
           OR s.buffered <> (SELECT count(*) FROM ranking_documents l
                          WHERE l.collection = s.number AND l.terms IS NOT NULL)
    """,
    "a link belongs to memory number {}, which does not exist": """
        SELECT memory FROM memory_links x
        WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.number = x.memory)
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
