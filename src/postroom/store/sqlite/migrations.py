"""The schema, in numbered steps. Each step is one transaction: a kill leaves the old or the new.

There are no foreign keys: PostgreSQL cuts the tables by inbox, and `verify` checks what they would.
Times are seconds since 1970, lists are JSON, `number` counts arrivals.
"""

from __future__ import annotations

import secrets

import apsw

from postroom.errors import TooNew
from postroom.mail.keying import as_key
from postroom.store.recall import schema as recall
from postroom.store.search import schema as search
from postroom.store.sqlite import inbox_keys

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        """CREATE TABLE inboxes (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            address TEXT NOT NULL UNIQUE,
            name TEXT NOT NULL,
            account_id TEXT,
            client_id TEXT UNIQUE,
            payload BLOB NOT NULL,
            created_at INTEGER NOT NULL
        )""",
        """CREATE TABLE mailboxes (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            inbox INTEGER NOT NULL,
            name TEXT NOT NULL,
            folded TEXT NOT NULL,
            UNIQUE (inbox, folded)
        )""",
        """CREATE TABLE labels (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            inbox INTEGER NOT NULL,
            name TEXT NOT NULL,
            folded TEXT NOT NULL,
            UNIQUE (inbox, folded)
        )""",
        """CREATE TABLE threads (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            inbox INTEGER NOT NULL,
            subject TEXT NOT NULL,
            base_subject TEXT NOT NULL,
            is_pinned INTEGER NOT NULL DEFAULT 0,
            message_count INTEGER NOT NULL,
            first_date INTEGER,
            last_date INTEGER
        )""",
        "CREATE INDEX threads_by_date ON threads (inbox, last_date, number)",
        "CREATE INDEX threads_by_subject ON threads (inbox, base_subject, last_date)",
        """CREATE TABLE thread_ids (
            inbox INTEGER NOT NULL,
            internet_id TEXT NOT NULL,
            thread INTEGER NOT NULL,
            PRIMARY KEY (inbox, internet_id)
        ) WITHOUT ROWID""",
        "CREATE INDEX thread_ids_by_thread ON thread_ids (thread)",
        """CREATE TABLE messages (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            inbox INTEGER NOT NULL,
            thread INTEGER NOT NULL,
            is_outbound INTEGER NOT NULL,
            is_hidden INTEGER NOT NULL,
            has_attachment INTEGER NOT NULL,
            flags INTEGER NOT NULL,
            date INTEGER NOT NULL,
            received_at INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL,
            parser_version INTEGER NOT NULL,
            subject TEXT NOT NULL,
            from_address TEXT NOT NULL,
            from_name TEXT NOT NULL,
            addresses TEXT NOT NULL,
            snippet TEXT NOT NULL,
            labels TEXT NOT NULL,
            mailboxes TEXT NOT NULL,
            internet_id TEXT,
            raw TEXT NOT NULL,
            fingerprint BLOB NOT NULL,
            details TEXT NOT NULL
        )""",
        "CREATE INDEX messages_by_inbox ON messages (inbox, is_hidden, date, number)",
        "CREATE INDEX messages_by_thread ON messages (thread, is_hidden, date, number)",
        "CREATE INDEX messages_by_internet_id ON messages (inbox, internet_id)",
        "CREATE INDEX messages_by_raw ON messages (raw)",
        """CREATE TABLE bodies (
            message INTEGER PRIMARY KEY,
            text TEXT NOT NULL,
            new_text TEXT,
            searchable TEXT NOT NULL,
            senders TEXT NOT NULL,
            recipients TEXT NOT NULL
        )""",
        """CREATE TABLE message_labels (
            label INTEGER NOT NULL,
            message INTEGER NOT NULL,
            PRIMARY KEY (label, message)
        ) WITHOUT ROWID""",
        "CREATE INDEX message_labels_by_message ON message_labels (message)",
        """CREATE TABLE message_mailboxes (
            mailbox INTEGER NOT NULL,
            message INTEGER NOT NULL,
            PRIMARY KEY (mailbox, message)
        ) WITHOUT ROWID""",
        "CREATE INDEX message_mailboxes_by_message ON message_mailboxes (message)",
        """CREATE TABLE attachments (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            message INTEGER NOT NULL,
            inbox INTEGER NOT NULL,
            position INTEGER NOT NULL,
            is_inline INTEGER NOT NULL,
            size INTEGER NOT NULL,
            filename TEXT NOT NULL,
            content_type TEXT NOT NULL,
            sha256 TEXT NOT NULL
        )""",
        "CREATE INDEX attachments_by_message ON attachments (message, position)",
        "CREATE INDEX attachments_by_inbox ON attachments (inbox, message)",
        "CREATE INDEX attachments_by_sha256 ON attachments (sha256)",
        """CREATE TABLE keys (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            name TEXT NOT NULL,
            secret_hash BLOB NOT NULL UNIQUE,
            scopes TEXT NOT NULL,
            inboxes TEXT NOT NULL,
            namespaces TEXT NOT NULL,
            accounts TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            last_used_at INTEGER
        )""",
        """CREATE TABLE sends (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            caller TEXT NOT NULL,
            idempotency_key TEXT,
            payload BLOB NOT NULL,
            at INTEGER NOT NULL,
            answer TEXT NOT NULL,
            UNIQUE (caller, idempotency_key)
        )""",
        "CREATE INDEX sends_by_payload ON sends (caller, payload, at)",
        "CREATE INDEX sends_by_time ON sends (caller, at)",
        "CREATE INDEX sends_by_age ON sends (at)",
    ),
    (
        """CREATE TABLE leases (
            name TEXT PRIMARY KEY,
            holder TEXT NOT NULL,
            until INTEGER NOT NULL
        ) WITHOUT ROWID""",
    ),
    (*search.TABLES, search.INDEX_ALL),
    search.TEXTS,
    (
        """CREATE TABLE thread_aliases (
            id TEXT PRIMARY KEY,
            thread INTEGER NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX thread_aliases_by_thread ON thread_aliases (thread)",
    ),
    (
        """CREATE TABLE contacts (
            inbox INTEGER NOT NULL,
            address TEXT NOT NULL,
            mails INTEGER NOT NULL,
            is_known INTEGER NOT NULL,
            PRIMARY KEY (inbox, address)
        ) WITHOUT ROWID""",
        """CREATE TABLE contact_shapes (
            inbox INTEGER NOT NULL,
            shape TEXT NOT NULL,
            site TEXT NOT NULL,
            PRIMARY KEY (inbox, shape, site)
        ) WITHOUT ROWID""",
        """INSERT INTO contacts (inbox, address, mails, is_known)
            SELECT inbox, lower(from_address), count(*), 0 FROM messages
             WHERE is_outbound = 0 AND is_hidden = 0 AND from_address LIKE '%@%'
             GROUP BY inbox, lower(from_address)""",
    ),
    (
        """CREATE TABLE events (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            type TEXT NOT NULL,
            at INTEGER NOT NULL,
            inbox INTEGER NOT NULL,
            thread TEXT,
            message TEXT,
            data TEXT NOT NULL
        )""",
        "CREATE INDEX events_by_inbox ON events (inbox, number)",
        "CREATE INDEX events_by_message ON events (message, number)",
    ),
    (
        """CREATE TABLE outbox (
            message INTEGER PRIMARY KEY,
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
        "CREATE INDEX outbox_by_time ON outbox (state, next_at, message)",
        "CREATE INDEX outbox_by_status ON outbox (status, message)",
    ),
    (
        """CREATE TABLE drafts (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            inbox INTEGER NOT NULL,
            arguments TEXT NOT NULL,
            send_at INTEGER,
            sent_at INTEGER,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL
        )""",
        "CREATE INDEX drafts_by_inbox ON drafts (inbox, sent_at, number)",
    ),
    (
        """CREATE TABLE webhooks (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            url TEXT NOT NULL,
            secret TEXT NOT NULL,
            old_secret TEXT,
            renewed_at INTEGER,
            types TEXT NOT NULL,
            inboxes TEXT,
            created_at INTEGER NOT NULL
        )""",
        """CREATE TABLE webhook_deliveries (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            webhook INTEGER NOT NULL,
            inbox INTEGER NOT NULL,
            event INTEGER NOT NULL,
            status TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            code INTEGER,
            detail TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            first_at INTEGER NOT NULL,
            next_at INTEGER NOT NULL,
            holder TEXT,
            until INTEGER
        )""",
        """CREATE INDEX webhook_deliveries_in_order
               ON webhook_deliveries (status, webhook, inbox, number)""",
        "CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook, number)",
    ),
    (
        """CREATE TABLE domain_sends (
            number INTEGER PRIMARY KEY,
            domain TEXT NOT NULL,
            at INTEGER NOT NULL
        )""",
        "CREATE INDEX domain_sends_by_domain ON domain_sends (domain, at)",
        "CREATE INDEX domain_sends_by_time ON domain_sends (at)",
    ),
    recall.TABLES,
    (
        """CREATE TABLE rules (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            description TEXT NOT NULL,
            enabled INTEGER NOT NULL,
            position INTEGER NOT NULL,
            yaml TEXT NOT NULL,
            inboxes TEXT,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL
        )""",
        """CREATE TABLE plans (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            rule TEXT,
            name TEXT NOT NULL,
            state TEXT NOT NULL,
            total INTEGER NOT NULL,
            kept INTEGER NOT NULL,
            counts TEXT NOT NULL,
            warnings TEXT NOT NULL,
            max_messages INTEGER NOT NULL,
            can_undo INTEGER NOT NULL,
            inboxes TEXT,
            created_at INTEGER NOT NULL,
            expires_at INTEGER NOT NULL
        )""",
        "CREATE INDEX plans_by_end ON plans (expires_at)",
        """CREATE TABLE plan_items (
            plan INTEGER NOT NULL,
            position INTEGER NOT NULL,
            message TEXT NOT NULL,
            inbox TEXT NOT NULL,
            subject TEXT NOT NULL,
            sender TEXT NOT NULL,
            date INTEGER NOT NULL,
            before TEXT NOT NULL,
            after TEXT NOT NULL,
            acts TEXT NOT NULL,
            why TEXT NOT NULL,
            PRIMARY KEY (plan, position)
        ) WITHOUT ROWID""",
        """CREATE TABLE errands (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            rule TEXT NOT NULL,
            name TEXT NOT NULL,
            plan TEXT,
            message TEXT NOT NULL,
            inbox INTEGER NOT NULL,
            act TEXT NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            next_at INTEGER NOT NULL,
            holder TEXT,
            until INTEGER
        )""",
        "CREATE INDEX errands_by_time ON errands (state, next_at, number)",
        "CREATE INDEX errands_by_plan ON errands (plan, message)",
        """CREATE TABLE audit (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            at INTEGER NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            inbox TEXT,
            details TEXT NOT NULL,
            hash BLOB NOT NULL
        )""",
        "CREATE INDEX audit_by_inbox ON audit (inbox, number)",
        "CREATE INDEX audit_by_target ON audit (target, number)",
        """CREATE TABLE audit_pending (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            at INTEGER NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            inbox TEXT,
            details TEXT NOT NULL
        )""",
        """CREATE TABLE audit_head (
            number INTEGER NOT NULL,
            hash BLOB NOT NULL,
            proof BLOB NOT NULL
        )""",
        # For good: an entry that is written cannot be changed by any statement of ours.
        """CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
               BEGIN SELECT RAISE(ABORT, 'the audit log cannot be changed'); END""",
        """CREATE TRIGGER audit_remains BEFORE DELETE ON audit
               BEGIN SELECT RAISE(ABORT, 'the audit log cannot be shortened'); END""",
    ),
    (
        """CREATE TABLE accounts (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            provider TEXT NOT NULL,
            address TEXT NOT NULL,
            inbox INTEGER NOT NULL UNIQUE,
            options TEXT NOT NULL,
            capabilities TEXT,
            checkpoint TEXT,
            state TEXT NOT NULL,
            detail TEXT NOT NULL,
            total INTEGER,
            asked_at INTEGER,
            synced_at INTEGER,
            created_at INTEGER NOT NULL
        )""",
        """CREATE TABLE remotes (
            account INTEGER NOT NULL,
            scope TEXT NOT NULL,
            key TEXT NOT NULL,
            message INTEGER,
            mailboxes TEXT NOT NULL,
            is_gone INTEGER NOT NULL,
            PRIMARY KEY (account, scope, key)
        ) WITHOUT ROWID""",
        "CREATE INDEX remotes_by_message ON remotes (message)",
        "CREATE INDEX remotes_gone ON remotes (account, is_gone)",
        """CREATE TABLE pushes (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            account INTEGER NOT NULL,
            message INTEGER,
            message_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            change TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            next_at INTEGER NOT NULL
        )""",
        "CREATE INDEX pushes_by_account ON pushes (account, number)",
        "CREATE INDEX pushes_by_message ON pushes (message)",
        """CREATE TABLE identities (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            inbox INTEGER NOT NULL,
            email TEXT NOT NULL UNIQUE,
            name TEXT NOT NULL,
            signature TEXT NOT NULL,
            is_default INTEGER NOT NULL
        )""",
        "CREATE INDEX identities_by_inbox ON identities (inbox, number)",
        """INSERT INTO identities (id, inbox, email, name, signature, is_default)
           SELECT 'idn_' || substr(id, 5), number, address, '', '', 1 FROM inboxes""",
    ),
    inbox_keys.BODIES,
    inbox_keys.SEARCH_TEXTS,
    inbox_keys.MESSAGE_LABELS,
    inbox_keys.MESSAGE_MAILBOXES,
    inbox_keys.OUTBOX,
    inbox_keys.THREAD_ALIASES,
    (
        "ALTER TABLE audit ADD COLUMN namespace TEXT",
        "ALTER TABLE audit_pending ADD COLUMN namespace TEXT",
    ),
    (
        """UPDATE memories SET is_owners = 1
            WHERE number IN (SELECT memory FROM memory_versions WHERE trust = 'user')""",
    ),
    ("ALTER TABLE search_segments ADD COLUMN format INTEGER NOT NULL DEFAULT 1",),
    ("ALTER TABLE accounts ADD COLUMN refusal TEXT",),
    (
        "ALTER TABLE drafts ADD COLUMN message_id TEXT",
        "CREATE INDEX drafts_by_message ON drafts (message_id)",
        "CREATE INDEX drafts_unsent ON drafts (number) WHERE sent_at IS NULL",
        "CREATE INDEX drafts_to_forget ON drafts (sent_at) WHERE arguments <> '{}'",
    ),
    # What mail says of itself is a key only up to a length (see `mail.keying`).
    (
        """UPDATE messages SET internet_id = as_key(internet_id)
            WHERE octet_length(internet_id) > 998""",
        # One that was cut there is read again by `postroom reparse`.
        "UPDATE messages SET parser_version = 0 WHERE length(internet_id) = 998",
        """UPDATE thread_ids SET internet_id = as_key(internet_id)
            WHERE octet_length(internet_id) > 998""",
        """UPDATE threads SET base_subject = as_key(base_subject)
            WHERE octet_length(base_subject) > 998""",
        "UPDATE contacts SET address = as_key(address) WHERE octet_length(address) > 998",
        "DELETE FROM contact_shapes WHERE octet_length(site) > 998",
    ),
    # A draft is changed and sent as it was read; what was cancelled knows its draft.
    (
        "ALTER TABLE drafts ADD COLUMN revision INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE outbox ADD COLUMN draft_id TEXT",
        "ALTER TABLE outbox ADD COLUMN draft_revision INTEGER",
        "ALTER TABLE outbox ADD COLUMN unknown TEXT",
    ),
    # The places of events that went with their message: whoever saw one last goes on from there.
    (
        """CREATE TABLE removed_events (
            id TEXT PRIMARY KEY,
            inbox INTEGER NOT NULL,
            number INTEGER NOT NULL
        )""",
    ),
    # What is told once more by hand stands beside the order: what came later does not wait for it.
    ("ALTER TABLE webhook_deliveries ADD COLUMN is_again INTEGER NOT NULL DEFAULT 0",),
    # A mail is given up so long after it was tried; each way out looks for what is its own.
    (
        "ALTER TABLE outbox ADD COLUMN tried_since INTEGER",
        "CREATE INDEX outbox_by_way ON outbox (is_scheduled, state, next_at, message)",
        "CREATE INDEX outbox_by_inbox ON outbox (inbox, state, next_at)",
        "CREATE INDEX inboxes_of_accounts ON inboxes (number) WHERE account_id IS NOT NULL",
    ),
    # Mail that a provider has and did not give out: it is asked for again.
    ("ALTER TABLE accounts ADD COLUMN unfetched TEXT",),
    # Name and signature of an address as its provider told them last; what is ours has none.
    ("ALTER TABLE identities ADD COLUMN told TEXT",),
    search.STAMPS,
)


def migrate(connection: apsw.Connection, steps: tuple[tuple[str, ...], ...] = STEPS) -> None:
    """Bring the schema up to date, step by step.

    Raises:
        TooNew: the database was made by a newer Postroom.
    """
    connection.create_scalar_function("as_key", lambda *given: as_key(str(given[0])), 1)
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = int(connection.pragma("user_version") or 0)
            if version >= len(steps):
                break
            for statement in steps[version]:
                connection.execute(statement)
            if version == 0:
                _make_secret(connection)
            connection.pragma("user_version", version + 1)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    if version > len(steps):
        raise TooNew.of(version, len(steps))


def _make_secret(connection: apsw.Connection) -> None:
    connection.execute(
        "INSERT INTO facts (name, value) VALUES ('secret', :value)",
        {"value": secrets.token_bytes(32)},
    )
