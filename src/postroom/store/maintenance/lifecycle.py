"""The state of a database, and the checks of `postroom verify` on its rows.

A database is active, being migrated, migrated away, or a backup. The state is a row with a name; an
active database has none. The source and the target of a migration share a random token, by which an
interrupted run recognizes its own target.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, Self

from postroom.errors import Conflict, MailError
from postroom.model.mail.storage import ParsedValues, StoredParse
from postroom.store.audited_store import AUDIT_COLUMNS, START, AuditHmac, entry_content
from postroom.store.sql import installation
from postroom.store.sql.statements import exists, insert
from postroom.store.transaction import Engine, Row, Transaction

Kind = Literal["PostgreSQL", "folder"]

STATE = """
    SELECT name, value FROM metadata
     WHERE name IN ('migrating', 'migrated', 'migrated_to', 'backup', 'secret', 'audit_key')
"""
CLEAR_STATE = "DELETE FROM metadata WHERE name IN ('migrated', 'migrated_to', 'backup')"
UNMARK_MIGRATED = "DELETE FROM metadata WHERE name IN ('migrated', 'migrated_to')"
MIGRATED = "SELECT name, value FROM metadata WHERE name IN ('migrated', 'migrated_to')"
CANNOT_SEND = "SELECT 1 FROM metadata WHERE name IN ('migrated', 'backup')"

INCOMPLETE = (
    "`postroom migrate` has not finished here, so mail is incomplete; run it again with the same "
    "--from and --to, or empty this location"
)
_MIGRATED_TO: Mapping[Kind, str] = {
    "PostgreSQL": "this mail was migrated to PostgreSQL{place}: set POSTROOM_DATABASE_URL to its "
    "address, also in the settings of MCP clients",
    "folder": "this mail was migrated to another folder{place}: use that folder with --data, and "
    "unset POSTROOM_DATABASE_URL, also in the settings of MCP clients",
}
_HOW_TO_UNDO = (
    "To undo it, run `postroom migrate` from there into an empty location; if it is lost, see "
    "docs/how-to/operations.md, Moving an installation"
)
CANNOT_SEND_ERROR = (
    "nothing is sent from a backup or from the source of a migration; bring it back with "
    "`postroom restore` or `postroom migrate` (docs/how-to/operations.md)"
)


def state_of(tx: Transaction) -> dict[str, bytes]:
    """The rows that describe the state of a database."""
    return {str(name): bytes(value) for name, value in tx.all(STATE)}


def refuse_incomplete(state: Mapping[str, bytes]) -> None:
    """Raise Conflict if a migration into this database is incomplete."""
    if "migrating" in state:
        raise Conflict(INCOMPLETE)


def refuse_migrated(state: Mapping[str, bytes]) -> None:
    """Raise Conflict if all data was migrated elsewhere: mail must not be sent from both."""
    if "migrated" in state:
        to: Kind = "PostgreSQL" if state["migrated"].endswith(b"PostgreSQL") else "folder"
        target = state.get("migrated_to", b"").decode()
        where = _MIGRATED_TO[to].format(place=f" ({target})" if target else "")
        raise Conflict(f"{where}. {_HOW_TO_UNDO}")


def refuse_sending(tx: Transaction) -> None:
    """Raise Conflict if mail must not be sent from this database."""
    if exists(tx, CANNOT_SEND):
        raise Conflict(CANNOT_SEND_ERROR)


def mark_migrated(
    tx: Transaction, state: Mapping[str, bytes], token: bytes, to: Kind, place: str
) -> None:
    """Mark a database as migrated to the target with this token, at *place* in words.

    Raises:
        Conflict: it was migrated to another target.
    """
    if has_migrated_to(state, token):
        return
    refuse_migrated(state)
    insert(tx, "metadata", name="migrated", value=token + to.encode())
    insert(tx, "metadata", name="migrated_to", value=place.encode())


def unmark_migrated(tx: Transaction, state: Mapping[str, bytes], token: bytes) -> None:
    """Undo `mark_migrated`."""
    if has_migrated_to(state, token):
        tx.run(UNMARK_MIGRATED)


def has_migrated_to(state: Mapping[str, bytes], token: bytes) -> bool:
    """Whether a database was migrated to the target with this token."""
    return "migrated" in state and state["migrated"].startswith(token)


def mark_backup(tx: Transaction) -> int:
    """Mark a copy as a backup, from which nothing is sent. Returns the number of held mails, 0."""
    tx.run(CLEAR_STATE)
    insert(tx, "metadata", name="backup", value=b"\1")
    return 0


_NAME = "migrating"
_LASTING = timedelta(seconds=20)
_RENEWED_S = 5.0
_LOOKS = 30
"""How many seconds to wait for a holder that may have stopped: its lease expires."""

UNTIL = "SELECT until FROM leases WHERE name = :name"
RUNNING = "another `postroom migrate` into this location is running; wait for it, or stop it"
LEASE_LOST = (
    "another `postroom migrate` into this location has taken over or finished; this one has stopped"
)


class MigrationLease:
    """A renewed lease on migrating into a database; a process that was paused may lose it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holder = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Take the lease, or wait until it expires. Raises Conflict if it is being renewed."""
        seen = None
        for _ in range(_LOOKS):
            if await self._engine.write(self._claim):
                self._renewing = asyncio.create_task(self._renew())
                return self
            until = await self._engine.read(lambda tx: tx.one(UNTIL, name=_NAME))
            if seen is not None and until != seen:
                break
            seen = until
            await asyncio.sleep(1)
        raise Conflict(RUNNING)

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        with suppress(MailError):
            await self._engine.write(partial(installation.release, name=_NAME, holder=self._holder))

    def renew(self, tx: Transaction) -> None:
        """Renew the lease in the transaction of a write. Raises Conflict if it was lost."""
        if not self._claim(tx):
            raise Conflict(LEASE_LOST)

    def _claim(self, tx: Transaction) -> bool:
        now = datetime.now(UTC)
        return installation.claim(tx, _NAME, self._holder, now=now, lifetime=_LASTING)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEWED_S)
            with suppress(MailError):
                await self._engine.write(self._claim)


_ITS_MESSAGE = "y.message = x.number AND y.inbox = x.inbox"
_MAILBOX = """
    message_mailboxes y JOIN mailboxes b ON b.number = y.mailbox AND b.inbox = y.inbox
"""
_SYNCED_INBOXES = "(SELECT id, account_id FROM inboxes WHERE account_id IS NOT NULL)"
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
        "searchable text of message number {} belongs to no message": "search_texts.message",
        "a label refers to message number {}, which does not exist": "message_labels.message",
        "a mailbox contains message number {}, which does not exist": "message_mailboxes.message",
        "the outbox contains message number {}, which does not exist": "outbox.message",
        "a location at a provider refers to message number {}, which is not in its account": (
            f"{_PLACED}.message"
        ),
    },
    "messages y WHERE y.number = x.message": {
        "a pending change of {} refers to a message that does not exist": f"{_PUSHED}.message_id",
    },
    "messages y WHERE y.thread = x.number AND +y.inbox = x.inbox": {
        "thread {} has no message": "threads.id"
    },
    "messages y WHERE y.number = x.item": {
        "the index contains message number {}, which does not "
        "exist": f"{_INDEXED.format('mail')}.item"
    },
    f"bodies y WHERE {_ITS_MESSAGE}": {"message {} has no text": "messages.id"},
    f"search_texts y WHERE {_ITS_MESSAGE}": {"message {} has no searchable text": "messages.id"},
    f"{_MAILBOX} WHERE {_ITS_MESSAGE}": {"message {} is in no mailbox": "messages.id"},
    "threads y WHERE y.number = x.thread AND y.inbox = x.inbox": {
        "message {} is in no thread": "messages.id",
        "thread id {} refers to no thread": "thread_aliases.id",
        "thread reference {} refers to no thread": "thread_ids.internet_id",
    },
    "inboxes y WHERE y.number = x.inbox": {
        "message {} is in no inbox": "messages.id",
        "contact {} belongs to no inbox": "contacts.address",
        "the address {} belongs to no inbox": "identities.email",
    },
    "inboxes y WHERE y.number = x.inbox AND y.account_id = x.id": {
        "account {} has no inbox": "accounts.id",
    },
    "identities y WHERE y.inbox = x.number": {"inbox {} has no address to send from": "inboxes.id"},
    "accounts y WHERE y.id = x.account_id": {
        "inbox {} belongs to an account that does not exist": f"{_SYNCED_INBOXES}.id",
    },
    "accounts y WHERE y.number = x.account": {
        "a location at a provider ({}) belongs to no account": "remote_messages.key",
        "a pending change of {} belongs to an account that does not exist": "pushes.message_id",
    },
    "memories y WHERE y.number = x.item": {
        "the index contains memory number {}, which does not exist": (
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
    "thread {} has a wrong message count": """
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


def stored_parses(tx: Transaction, version: int, after: int, limit: int) -> list[StoredParse]:
    """The next messages that this version of the parser has read, and what it stored."""
    rows = tx.all(READINGS, version=version, after=after, limit=limit)
    if not rows:
        return []
    files: dict[int, list[str]] = {}
    for message, sha256 in tx.all(FILES, first=rows[0][0], last=rows[-1][0]):
        files.setdefault(message, []).append(sha256)
    return [_stored_parse(row, tuple(files.get(row[0], ()))) for row in rows]


def _stored_parse(row: Row, files: tuple[str, ...]) -> StoredParse:
    number, id_, raw, subject, sender, internet_id, snippet, text, searchable = row
    values = ParsedValues(subject, sender, internet_id, snippet, text, searchable, files)
    return StoredParse(number, id_, raw, values)


_BATCH_SIZE = 2_000
_MAX_PROBLEMS = 50


class AuditVerification:
    """Verifies the log from its beginning, in batches, and collects problems."""

    def __init__(self, audit_hmac: AuditHmac) -> None:
        self._audit_hmac = audit_hmac
        self._link = START
        self.number = 0
        self.problems: list[str] = []
        try:
            self._marked = audit_hmac.marked()
        except ValueError:
            self._marked = None
            self._report("audit.mark beside the database is damaged or forged")

    def read(self, tx: Transaction) -> bool:
        """Verify the next batch; True if there may be more."""
        rows = tx.all(
            f"SELECT {AUDIT_COLUMNS} FROM audit WHERE number > :after ORDER BY number LIMIT :limit",
            after=self.number,
            limit=_BATCH_SIZE,
        )
        for row in rows:
            self._verify(row)
        if len(rows) < _BATCH_SIZE:
            self._verify_head(tx)
        return len(rows) == _BATCH_SIZE

    def _verify(self, row: Row) -> None:
        number = row[0]
        if number != self.number + 1:
            self._report(f"entries {self.number + 1} to {number - 1} are missing")
        link = self._audit_hmac.link(self._link, entry_content(number, row[1:-1]))
        stored = row[-1] if isinstance(row[-1], bytes) else b""
        if not hmac.compare_digest(link, stored):
            self._report(f"entry {number} ({row[1]}) was changed or moved")
        self._link, self.number = stored, number
        if self._marked is not None and number == self._marked[0] and stored != self._marked[1]:
            self._report(f"entry {number} is not the one in audit.mark")

    def _verify_head(self, tx: Transaction) -> None:
        heads = tx.all("SELECT number, hash, hmac FROM audit_head")
        if exists(tx, "SELECT 1 FROM audit_pending"):
            self._report("there are pending entries that were never chained")
        if self._marked is not None and self._marked[0] > self.number:
            self._report(
                f"the log ends at {self.number}, but audit.mark names entry {self._marked[0]}"
            )
        if not heads and not self.number:
            return
        if len(heads) != 1:
            self._report("there must be one audit head, but there is none or several")
            return
        number, link, proof = heads[0]
        if (number, link) != (self.number, self._link):
            self._report(f"the log ends at {self.number}, but should end at {number}")
        elif not isinstance(proof, bytes) or proof != self._audit_hmac.head(number, link):
            self._report("the HMAC of the audit head is wrong")

    def _report(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"audit: {problem}")
