"""Tables that came to name the inbox of their rows, so that they can be cut and moved by it.

Each is copied into one with the column, which then takes its name. Code from before knows nothing
of the column: a row without an inbox gets that of its message, or of its thread, at once.
"""

from __future__ import annotations

OF_MESSAGE = "SELECT inbox FROM messages WHERE number = NEW.message"
OF_THREAD = "SELECT inbox FROM threads WHERE number = NEW.thread"


def _renamed(table: str, owner: str = OF_MESSAGE) -> tuple[str, ...]:
    """The copy takes the place of a table, and helps whoever does not name the inbox."""
    column = owner.rpartition(" NEW.")[2]
    return (
        f"DROP TABLE {table}",
        f"ALTER TABLE new_{table} RENAME TO {table}",
        f"""CREATE TRIGGER {table}_find_inbox AFTER INSERT ON {table} WHEN NEW.inbox = 0
            BEGIN UPDATE {table} SET inbox = ({owner})
                   WHERE {column} = NEW.{column} AND inbox = 0; END""",
    )


BODIES: tuple[str, ...] = (
    """CREATE TABLE new_bodies (
        message INTEGER PRIMARY KEY,
        inbox INTEGER NOT NULL DEFAULT 0,
        text TEXT NOT NULL,
        new_text TEXT
    )""",
    """INSERT INTO new_bodies (message, inbox, text, new_text)
       SELECT b.message, m.inbox, b.text, b.new_text
         FROM bodies b JOIN messages m ON m.number = b.message""",
    *_renamed("bodies"),
)
SEARCH_TEXTS: tuple[str, ...] = (
    """CREATE TABLE new_search_texts (
        message INTEGER PRIMARY KEY,
        inbox INTEGER NOT NULL DEFAULT 0,
        searchable TEXT NOT NULL,
        senders TEXT NOT NULL,
        recipients TEXT NOT NULL
    )""",
    """INSERT INTO new_search_texts (message, inbox, searchable, senders, recipients)
       SELECT s.message, m.inbox, s.searchable, s.senders, s.recipients
         FROM search_texts s JOIN messages m ON m.number = s.message""",
    *_renamed("search_texts"),
)
MESSAGE_LABELS: tuple[str, ...] = (
    """CREATE TABLE new_message_labels (
        label INTEGER NOT NULL,
        message INTEGER NOT NULL,
        inbox INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (label, message)
    ) WITHOUT ROWID""",
    """INSERT INTO new_message_labels (label, message, inbox)
       SELECT x.label, x.message, m.inbox
         FROM message_labels x JOIN messages m ON m.number = x.message""",
    *_renamed("message_labels"),
    "CREATE INDEX message_labels_by_message ON message_labels (message)",
)
MESSAGE_MAILBOXES: tuple[str, ...] = (
    """CREATE TABLE new_message_mailboxes (
        mailbox INTEGER NOT NULL,
        message INTEGER NOT NULL,
        inbox INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (mailbox, message)
    ) WITHOUT ROWID""",
    """INSERT INTO new_message_mailboxes (mailbox, message, inbox)
       SELECT x.mailbox, x.message, m.inbox
         FROM message_mailboxes x JOIN messages m ON m.number = x.message""",
    *_renamed("message_mailboxes"),
    "CREATE INDEX message_mailboxes_by_message ON message_mailboxes (message)",
)
OUTBOX: tuple[str, ...] = (
    """CREATE TABLE new_outbox (
        message INTEGER PRIMARY KEY,
        inbox INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL,
        status TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        queued_at INTEGER NOT NULL,
        next_at INTEGER NOT NULL,
        is_scheduled INTEGER NOT NULL,
        holder TEXT,
        until INTEGER,
        pending TEXT
    )""",
    """INSERT INTO new_outbox (message, inbox, state, status, attempts, queued_at, next_at,
                               is_scheduled, holder, until, pending)
       SELECT o.message, m.inbox, o.state, o.status, o.attempts, o.queued_at, o.next_at,
              o.is_scheduled, o.holder, o.until, o.pending
         FROM outbox o JOIN messages m ON m.number = o.message""",
    *_renamed("outbox"),
    "CREATE INDEX outbox_by_time ON outbox (state, next_at, message)",
    "CREATE INDEX outbox_by_status ON outbox (status, message)",
)
THREAD_ALIASES: tuple[str, ...] = (
    """CREATE TABLE new_thread_aliases (
        id TEXT PRIMARY KEY,
        thread INTEGER NOT NULL,
        inbox INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """INSERT INTO new_thread_aliases (id, thread, inbox)
       SELECT a.id, a.thread, t.inbox
         FROM thread_aliases a JOIN threads t ON t.number = a.thread""",
    *_renamed("thread_aliases", OF_THREAD),
    "CREATE INDEX thread_aliases_by_thread ON thread_aliases (thread)",
)
