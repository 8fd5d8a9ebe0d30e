-- The schema of a new SQLite database. A database of an earlier version is changed to the same
-- schema by store/upgrade.py. Every statement ends with a semicolon at the end of a line.
--
-- Times are seconds since 1970. Lists and objects are JSON. `number` is the order of creation.
-- There are no foreign keys, because PostgreSQL partitions tables by inbox; `postroom verify`
-- checks what they would.

-- The installation: its id, a secret for signing, the fingerprint of the audit key, whether the
-- outbox is paused, and whether this is a backup or was migrated to another place.
CREATE TABLE metadata (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Rights to do a piece of work until a time; heartbeats are leases named "<role> <holder>".
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

-- `request_hash` identifies the request that created the inbox, for its `client_id`.
CREATE TABLE inboxes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    address TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    account_id TEXT,
    client_id TEXT UNIQUE,
    request_hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX inboxes_of_accounts ON inboxes (number) WHERE account_id IS NOT NULL;

-- `inboxes`, `namespaces` and `accounts` limit a key; `former_inboxes` were deleted since.
CREATE TABLE keys (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    secret_hash BLOB NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    inboxes TEXT NOT NULL,
    namespaces TEXT NOT NULL,
    accounts TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    former_inboxes TEXT NOT NULL DEFAULT '[]',
    expires_at INTEGER,
    approval TEXT NOT NULL DEFAULT 'never',
    recipients TEXT NOT NULL DEFAULT '{}',
    client_id TEXT
);

-- People who are signed in to the web pages. `key_hash` is that of the key they signed in with; NULL
-- if they came by a link from the terminal.
CREATE TABLE web_sessions (
    id TEXT NOT NULL PRIMARY KEY,
    secret_hash BLOB NOT NULL UNIQUE,
    key_id TEXT NOT NULL,
    key_hash BLOB,
    user_agent TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
);

-- Links from the terminal that sign in once.
CREATE TABLE sign_in_links (
    secret_hash BLOB NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL
);

-- Clients that registered themselves (RFC 7591); `redirect_uris` is JSON.
CREATE TABLE oauth_clients (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    redirect_uris TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    is_used INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX oauth_clients_by_expiry ON oauth_clients (expires_at);

-- Codes, access tokens and refresh tokens of the grants, which are keys with a `client_id`. Codes
-- and refresh tokens work once, and stay for a while: one that comes again has been stolen.
CREATE TABLE oauth_tokens (
    secret_hash BLOB NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    key_id TEXT NOT NULL,
    client_id TEXT NOT NULL,
    resource TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    redirect_uri TEXT,
    code_challenge TEXT
);

CREATE INDEX oauth_tokens_by_key ON oauth_tokens (key_id, expires_at);
CREATE INDEX oauth_tokens_by_expiry ON oauth_tokens (expires_at);

-- `options`, `capabilities` and `checkpoint` are JSON; `unfetched` lists mail to fetch again.
CREATE TABLE accounts (
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
    sync_requested_at INTEGER,
    synced_at INTEGER,
    created_at INTEGER NOT NULL,
    refusal TEXT,
    unfetched TEXT
);

-- `provider_values`: name and signature as the provider last returned them; NULL if local.
CREATE TABLE identities (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    inbox INTEGER NOT NULL,
    email TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    signature TEXT NOT NULL,
    is_default INTEGER NOT NULL,
    provider_values TEXT
);
CREATE INDEX identities_by_inbox ON identities (inbox, number);

-- Names; `folded` is the form in which they are compared.
CREATE TABLE mailboxes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    inbox INTEGER NOT NULL,
    name TEXT NOT NULL,
    folded TEXT NOT NULL,
    UNIQUE (inbox, folded)
);

CREATE TABLE labels (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    inbox INTEGER NOT NULL,
    name TEXT NOT NULL,
    folded TEXT NOT NULL,
    UNIQUE (inbox, folded)
);

-- Conversations. `thread_ids` leads from a Message-ID to its thread, `thread_aliases` from the
-- id of a thread that was merged into another.
CREATE TABLE threads (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    inbox INTEGER NOT NULL,
    subject TEXT NOT NULL,
    base_subject TEXT NOT NULL,
    is_pinned INTEGER NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL,
    first_date INTEGER,
    last_date INTEGER
);
CREATE INDEX threads_by_date ON threads (inbox, last_date, number);
CREATE INDEX threads_by_subject ON threads (inbox, base_subject, last_date);

CREATE TABLE thread_ids (
    inbox INTEGER NOT NULL,
    internet_id TEXT NOT NULL,
    thread INTEGER NOT NULL,
    PRIMARY KEY (inbox, internet_id)
) WITHOUT ROWID;
CREATE INDEX thread_ids_by_thread ON thread_ids (thread);

CREATE TABLE thread_aliases (
    id TEXT NOT NULL PRIMARY KEY,
    thread INTEGER NOT NULL,
    inbox INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX thread_aliases_by_thread ON thread_aliases (thread);

-- One mail in one inbox. `raw` is the key of its blob; `labels`, `mailboxes` and `addresses` are
-- JSON for lists, `details` is JSON for a full read.
CREATE TABLE messages (
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
    details TEXT NOT NULL,
    is_suspicious INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_by_inbox ON messages (inbox, is_hidden, date, number);
CREATE INDEX messages_by_thread ON messages (thread, is_hidden, date, number);
CREATE INDEX messages_by_internet_id ON messages (inbox, internet_id);
CREATE INDEX messages_by_raw ON messages (raw);

-- Texts as they are read (`bodies`) and folded for search (`search_texts`).
CREATE TABLE bodies (
    message INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    text TEXT NOT NULL,
    new_text TEXT
);

CREATE TABLE search_texts (
    message INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    searchable TEXT NOT NULL,
    senders TEXT NOT NULL,
    recipients TEXT NOT NULL
);

CREATE TABLE message_labels (
    label INTEGER NOT NULL,
    message INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    PRIMARY KEY (label, message)
) WITHOUT ROWID;
CREATE INDEX message_labels_by_message ON message_labels (message);

CREATE TABLE message_mailboxes (
    mailbox INTEGER NOT NULL,
    message INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    PRIMARY KEY (mailbox, message)
) WITHOUT ROWID;
CREATE INDEX message_mailboxes_by_message ON message_mailboxes (message);

CREATE TABLE attachments (
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
);
CREATE INDEX attachments_by_message ON attachments (message, position);
CREATE INDEX attachments_by_inbox ON attachments (inbox, message);
CREATE INDEX attachments_by_sha256 ON attachments (sha256);

-- Who wrote to an inbox and how often. `contact_skeletons` holds the domains of known contacts by
-- their UTS #39 skeleton, to detect look-alike domains.
CREATE TABLE contacts (
    inbox INTEGER NOT NULL,
    address TEXT NOT NULL,
    message_count INTEGER NOT NULL,
    is_known INTEGER NOT NULL,
    PRIMARY KEY (inbox, address)
) WITHOUT ROWID;

CREATE TABLE contact_skeletons (
    inbox INTEGER NOT NULL,
    skeleton TEXT NOT NULL,
    domain TEXT NOT NULL,
    PRIMARY KEY (inbox, skeleton, domain)
) WITHOUT ROWID;

-- Where a message of an account is at its provider; `message` is NULL if it was deleted here.
CREATE TABLE remote_messages (
    account INTEGER NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    message INTEGER,
    mailboxes TEXT NOT NULL,
    is_removed INTEGER NOT NULL,
    PRIMARY KEY (account, scope, key)
) WITHOUT ROWID;
CREATE INDEX remote_messages_by_message ON remote_messages (message);
CREATE INDEX remote_messages_removed ON remote_messages (account, is_removed);

-- Local changes that wait to be made at the provider.
CREATE TABLE pushes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL,
    message INTEGER,
    message_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    change TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at INTEGER NOT NULL
);
CREATE INDEX pushes_by_account ON pushes (account, number);
CREATE INDEX pushes_by_message ON pushes (message);

-- What happened. `removed_events` keeps the place of events that were deleted with their message,
-- so that a reader that saw one continues there.
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    thread TEXT,
    message TEXT,
    data TEXT NOT NULL
);
CREATE INDEX events_by_inbox ON events (inbox, number);
CREATE INDEX events_by_message ON events (message, number);

CREATE TABLE removed_events (
    id TEXT PRIMARY KEY,
    inbox INTEGER NOT NULL,
    number INTEGER NOT NULL
);

-- What happened per day (UTC, days since 1970): mail received and sent and rules applied, by inbox; and
-- calls of tools, by key. `via` says how it was asked for. The sums over all inboxes are those of
-- inbox 0, and the sums over all callers have an empty one.
CREATE TABLE daily_mail (
    inbox INTEGER NOT NULL,
    day INTEGER NOT NULL,
    name TEXT NOT NULL,
    via TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (inbox, day, name, via)
) WITHOUT ROWID;

CREATE TABLE daily_calls (
    caller TEXT NOT NULL,
    day INTEGER NOT NULL,
    via TEXT NOT NULL,
    tool TEXT NOT NULL,
    calls INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    PRIMARY KEY (caller, day, via, tool)
) WITHOUT ROWID;

-- `visible_inboxes`: who sees the webhook, if that is not `inboxes`; the same for rules and plans.
CREATE TABLE webhooks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    secret_renewed_at INTEGER,
    types TEXT NOT NULL,
    inboxes TEXT,
    created_at INTEGER NOT NULL,
    visible_inboxes TEXT,
    created_by TEXT,
    is_enabled INTEGER NOT NULL DEFAULT 1
);

-- `is_redelivery`: requested by hand, so that later events do not wait for it.
CREATE TABLE webhook_deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    webhook INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    event INTEGER NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    status_code INTEGER,
    detail TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    holder TEXT,
    until INTEGER,
    is_redelivery INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX webhook_deliveries_by_status ON webhook_deliveries (status, webhook, inbox, number);
CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook, number);

-- `arguments` is the JSON of the mail to be composed, `revision` detects concurrent changes.
-- `replaces` is the JSON of the cancelled mail that the draft was made from.
CREATE TABLE drafts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    inbox INTEGER NOT NULL,
    arguments TEXT NOT NULL,
    send_at INTEGER,
    sent_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    message_id TEXT,
    revision INTEGER NOT NULL DEFAULT 1,
    authors TEXT NOT NULL DEFAULT '[]',
    replaces TEXT
);
CREATE INDEX drafts_by_inbox ON drafts (inbox, sent_at, number);
CREATE INDEX drafts_by_message ON drafts (message_id);
CREATE INDEX drafts_unsent ON drafts (number) WHERE sent_at IS NULL;
CREATE INDEX drafts_to_clear ON drafts (sent_at) WHERE arguments <> '{}';

-- Idempotency: the response to each send, by key and by hash of the request.
CREATE TABLE sends (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    caller TEXT NOT NULL,
    idempotency_key TEXT,
    request_hash BLOB NOT NULL,
    at INTEGER NOT NULL,
    response TEXT NOT NULL,
    UNIQUE (caller, idempotency_key)
);
CREATE INDEX sends_by_request ON sends (caller, request_hash, at);
CREATE INDEX sends_by_time ON sends (caller, at);
CREATE INDEX sends_by_age ON sends (at);

-- What mail of an inbox needs before it leaves, and whose mail it takes; `recipients` and `senders`
-- are JSON.
CREATE TABLE inbox_policies (
    inbox INTEGER NOT NULL PRIMARY KEY,
    approval TEXT NOT NULL DEFAULT 'never',
    recipients TEXT NOT NULL DEFAULT '{}',
    senders TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;

-- Mail with security findings that a caller has read lately; `findings` is JSON.
CREATE TABLE suspicious_reads (
    caller TEXT NOT NULL,
    message TEXT NOT NULL,
    findings TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (caller, message)
) WITHOUT ROWID;
CREATE INDEX suspicious_reads_by_age ON suspicious_reads (at);

-- Messages that wait to leave; `pending` and `unknown` are JSON lists of recipients, `sent_by` is the
-- key that sent it, `authors` (JSON) are those whose policies hold, `sha256` covers bytes and envelope.
CREATE TABLE outbox (
    message INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    state TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    is_scheduled INTEGER NOT NULL,
    holder TEXT,
    until INTEGER,
    pending TEXT,
    draft_id TEXT,
    draft_revision INTEGER,
    unknown TEXT,
    first_attempt_at INTEGER,
    sent_by TEXT,
    sha256 TEXT,
    authors TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX outbox_by_time ON outbox (state, next_at, message);
CREATE INDEX outbox_by_status ON outbox (status, message);
CREATE INDEX outbox_by_schedule ON outbox (is_scheduled, state, next_at, message);
CREATE INDEX outbox_by_inbox ON outbox (inbox, state, next_at);

-- When mail was sent to a domain, for its rate limit.
CREATE TABLE domain_sends (
    number INTEGER PRIMARY KEY,
    domain TEXT NOT NULL,
    at INTEGER NOT NULL
);
CREATE INDEX domain_sends_by_domain ON domain_sends (domain, at);
CREATE INDEX domain_sends_by_time ON domain_sends (at);

-- Automatic replies of an inbox, for their limit per address.
CREATE TABLE automatic_replies (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    inbox INTEGER NOT NULL,
    address TEXT NOT NULL,
    at INTEGER NOT NULL
);
CREATE INDEX automatic_replies_by_address ON automatic_replies (address, at);
CREATE INDEX automatic_replies_by_time ON automatic_replies (at);
CREATE INDEX automatic_replies_by_inbox ON automatic_replies (inbox);

-- Rules, what they would do (`plans`), and the forwards and replies that wait (`rule_jobs`).
-- `authority` is the key, or `owner`, on whose behalf a rule acts.
CREATE TABLE rules (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    position INTEGER NOT NULL,
    yaml TEXT NOT NULL,
    inboxes TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    authority TEXT,
    visible_inboxes TEXT,
    made_by TEXT
);

CREATE TABLE plans (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    rule TEXT,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    total INTEGER NOT NULL,
    item_count INTEGER NOT NULL,
    counts TEXT NOT NULL,
    warnings TEXT NOT NULL,
    max_messages INTEGER NOT NULL,
    can_undo INTEGER NOT NULL,
    inboxes TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    visible_inboxes TEXT,
    authors TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX plans_by_expiry ON plans (expires_at);
CREATE INDEX plans_of_rules ON plans (number) WHERE authors <> '[]';

CREATE TABLE plan_items (
    plan INTEGER NOT NULL,
    position INTEGER NOT NULL,
    message TEXT NOT NULL,
    inbox TEXT NOT NULL,
    subject TEXT NOT NULL,
    sender TEXT NOT NULL,
    date INTEGER NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    actions TEXT NOT NULL,
    reasons TEXT NOT NULL,
    PRIMARY KEY (plan, position)
) WITHOUT ROWID;

CREATE TABLE rule_jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    rule TEXT NOT NULL,
    name TEXT NOT NULL,
    plan TEXT,
    message TEXT NOT NULL,
    inbox INTEGER NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    holder TEXT,
    until INTEGER,
    authority TEXT NOT NULL DEFAULT '',
    authors TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX rule_jobs_by_time ON rule_jobs (state, next_at, number);
CREATE INDEX rule_jobs_by_plan ON rule_jobs (plan, message);
CREATE INDEX rule_jobs_by_message ON rule_jobs (message);

-- What an upgrade removed, for `postroom doctor`.
CREATE TABLE upgrade_losses (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    lost INTEGER NOT NULL
);

-- The audit log. `audit_pending` holds entries until they are chained; `audit_head` is the last
-- entry with an HMAC over it. No statement can change or delete an entry.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    inbox TEXT,
    details TEXT NOT NULL,
    hash BLOB NOT NULL,
    namespace TEXT,
    via TEXT
);
CREATE INDEX audit_by_inbox ON audit (inbox, number);
CREATE INDEX audit_by_target ON audit (target, number);
CREATE INDEX audit_by_rule ON audit (actor, at) WHERE action = 'rule_applied';
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log cannot be changed'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log cannot be shortened'); END;

CREATE TABLE audit_pending (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    inbox TEXT,
    details TEXT NOT NULL,
    namespace TEXT,
    via TEXT
);

CREATE TABLE audit_head (
    number INTEGER NOT NULL,
    hash BLOB NOT NULL,
    hmac BLOB NOT NULL
);

-- Notes of agents, with their earlier versions, tags and links. `memory_ties` are the addresses
-- that a memory is about, `memory_shingles` hashes of words in a row by which
-- its text is found in a mail.
CREATE TABLE memories (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    key TEXT NOT NULL,
    summary TEXT,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    trust TEXT NOT NULL,
    written_by_owner INTEGER NOT NULL,
    version INTEGER NOT NULL,
    is_stale INTEGER NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (collection, key)
);
CREATE INDEX memories_by_date ON memories (collection, updated_at, number);
CREATE INDEX memories_by_expiry ON memories (collection, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE memory_versions (
    memory INTEGER NOT NULL,
    version INTEGER NOT NULL,
    summary TEXT,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    trust TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (memory, version)
);

CREATE TABLE memory_tags (
    memory INTEGER NOT NULL,
    tag TEXT NOT NULL,
    PRIMARY KEY (memory, tag)
) WITHOUT ROWID;

CREATE TABLE memory_links (
    memory INTEGER NOT NULL,
    position INTEGER NOT NULL,
    type TEXT NOT NULL,
    target TEXT NOT NULL,
    display_target TEXT NOT NULL,
    weight REAL,
    PRIMARY KEY (memory, position)
) WITHOUT ROWID;
CREATE INDEX memory_links_by_target ON memory_links (target);

CREATE TABLE memory_ties (
    memory INTEGER NOT NULL,
    address TEXT NOT NULL,
    PRIMARY KEY (memory, address)
) WITHOUT ROWID;
CREATE INDEX memory_ties_by_address ON memory_ties (address);

CREATE TABLE memory_shingles (
    shingle INTEGER NOT NULL,
    memory INTEGER NOT NULL,
    PRIMARY KEY (shingle, memory)
) WITHOUT ROWID;
CREATE INDEX memory_shingles_by_memory ON memory_shingles (memory);

-- Memories whose text came out of mail, also deleted ones: digests of their text, and the messages
-- or threads it came from. The rows are deleted with that mail.
CREATE TABLE mail_memories (
    memory INTEGER NOT NULL PRIMARY KEY,
    collection INTEGER NOT NULL,
    has_digests INTEGER NOT NULL,
    is_removed INTEGER NOT NULL,
    removed_by TEXT
) WITHOUT ROWID;
CREATE INDEX mail_memories_without_digests ON mail_memories (memory) WHERE has_digests = 0;

CREATE TABLE mail_memory_digests (
    digest BLOB NOT NULL,
    memory INTEGER NOT NULL,
    PRIMARY KEY (digest, memory)
) WITHOUT ROWID;
CREATE INDEX mail_memory_digests_by_memory ON mail_memory_digests (memory);

CREATE TABLE mail_memory_sources (
    memory INTEGER NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (memory, source)
) WITHOUT ROWID;
CREATE INDEX mail_memory_sources_by_source ON mail_memory_sources (source);

-- The ranking index (see store/ranking). A document is in the buffer while it has `terms`;
-- `embedded_at_change` says at which change of its collection it got its vector; `item` is the
-- number of the memory or message. `oldest` and `newest` are the first and last indexed message.
CREATE TABLE ranking_collections (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    next_document INTEGER NOT NULL DEFAULT 1,
    documents INTEGER NOT NULL DEFAULT 0,
    total_length INTEGER NOT NULL DEFAULT 0,
    buffered INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    oldest INTEGER,
    newest INTEGER,
    UNIQUE (kind, name)
);

CREATE TABLE ranking_documents (
    collection INTEGER NOT NULL,
    document INTEGER NOT NULL,
    item INTEGER NOT NULL,
    length INTEGER NOT NULL,
    terms TEXT,
    model TEXT,
    vector BLOB,
    embedded_at_change INTEGER,
    PRIMARY KEY (collection, document)
);
CREATE UNIQUE INDEX ranking_documents_by_item ON ranking_documents (collection, item);
CREATE INDEX ranking_documents_by_embedding
    ON ranking_documents (collection, model, embedded_at_change)
    WHERE embedded_at_change IS NOT NULL;
CREATE INDEX ranking_documents_buffered
    ON ranking_documents (collection, document) WHERE terms IS NOT NULL;
CREATE INDEX ranking_documents_without_vector
    ON ranking_documents (collection, document) WHERE vector IS NULL;

CREATE TABLE ranking_deletions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    document INTEGER NOT NULL
);
CREATE INDEX ranking_deletions_by_collection ON ranking_deletions (collection, number);

CREATE TABLE ranking_segments (
    collection INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    level INTEGER NOT NULL,
    documents BLOB NOT NULL,
    lengths BLOB NOT NULL,
    deleted BLOB,
    PRIMARY KEY (collection, segment)
);

CREATE TABLE ranking_postings (
    collection INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    term TEXT NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (collection, segment, term)
);

-- The search index (see store/search). It can be rebuilt from the messages. `merging` is the number
-- of the segment that a message or a segment is being merged into; `search_changes` are changes
-- meanwhile. `stamp` identifies a text in the buffer.
CREATE TABLE search_buffer (
    message INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    merging INTEGER,
    stamp INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE search_segments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL,
    size INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    oldest INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    merging INTEGER,
    holder TEXT,
    until INTEGER,
    format INTEGER NOT NULL DEFAULT 1
);

CREATE TABLE search_rows (
    segment INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key BLOB NOT NULL,
    part INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE UNIQUE INDEX search_rows_by_key ON search_rows (segment, kind, key, part);

CREATE TABLE search_sets (
    name TEXT NOT NULL,
    segment INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, segment)
) WITHOUT ROWID;
CREATE INDEX search_sets_by_segment ON search_sets (segment);

CREATE TABLE search_changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    segment INTEGER NOT NULL,
    message INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_member INTEGER NOT NULL
);
CREATE INDEX search_changes_by_segment ON search_changes (segment, number);
