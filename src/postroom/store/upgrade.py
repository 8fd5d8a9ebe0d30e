"""The version of the schema, and what an upgrade does to a database of an earlier version.

To change the schema: edit both `schema.sql` files, with new columns last in their table, raise
`VERSION`, and add statements to `DATA` if rows must change. Tables, columns and indexes that a
database lacks are created from `schema.sql`. An upgrade is one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from pathlib import Path

from postroom.errors import TooNew, TooOld

VERSION = 43
RENAMED = 40
"""The version in which tables and columns got their present names."""

OLDEST, _OLDEST_COMMIT = 33, "564e61c"
"""The oldest version that can be upgraded, and the commit that made it. The versions between this
and `RENAMED` were never published."""

TABLES = {
    "facts": "metadata",
    "shelves": "ranking_collections",
    "leaves": "ranking_documents",
    "dead_leaves": "ranking_deletions",
    "segments": "ranking_segments",
    "postings": "ranking_postings",
    "errands": "rule_jobs",
    "search_tail": "search_buffer",
    "remotes": "remote_messages",
    "contact_shapes": "contact_skeletons",
}
COLUMNS = {
    "accounts": {"asked_at": "sync_requested_at"},
    "audit_head": {"proof": "hmac"},
    "contacts": {"mails": "message_count"},
    "contact_skeletons": {"shape": "skeleton", "site": "domain"},
    "identities": {"told": "provider_values"},
    "inboxes": {"payload": "request_hash"},
    "memories": {"shelf": "collection", "is_owners": "written_by_owner"},
    "memory_links": {"shown": "display_target"},
    "outbox": {"tried_since": "first_attempt_at"},
    "plan_items": {"acts": "actions", "why": "reasons"},
    "plans": {"kept": "item_count"},
    "ranking_collections": {
        "next_leaf": "next_document",
        "leaves": "documents",
        "words": "total_length",
        "tail": "buffered",
        "dead": "deleted",
    },
    "ranking_deletions": {"shelf": "collection", "leaf": "document"},
    "ranking_documents": {
        "shelf": "collection",
        "leaf": "document",
        "what": "item",
        "learnt": "embedded_at_change",
    },
    "ranking_postings": {"shelf": "collection"},
    "ranking_segments": {"shelf": "collection", "leaves": "documents", "dead": "deleted"},
    "remote_messages": {"is_gone": "is_removed"},
    "rule_jobs": {"act": "action"},
    "search_changes": {"is_in": "is_member"},
    "search_segments": {"made_at": "created_at"},
    "sends": {"payload": "request_hash", "answer": "response"},
    "webhook_deliveries": {"code": "status_code", "is_again": "is_redelivery"},
    "webhooks": {"renewed_at": "secret_renewed_at"},
}
INDEXES = {
    "drafts_to_forget": "drafts_to_clear",
    "memories_shelf_key_key": "memories_collection_key_key",
    "outbox_by_way": "outbox_by_schedule",
    "plans_by_end": "plans_by_expiry",
    "ranking_deletions_by_shelf": "ranking_deletions_by_collection",
    "ranking_documents_by_learnt": "ranking_documents_by_embedding",
    "ranking_documents_by_what": "ranking_documents_by_item",
    "ranking_documents_in_tail": "ranking_documents_buffered",
    "ranking_documents_unlearnt": "ranking_documents_without_vector",
    "remote_messages_gone": "remote_messages_removed",
    "sends_by_payload": "sends_by_request",
    "webhook_deliveries_in_order": "webhook_deliveries_by_status",
}
"""As they are called once their tables are renamed. SQLite cannot rename an index."""

FOUND_INBOX = (
    "bodies",
    "search_texts",
    "message_labels",
    "message_mailboxes",
    "outbox",
    "thread_aliases",
)
"""Tables with a trigger that filled in the inbox of a row, for programs that did not."""

_ACTOR = "CASE a.actor WHEN 'agent' THEN 'owner' ELSE a.actor END"
"""An agent without its own key acted for the owner."""

_LOST_RULE_JOBS = """
    FROM rule_jobs
     WHERE (plan IS NULL AND rule NOT IN
               (SELECT id FROM rules WHERE inboxes IS NULL OR inboxes <> '[]'))
        OR (plan IS NOT NULL AND authority = '')
"""
"""Jobs of a rule that was deleted or is for no inbox, or of a plan that nobody applied."""

_RULE_MAY_NOTIFY = """
    EXISTS (
        SELECT 1 FROM rules r
         WHERE e.data LIKE '{"rule_id":"' || r.id || '"%'
           AND (r.inboxes IS NULL OR (r.inboxes <> '[]' AND (
                   r.authority = 'owner' OR r.authority = w.created_by
                   OR r.inboxes = w.inboxes OR w.inboxes = '["' || i.id || '"]'))))
"""
"""A rule of the owner, one for all inboxes, or one whose key certainly sees the webhook."""

_OWNER_APPLIED = """
    EXISTS (
        SELECT 1 FROM plans p JOIN audit a ON a.target = e.message
         WHERE e.data LIKE '{"rule_id":"' || coalesce(p.rule, p.id) || '"%'
           AND a.action = 'apply_rule_plan' AND a.actor IN ('owner', 'agent')
           AND a.details LIKE '{"plan_id":"' || p.id || '"%')
"""
_LOST_DELIVERIES = f"""
    FROM webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
    JOIN events e ON e.inbox = d.inbox AND e.number = d.event
    JOIN inboxes i ON i.number = d.inbox
   WHERE e.type = 'rule.matched'
     AND (d.status = 'pending' OR (w.inboxes IS NOT NULL AND w.inboxes <> '[]'))
     AND NOT ((w.types = '[]' OR w.types LIKE '%"rule.matched"%')
              AND (w.inboxes IS NULL OR w.inboxes LIKE '%"' || i.id || '"%'))
     AND NOT {_RULE_MAY_NOTIFY} AND NOT {_OWNER_APPLIED}
"""
"""Deliveries that a rule caused at a webhook that its key may not have seen. Of those that were
delivered, only those are deleted that a limited key could list or deliver again."""

SENDS_OF_AGENT: tuple[str, ...] = (
    """INSERT INTO sends (caller, idempotency_key, request_hash, at, response)
       SELECT 'agent', idempotency_key, request_hash, at - 3600, response FROM sends
        WHERE caller = 'owner' AND idempotency_key IS NOT NULL""",
    """INSERT INTO sends (caller, idempotency_key, request_hash, at, response)
       SELECT 'agent:before', NULL, request_hash, at, response FROM sends
        WHERE caller = 'owner' AND at > (SELECT max(at) - 600 FROM sends)
        ORDER BY number""",
)
"""The agent on stdio was the caller `owner`. It does not send again what it sent with an
idempotency key; an hour earlier, the copy does not count for the hourly limit. What was sent
minutes ago without a key is found under a separate caller."""

_FROM_33: tuple[str, ...] = (
    # A rule that was created by a key without inboxes ran on all of them.
    "UPDATE rules SET enabled = 0 WHERE inboxes = '[]'",
    """INSERT INTO mail_memories (memory, collection, has_digests, is_removed)
       SELECT m.number, m.collection, 0, 0 FROM memories m
        WHERE m.trust = 'mail' OR EXISTS (
              SELECT 1 FROM memory_versions v WHERE v.memory = m.number AND v.trust = 'mail')""",
    """INSERT INTO mail_memory_sources (memory, source)
       SELECT DISTINCT l.memory, l.target
         FROM memory_links l JOIN mail_memories n ON n.memory = l.memory
        WHERE substr(l.target, 1, 4) IN ('msg_', 'thr_')""",
    *SENDS_OF_AGENT,
    # The audit log says who created a rule, or last enabled or moved it, and who created a webhook.
    f"""UPDATE rules SET authority = (
            SELECT {_ACTOR} FROM audit a
             WHERE a.target = rules.id AND (
                   a.action = 'create_rule' OR (a.action = 'update_rule' AND a.details <> '{{}}'))
             ORDER BY a.number DESC LIMIT 1)""",
    """UPDATE rule_jobs SET authority = coalesce(
           (SELECT r.authority FROM rules r WHERE r.id = rule_jobs.rule), '')
        WHERE plan IS NULL""",
    f"""UPDATE rule_jobs SET authority = coalesce((
            SELECT {_ACTOR} FROM audit a
             WHERE a.target = rule_jobs.message AND a.action = 'apply_rule_plan'
               AND a.details LIKE '{{"plan_id":"' || rule_jobs.plan || '"%'
             ORDER BY a.number DESC LIMIT 1), '')
         WHERE plan IS NOT NULL""",
    f"""UPDATE webhooks SET created_by = (
            SELECT {_ACTOR} FROM audit a
             WHERE a.target = webhooks.id AND a.action = 'create_webhook'
             ORDER BY a.number LIMIT 1)""",
    # Created by the URL in a rule: only those who see everything have seen its secret.
    """UPDATE webhooks SET created_by = 'owner', visible_inboxes = 'null'
        WHERE created_by IS NULL AND inboxes = '[]' AND types = '["rule.matched"]'""",
    f"""INSERT INTO upgrade_losses (kind, subject, lost)
        SELECT 'rule_job', rule, count(*) {_LOST_RULE_JOBS} GROUP BY rule""",
    f"DELETE {_LOST_RULE_JOBS}",
    f"""INSERT INTO upgrade_losses (kind, subject, lost)
        SELECT 'delivery', w.id, count(*) {_LOST_DELIVERIES} AND d.status = 'pending'
         GROUP BY w.id""",
    f"DELETE FROM webhook_deliveries WHERE number IN (SELECT d.number {_LOST_DELIVERIES})",
    """UPDATE ranking_collections
          SET oldest = (SELECT min(d.item) FROM ranking_documents d
                         WHERE d.collection = ranking_collections.number),
              newest = (SELECT max(d.item) FROM ranking_documents d
                         WHERE d.collection = ranking_collections.number)
        WHERE kind = 'mail'""",
    "DROP TABLE mail_texts",
    """INSERT INTO mailboxes (inbox, name, folded)
       SELECT i.number, 'Outbox', 'outbox' FROM inboxes i
        WHERE NOT EXISTS (
              SELECT 1 FROM mailboxes m WHERE m.inbox = i.number AND m.folded = 'outbox')""",
    "UPDATE leases SET name = 'rule_jobs' WHERE name = 'errands'",
    "DELETE FROM metadata WHERE name = 'mark'",
    "UPDATE metadata SET name = 'installation' WHERE name = 'house'",
    "UPDATE metadata SET name = 'audit_key' WHERE name = 'seal'",
    "UPDATE metadata SET name = 'migrating' WHERE name = 'moving'",
    "UPDATE metadata SET name = 'migrated' WHERE name = 'moved'",
    "UPDATE metadata SET name = 'backup' WHERE name = 'kept'",
)
_SUSPICIOUS = """
    UPDATE messages SET is_suspicious = 1
     WHERE is_outbound = 0 AND (
           details LIKE '%"hidden_text":[{%' OR details LIKE '%"lookalike":["%'
           OR details LIKE '%"imitates":"%')
"""
DATA: dict[int, tuple[str, ...]] = {RENAMED: _FROM_33, 41: (_SUSPICIOUS,)}
"""What is done to the rows of a database that is older than a version. The same SQL for both."""

_OBJECT = re.compile(r"(CREATE (?:UNIQUE )?(?:TABLE|SEQUENCE|INDEX|TRIGGER)) (\w+)")
_LINE = re.compile(r"    ([a-z_0-9]+) .*?,?")
Columns = Mapping[str, Set[str]]
"""The names of the columns of each table that a database has."""


class Schema:
    """The statements of a `schema.sql`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def text(self) -> str:
        """The whole file."""
        return self._path.read_text("utf-8")

    @cached_property
    def _statements(self) -> dict[str, str]:
        """What creates each table, index and trigger; without functions, which a table may share
        its name with."""
        lines = [line for line in self.text.splitlines() if not line.startswith("--")]
        statements = [one.strip() for one in "\n".join(lines).split(";\n")]
        return {match[2]: one for one in statements if (match := _OBJECT.match(one))}

    def __contains__(self, name: str) -> bool:
        return name in self._statements

    def additions(self, known: Columns) -> Iterator[str]:
        """Statements that create what a database lacks; those for what it has do nothing."""
        for name, statement in self._statements.items():
            for line in statement.splitlines() if name in known else ():
                column = _LINE.fullmatch(line)
                if column and column[1] not in known[name]:
                    yield f"ALTER TABLE {name} ADD COLUMN {line.strip().rstrip(',')}"
        for statement in self._statements.values():
            yield _OBJECT.sub(r"\1 IF NOT EXISTS \2", statement, count=1)


def check_version(version: int) -> None:
    """Raise TooNew or TooOld if a database of this version can be neither used nor upgraded."""
    if version > VERSION:
        raise TooNew.of(version, VERSION)
    if version < RENAMED and version != OLDEST:
        raise TooOld.of(version, OLDEST, _OLDEST_COMMIT)


def renames(known: Columns) -> Iterator[str]:
    """Statements that give the tables and columns of a database their present names."""
    for old, new in TABLES.items():
        if old in known:
            yield f"ALTER TABLE {old} RENAME TO {new}"
    names = {TABLES.get(table, table): columns for table, columns in known.items()}
    for table, columns in COLUMNS.items():
        for old, new in columns.items():
            if old in names.get(table, ()):
                yield f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"


def data_statements(version: int) -> Iterator[str]:
    """Statements that change the rows of a database of this version."""
    for newer, statements in DATA.items():
        if version < newer:
            yield from statements
