"""The audit log: noted by whoever acts, sealed in the same transaction, never changed."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from postroom.model.audit import AuditEntry, AuditQuery, Deed
from postroom.model.ids import random_id
from postroom.model.message import ActionResult
from postroom.model.page import Found
from postroom.model.sending import Sent
from postroom.model.stored import Added
from postroom.store.seal import START, Seal
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.pages import Listing
from postroom.store.sql.values import any_of, dumps, from_text, moment, seconds, to_text
from postroom.store.transaction import Row, Transaction

_AT_ONCE = 2_000
_MOST_TOLD = 50
_CONTENT = "id, at, actor, action, target, inbox, details, namespace"
_COLUMNS = f"number, {_CONTENT}, hash"
_LISTING = Listing(_COLUMNS, "audit", "number", is_newest_first=True)

_VALUES = ":id, :at, :actor, :action, :target, :inbox, :details, :namespace"

NOTE = f"INSERT INTO audit_pending ({_CONTENT}) VALUES ({_VALUES})"
PENDING = f"SELECT {_CONTENT} FROM audit_pending ORDER BY number"
INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES (:number, {_VALUES}, :hash)"
ENTRY = "SELECT 1 FROM audit WHERE number = :number AND hash = :hash"
MOVE_HEAD = "UPDATE audit_head SET number = :number, hash = :hash, proof = :proof"
MAKE_HEAD = "INSERT INTO audit_head (number, hash, proof) VALUES (:number, :hash, :proof)"
INBOX_OF = {
    "msg": "SELECT i.id FROM messages x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "thr": "SELECT i.id FROM threads x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "drf": "SELECT i.id FROM drafts x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "inb": "SELECT id FROM inboxes WHERE id = :id",
}
"""Where the inbox of a thing stands, by the beginning of its id."""

_NOT_OF_MEMORY = "(namespace IS NULL AND substr(action, 1, 7) <> 'memory_')"
"""What was done to a memory before namespaces were noted is shown only to who may see all."""


def note(
    tx: Transaction,
    *,
    at: datetime,
    actor: str,
    action: str,
    target: str,
    inbox_id: str | None,
    details: dict[str, Any],
    namespace: str | None = None,
) -> None:
    """Write down one effect of this transaction."""
    tx.put(
        NOTE,
        id=random_id("aud"),
        at=seconds(at),
        actor=actor,
        action=action,
        target=target,
        inbox=inbox_id,
        details=dumps(details),
        namespace=namespace,
    )


def inboxes_of(tx: Transaction, targets: Sequence[str]) -> dict[str, str]:
    """The inbox that each target is in, as far as it is in one."""
    found = {}
    for target in targets:
        sql = INBOX_OF.get(target.partition("_")[0])
        row = tx.one(sql, id=target) if sql else None
        if row is not None:
            found[target] = str(row[0])
    return found


def note_deed(tx: Transaction, deed: Deed, before: dict[str, str], result: object) -> None:
    """Write down what somebody did, one entry for each thing they did it to."""
    targets = _targets(deed, result)
    inboxes = {**inboxes_of(tx, targets), **before}
    only = set(before.values())
    for target in targets:
        inbox_id = inboxes.get(target) or (next(iter(only)) if len(only) == 1 else None)
        note(
            tx,
            at=deed.at,
            actor=deed.actor,
            action=deed.action,
            target=target,
            inbox_id=inbox_id,
            details=deed.details,
            namespace=deed.namespace,
        )


def _targets(deed: Deed, result: object) -> Sequence[str]:
    if isinstance(result, ActionResult):
        return result.succeeded
    if isinstance(result, Sent):
        return [result.message_id]
    if isinstance(result, list):
        added = [item for item in result if isinstance(item, Added)]
        return [item.message_id for item in added if not item.is_duplicate]
    if isinstance(result, str):
        return [result]
    own = getattr(result, "id", None)
    return [own] if isinstance(own, str) else deed.targets or [""]


def seal(tx: Transaction, seal: Seal) -> tuple[int, bytes] | None:
    """Chain what was noted to what is there; the number and hash of the newest entry, if any.

    None, too, if the marked entry is not in the log: its mark must stay, so that this is found.
    """
    pending = tx.all(PENDING)
    if not pending:
        return None
    # Whoever changes this row first is first in the log; others wait for them.
    head = tx.one("UPDATE audit_head SET number = number + 0 RETURNING number, hash")
    number, link = (head[0], bytes(head[1])) if head else (0, START)
    has_marked = _has_marked(tx, seal, (number, link))
    for row in pending:
        number += 1
        link = seal.link(link, _content(number, row))
        tx.put(INSERT, **_named(number, row), hash=link)
    tx.put("DELETE FROM audit_pending")
    proof = seal.head(number, link)
    tx.put(MOVE_HEAD if head else MAKE_HEAD, number=number, hash=link, proof=proof)
    return (number, link) if has_marked else None


def _has_marked(tx: Transaction, seal: Seal, head: tuple[int, bytes]) -> bool:
    """Whether the entry that was marked is in the log; as a rule it is the last one."""
    try:
        marked = seal.marked()
    except ValueError:
        return True  # a damaged mark says nothing
    if marked is None or marked == head:
        return True
    return tx.one(ENTRY, number=marked[0], hash=marked[1]) is not None


def _content(number: int, row: Row) -> bytes:
    """What is sealed. An entry without a namespace is sealed as before there were any."""
    *known, namespace = row
    return to_text([number, *known] if namespace is None else [number, *known, namespace])


def _named(number: int, row: Row) -> dict[str, object]:
    return {"number": number, **dict(zip(_CONTENT.split(", "), row, strict=True))}


def find_entries(tx: Transaction, query: AuditQuery) -> Found[AuditEntry]:
    """One page of the log, newest first."""
    return _LISTING.page(tx, _conditions(query), query.page, _entry)


def _conditions(query: AuditQuery) -> Conditions:
    where = Conditions()
    if query.visible is not None:
        where.among("inbox", "inbox", sorted(query.visible))
    if query.namespaces is not None:
        among, params = any_of("namespace", sorted(query.namespaces))
        where.add(f"(namespace {among} OR {_NOT_OF_MEMORY})", **params)
    for column in ("actor", "action", "target"):
        wanted = getattr(query, column)
        if wanted is not None:
            where.add(f"{column} = :{column}", **{column: wanted})
    return where


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        row[1], moment(row[2]), row[3], row[4], row[5], from_text(row[7]), bytes(row[9]).hex()
    )


class Examination:
    """Reads the log from its beginning, in batches, and tells what does not fit."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._link = START
        self.number = 0
        self.problems: list[str] = []
        try:
            self._marked = seal.marked()
        except ValueError:
            self._marked = None
            self._tell("the mark beside the database is damaged or was not written by us")

    def read(self, tx: Transaction) -> bool:
        """Look at the next entries; True if there may be more."""
        rows = tx.all(
            f"SELECT {_COLUMNS} FROM audit WHERE number > :after ORDER BY number LIMIT :limit",
            after=self.number,
            limit=_AT_ONCE,
        )
        for row in rows:
            self._look_at(row)
        if len(rows) < _AT_ONCE:
            self._look_at_end(tx)
        return len(rows) == _AT_ONCE

    def _look_at(self, row: Row) -> None:
        number = row[0]
        if number != self.number + 1:
            self._tell(f"entries {self.number + 1} to {number - 1} are missing")
        link = self._seal.link(self._link, _content(number, row[1:9]))
        stored = row[9] if isinstance(row[9], bytes) else b""
        if not hmac.compare_digest(link, stored):
            self._tell(f"entry {number} ({row[1]}) is not as it was written, or not in its place")
        self._link, self.number = stored, number
        if self._marked is not None and number == self._marked[0] and stored != self._marked[1]:
            self._tell(f"entry {number} is not the one that was marked")

    def _look_at_end(self, tx: Transaction) -> None:
        heads = tx.all("SELECT number, hash, proof FROM audit_head")
        if tx.one("SELECT 1 FROM audit_pending") is not None:
            self._tell("there are entries that were never sealed")
        if self._marked is not None and self._marked[0] > self.number:
            self._tell(f"the log ends at {self.number}, but it went to {self._marked[0]} once")
        if not heads and not self.number:
            return
        if len(heads) != 1:
            self._tell("it is not written down, or more than once, where the log ends")
            return
        number, link, proof = heads[0]
        if (number, link) != (self.number, self._link):
            self._tell(f"the log ends at {self.number}, but should end at {number}")
        elif not isinstance(proof, bytes) or proof != self._seal.head(number, link):
            self._tell("where the log ends was not written down by us")

    def _tell(self, problem: str) -> None:
        if len(self.problems) < _MOST_TOLD:
            self.problems.append(f"audit: {problem}")
