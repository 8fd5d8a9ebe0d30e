"""The audit log: entries are recorded and chained by HMAC in the transaction of their effect.

A mark of the newest entry is in a file outside the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from postroom.model.event import AuditEntry, AuditQuery, AuditRecord, Via
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.message import ActionResult
from postroom.model.page import Found, random_id
from postroom.model.rule import Action, public_action
from postroom.model.sending import Sent
from postroom.model.storage import Added
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING, Everything, Only, View, view_of
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    any_of,
    dumps,
    from_text,
    insert,
    moment,
    seconds,
    to_text,
    view_in,
)
from postroom.store.transaction import Row, Transaction

START = b"\x00" * 32
"""The link before the first entry."""

_CONTENT = "id, at, actor, action, target, inbox, details, namespace, via"
AUDIT_COLUMNS = f"number, {_CONTENT}, hash"
_LISTING = Listing(AUDIT_COLUMNS, "audit", "number", is_newest_first=True)

PENDING = f"SELECT {_CONTENT} FROM audit_pending ORDER BY number"
ENTRY = "SELECT 1 FROM audit WHERE number = :number AND hash = :hash"
UPDATE_HEAD = "UPDATE audit_head SET number = :number, hash = :hash, hmac = :proof"
INSERT_HEAD = "INSERT INTO audit_head (number, hash, hmac) VALUES (:number, :hash, :proof)"
INBOX_OF = {
    "msg": "SELECT i.id FROM messages x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "thr": "SELECT i.id FROM threads x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "drf": "SELECT i.id FROM drafts x JOIN inboxes i ON i.number = x.inbox WHERE x.id = :id",
    "inb": "SELECT id FROM inboxes WHERE id = :id",
}
"""The query for the inbox of a target, by the prefix of its id."""

ARRIVED = "rule_applied"
"""The action of a rule that is applied to an arriving message; the rule is the actor."""

_OF_PLANS = ("apply_rule_plan", "undo_rule_plan")
_OF_KEYS = ("create_key", "update_key", "delete_key", "reset_key")
_RULE_IDS = ("rul_", "pln_")
ANY_RULE = "rule"
"""The actor of an entry whose rule does not exist for the reader."""

SIDE_EFFECTS = frozenset({"webhook", "forward", "reply", "remember"})
"""The actions that do not change the message."""

VISIBILITY_KEY = "seen_in"
"""In what is stored about an effect of a rule: the inboxes with which the rule is known."""

_NOT_OF_MEMORY = "(namespace IS NULL AND substr(action, 1, 7) <> 'memory_')"
"""Entries on memories without a namespace are shown only to callers who may see all."""


@dataclass(frozen=True, slots=True)
class AuditHmac:
    """Chains entries by an HMAC, and marks the newest one in a file beside the database.

    Without the key no valid entry can be written, so a changed, missing or reordered entry is
    detected. The mark detects missing entries at the end.
    """

    key: bytes = field(repr=False)
    path: Path | None = None

    def link(self, before: bytes, entry: bytes) -> bytes:
        """The HMAC of an entry, given that of the entry before."""
        return hmac.digest(self.key, b"entry" + before + entry, hashlib.sha256)

    def head(self, number: int, link: bytes) -> bytes:
        """The proof that the log ends, or ended, with this entry."""
        return hmac.digest(self.key, b"head%d:" % number + link, hashlib.sha256)

    @property
    def fingerprint(self) -> bytes:
        """Identifies the key without revealing it."""
        return hmac.digest(self.key, b"fingerprint", hashlib.sha256)

    def mark(self, number: int, link: bytes) -> None:
        """Record that the log has at least this entry; an earlier entry changes nothing."""
        if self.path is None:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            marked = _read(os.pread(handle, 1024, 0))
            if marked is None or marked[0] < number:
                proof = self.head(number, link).hex()
                os.pwrite(handle, f"{number:020} {link.hex()} {proof}\n".encode(), 0)
        finally:
            os.close(handle)

    def marked(self) -> tuple[int, bytes] | None:
        """The marked entry; None if there is no mark. Raises ValueError if it is not valid."""
        if self.path is None or not self.path.exists():
            return None
        found = _read(self.path.read_bytes())
        if found is None or not hmac.compare_digest(found[2], self.head(found[0], found[1])):
            raise ValueError("the mark was not written with the key of this installation")
        return found[:2]


def _read(line: bytes) -> tuple[int, bytes, bytes] | None:
    words = line.decode("ascii", "replace").split()
    try:
        number, link, proof = words
        return int(number), bytes.fromhex(link), bytes.fromhex(proof)
    except ValueError:
        return None


def add_entry(tx: Transaction, record: AuditRecord, target: str, inbox_id: str | None) -> None:
    """Record one effect of this transaction; the targets of the record are ignored."""
    insert(
        tx,
        "audit_pending",
        id=random_id("aud"),
        at=seconds(record.at),
        actor=record.actor,
        action=record.action,
        target=target,
        inbox=inbox_id,
        details=dumps(record.details),
        namespace=record.namespace,
        via=record.via,
    )


def add_action_entries(
    tx: Transaction,
    record: AuditRecord,
    actions: Sequence[Action],
    *,
    inbox_id: str,
    failed: Sequence[str] = (),
) -> None:
    """Record what a rule did with a message, the only target of the record.

    The memories that it stored are a separate entry, visible to callers who can see the namespace.
    """
    remembered = [action for action in actions if action.type == "remember"]
    others = [action for action in actions if action.type != "remember"]
    for namespace, acts, problems in ((None, others, failed), (DEFAULT_NAMESPACE, remembered, ())):
        if not acts and not problems and (namespace is not None or actions):
            continue
        more = {"failed": list(problems)} if problems else {}
        details = {**record.details, "actions": [public_action(action) for action in acts], **more}
        entry = replace(record, details=details, namespace=namespace)
        add_entry(tx, entry, record.targets[0], inbox_id)


def inboxes_of(tx: Transaction, targets: Sequence[str]) -> dict[str, str]:
    """The inbox of each target that is in one."""
    found = {}
    for target in targets:
        sql = INBOX_OF.get(target.partition("_")[0])
        row = tx.one(sql, id=target) if sql else None
        if row is not None:
            found[target] = str(row[0])
    return found


def add_entries(
    tx: Transaction, record: AuditRecord, before: dict[str, str], result: object
) -> None:
    """Record an effect of a caller, with one entry per target."""
    targets = _targets(record, result)
    inboxes = {**inboxes_of(tx, targets), **before}
    only = set(before.values())
    for target in targets:
        inbox_id = inboxes.get(target) or (next(iter(only)) if len(only) == 1 else None)
        add_entry(tx, record, target, inbox_id)


def _targets(record: AuditRecord, result: object) -> Sequence[str]:
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
    return [own] if isinstance(own, str) else record.targets or [""]


def chain_entries(
    tx: Transaction, audit_hmac: AuditHmac, via: Via | None = None
) -> tuple[int, bytes] | None:
    """Chain the pending entries to the log; return number and hash of the newest entry, if any.

    Entries that do not say how they were asked for get *via*.

    Returns None, too, if the entry in `audit.mark` is missing from the log: the file must stay
    unchanged so that this is detected.
    """
    pending = tx.all(PENDING)
    if not pending:
        return None
    # This row serialises writers of the log.
    head = tx.one("UPDATE audit_head SET number = number + 0 RETURNING number, hash")
    number, link = (head[0], bytes(head[1])) if head else (0, START)
    has_marked = _has_marked(tx, audit_hmac, (number, link))
    for *known, own_via in pending:
        row = (*known, own_via or via)
        number += 1
        link = audit_hmac.link(link, entry_content(number, row))
        content = dict(zip(_CONTENT.split(", "), row, strict=True))
        insert(tx, "audit", number=number, **content, hash=link)
    tx.put("DELETE FROM audit_pending")
    proof = audit_hmac.head(number, link)
    tx.put(UPDATE_HEAD if head else INSERT_HEAD, number=number, hash=link, proof=proof)
    return (number, link) if has_marked else None


def _has_marked(tx: Transaction, audit_hmac: AuditHmac, head: tuple[int, bytes]) -> bool:
    """Whether the entry in `audit.mark` is in the log; usually it is the last one."""
    try:
        marked = audit_hmac.marked()
    except ValueError:
        return True  # a damaged file proves nothing
    if marked is None or marked == head:
        return True
    return tx.one(ENTRY, number=marked[0], hash=marked[1]) is not None


def entry_content(number: int, row: Row) -> bytes:
    """The authenticated bytes; what a later version has added is left out if it is empty."""
    *known, namespace, via = row
    if via is not None:
        return to_text([number, *known, namespace, via])
    return to_text([number, *known] if namespace is None else [number, *known, namespace])


def find_entries(tx: Transaction, query: AuditQuery) -> Found[AuditEntry]:
    """One page of the log, newest first."""
    found = _LISTING.page(tx, _conditions(tx, query), query.page, _entry)
    return replace(found, rows=tuple(_shown_to(tx, query.visible, e) for e in found.rows))


def _shown_to(tx: Transaction, visible: View, entry: AuditEntry) -> AuditEntry:
    """The entry for a caller: a rule or plan that does not exist for them is not named.

    What it changed in a message is shown, because they see the message.
    """
    details = dict(entry.details)
    is_recorded = VISIBILITY_KEY in details
    visible_inboxes = view_of(details.pop(VISIBILITY_KEY, None))
    is_actor = entry.actor.startswith(_RULE_IDS)
    if isinstance(visible, Everything) or not (
        is_recorded or is_actor or entry.action in _OF_PLANS
    ):
        return replace(entry, details=details)
    if visible.covers(visible_inboxes) or (not is_recorded and _is_known(tx, entry.actor, visible)):
        return replace(entry, details=details)
    changes = [
        action for action in details.get("actions", ()) if action["type"] not in SIDE_EFFECTS
    ]
    shown = {"actions": changes} if changes else {}
    return replace(entry, actor=ANY_RULE if is_actor else entry.actor, details=shown)


def _conditions(tx: Transaction, query: AuditQuery) -> Conditions:
    where = Conditions()
    where.within("inbox", query.visible)
    actor = query.actor or ""
    if actor.startswith(_RULE_IDS) and not _is_known(tx, actor, query.visible):
        where.add("1 = 0")
    if isinstance(query.namespaces, Only):
        among, params = any_of("namespace", query.namespaces.named)
        where.add(f"(namespace {among} OR {_NOT_OF_MEMORY})", **params)
        # Callers who cannot manage keys do not see them: their names and limits reveal namespaces.
        actions, params = any_of("managed", _OF_KEYS)
        where.add(f"action NOT {actions}", **params)
    for column in ("actor", "action", "target", "via"):
        value = getattr(query, column)
        if value is not None:
            where.add(f"{column} = :{column}", **{column: value})
    if query.after_date is not None:
        where.add("at >= :after_date", after_date=seconds(query.after_date))
    if query.before_date is not None:
        where.add("at < :before_date", before_date=seconds(query.before_date))
    return where


def _is_known(tx: Transaction, rule_id: str, visible: View) -> bool:
    """Whether a rule, or a plan without one, exists for a caller."""
    return visible.covers(rule_visible_inboxes(tx, rule_id))


def rule_visible_inboxes(tx: Transaction, rule_id: str) -> View:
    """The inboxes with which a rule, or a plan without one, is known; once removed, all."""
    for table in ("rules", "plans"):
        sql = f"SELECT inboxes, visible_inboxes FROM {table} WHERE id = :id"
        row = tx.one(sql, id=rule_id)
        if row is not None:
            return view_in(row[0] if row[1] is None else row[1])
    return EVERYTHING


def _entry(row: Row) -> AuditEntry:
    _, entry_id, at, actor, action, target, _, details, _, via, link, *_ = row
    return AuditEntry(
        entry_id, moment(at), actor, via, action, target, from_text(details), bytes(link).hex()
    )
