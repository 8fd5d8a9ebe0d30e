"""The tables of the index. They hold nothing that could not be made again from the messages."""

from __future__ import annotations

TABLES: tuple[str, ...] = (
    """CREATE TABLE search_tail (
        message INTEGER PRIMARY KEY,
        inbox INTEGER NOT NULL,
        merging INTEGER
    )""",
    """CREATE TABLE search_segments (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        state INTEGER NOT NULL,
        size INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        oldest INTEGER NOT NULL,
        newest INTEGER NOT NULL,
        made_at INTEGER NOT NULL,
        merging INTEGER,
        holder TEXT,
        until INTEGER
    )""",
    """CREATE TABLE search_rows (
        segment INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        key BLOB NOT NULL,
        part INTEGER NOT NULL,
        value BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX search_rows_by_key ON search_rows (segment, kind, key, part)",
    """CREATE TABLE search_sets (
        name TEXT NOT NULL,
        segment INTEGER NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (name, segment)
    ) WITHOUT ROWID""",
    "CREATE INDEX search_sets_by_segment ON search_sets (segment)",
    """CREATE TABLE search_changes (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        segment INTEGER NOT NULL,
        message INTEGER NOT NULL,
        name TEXT NOT NULL,
        is_in INTEGER NOT NULL
    )""",
    "CREATE INDEX search_changes_by_segment ON search_changes (segment, number)",
)
"""`search_tail`: messages that are in no segment yet, or not as they are now.
`search_segments`: see `segments`. `search_rows`: what is in a segment, see `kinds.Kind`.
`search_sets`: which messages of a segment are in an inbox, in a mailbox, hidden, and so on.
`search_changes`: what happened to messages while they are merged into a new segment, whose
number is in `merging` of the tail and of the segments they are in now."""

TEXTS: tuple[str, ...] = (
    """CREATE TABLE search_texts (
        message INTEGER PRIMARY KEY,
        searchable TEXT NOT NULL,
        senders TEXT NOT NULL,
        recipients TEXT NOT NULL
    )""",
    """INSERT INTO search_texts (message, searchable, senders, recipients)
       SELECT message, searchable, senders, recipients FROM bodies""",
    "ALTER TABLE bodies DROP COLUMN searchable",
    "ALTER TABLE bodies DROP COLUMN senders",
    "ALTER TABLE bodies DROP COLUMN recipients",
)
"""The folded texts apart from those that are read: most of them fit on one page."""

STAMPS: tuple[str, ...] = ("ALTER TABLE search_tail ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0",)
"""A number for each text in the tail that no other has, also none of the same message: so what is
known of one text is never taken for what is known of another. 0 is none."""

INDEX_ALL = "INSERT INTO search_tail (message, inbox) SELECT number, inbox FROM messages"
"""Every message that came before the index did."""
