"""The tables of memories, and of what finds them."""

from __future__ import annotations

TABLES: tuple[str, ...] = (
    """CREATE TABLE shelves (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        next_leaf INTEGER NOT NULL DEFAULT 1,
        leaves INTEGER NOT NULL DEFAULT 0,
        words INTEGER NOT NULL DEFAULT 0,
        tail INTEGER NOT NULL DEFAULT 0,
        dead INTEGER NOT NULL DEFAULT 0,
        changes INTEGER NOT NULL DEFAULT 0,
        epoch INTEGER NOT NULL DEFAULT 0,
        UNIQUE (kind, name)
    )""",
    """CREATE TABLE leaves (
        shelf INTEGER NOT NULL,
        leaf INTEGER NOT NULL,
        what INTEGER NOT NULL,
        length INTEGER NOT NULL,
        terms TEXT,
        model TEXT,
        vector BLOB,
        learnt INTEGER,
        PRIMARY KEY (shelf, leaf)
    )""",
    "CREATE UNIQUE INDEX leaves_by_what ON leaves (shelf, what)",
    "CREATE INDEX leaves_by_learnt ON leaves (shelf, model, learnt) WHERE learnt IS NOT NULL",
    "CREATE INDEX leaves_in_tail ON leaves (shelf, leaf) WHERE terms IS NOT NULL",
    "CREATE INDEX leaves_unlearnt ON leaves (shelf, leaf) WHERE vector IS NULL",
    """CREATE TABLE dead_leaves (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf INTEGER NOT NULL,
        leaf INTEGER NOT NULL
    )""",
    "CREATE INDEX dead_leaves_by_shelf ON dead_leaves (shelf, number)",
    """CREATE TABLE segments (
        shelf INTEGER NOT NULL,
        segment INTEGER NOT NULL,
        level INTEGER NOT NULL,
        leaves BLOB NOT NULL,
        lengths BLOB NOT NULL,
        dead BLOB,
        PRIMARY KEY (shelf, segment)
    )""",
    """CREATE TABLE postings (
        shelf INTEGER NOT NULL,
        segment INTEGER NOT NULL,
        term TEXT NOT NULL,
        entries BLOB NOT NULL,
        PRIMARY KEY (shelf, segment, term)
    )""",
    """CREATE TABLE memories (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf INTEGER NOT NULL,
        key TEXT NOT NULL,
        summary TEXT,
        text TEXT NOT NULL,
        tags TEXT NOT NULL,
        trust TEXT NOT NULL,
        is_owners INTEGER NOT NULL,
        version INTEGER NOT NULL,
        is_stale INTEGER NOT NULL,
        expires_at INTEGER,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        UNIQUE (shelf, key)
    )""",
    "CREATE INDEX memories_by_date ON memories (shelf, updated_at, number)",
    """CREATE INDEX memories_by_expiry ON memories (shelf, expires_at)
        WHERE expires_at IS NOT NULL""",
    """CREATE TABLE memory_versions (
        memory INTEGER NOT NULL,
        version INTEGER NOT NULL,
        summary TEXT,
        text TEXT NOT NULL,
        tags TEXT NOT NULL,
        trust TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (memory, version)
    )""",
    """CREATE TABLE memory_tags (
        memory INTEGER NOT NULL,
        tag TEXT NOT NULL,
        PRIMARY KEY (memory, tag)
    ) WITHOUT ROWID""",
    """CREATE TABLE memory_links (
        memory INTEGER NOT NULL,
        position INTEGER NOT NULL,
        type TEXT NOT NULL,
        target TEXT NOT NULL,
        shown TEXT NOT NULL,
        weight REAL,
        PRIMARY KEY (memory, position)
    ) WITHOUT ROWID""",
    "CREATE INDEX memory_links_by_target ON memory_links (target)",
    """CREATE TABLE memory_ties (
        memory INTEGER NOT NULL,
        address TEXT NOT NULL,
        PRIMARY KEY (memory, address)
    ) WITHOUT ROWID""",
    "CREATE INDEX memory_ties_by_address ON memory_ties (address)",
    """CREATE TABLE memory_shingles (
        shingle INTEGER NOT NULL,
        memory INTEGER NOT NULL,
        PRIMARY KEY (shingle, memory)
    ) WITHOUT ROWID""",
    "CREATE INDEX memory_shingles_by_memory ON memory_shingles (memory)",
    "CREATE TABLE mail_texts (digest BLOB PRIMARY KEY) WITHOUT ROWID",
)
"""See the head of this package for shelves and leaves. A `terms` of a leaf means that it is in the
tail; a `learnt` says when, in changes of its shelf, it got its vector. `memory_ties` are the people
that a memory is about, `memory_shingles` the words in a row by which its text is recognised in a
mail, and `mail_texts` what came out of mail, whatever has become of the memory."""
