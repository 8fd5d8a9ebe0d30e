"""A store whose writes are audited: its methods, and the entries that they add to the audit log.

A method of the store is declared as a function on a transaction, run as a read or a write:

    inbox = reads(sql_inboxes.get_inbox)                    # await store.inbox(inbox_id, visible)
    remove_key = writes(sql_credentials.remove_key, audit_if=bool)

The method has the parameters of the function without `tx`. Every write of a caller goes through
`AuditedStore.write`, which adds the audit entries in the same transaction and chains them by HMAC.
A mark of the newest entry is in a file outside the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from postroom.blocking import in_thread
from postroom.model.event import AuditRecord, Via
from postroom.model.mail.message import ActionResult
from postroom.model.mail.sending import Sent
from postroom.model.mail.storage import Added
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.page import random_id
from postroom.model.rule import Action, public_action
from postroom.model.values import dataclass
from postroom.store.sql.statements import dumps, insert, seconds, to_text
from postroom.store.transaction import Engine, Row, Transaction

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate["AuditedStore", P], Coroutine[Any, Any, T]]


def is_found(result: object) -> bool:
    """Audit the write if there was something to change."""
    return result is not None


def never(_: object) -> bool:
    """The function writes its own audit entries."""
    return False


def always(_: object) -> bool:
    """Audit the write whatever it returns."""
    return True


def reads(work: Callable[Concatenate[Transaction, P], T]) -> Method[P, T]:
    """Declare a method that runs *work* in a read transaction."""

    async def method(self: AuditedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.engine.read(lambda tx: work(tx, *args, **kwargs))

    return method


def unnamed(*_: object, **__: object) -> None:
    """The arguments do not name the target of the audit entry."""


def writes(
    work: Callable[Concatenate[Transaction, P], T],
    *,
    audit_if: Callable[[T], bool] = always,
    target: Callable[..., str | None] = unnamed,
) -> Method[P, T]:
    """Declare a method that runs *work* in a write transaction, with an audit entry.

    There is no entry if *audit_if* is false for the result, or if the store acts for nobody.
    *target* finds the target of the entry in the arguments, see `AuditedStore.write`.
    """

    async def method(self: AuditedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(
            lambda tx: work(tx, *args, **kwargs), audit_if=audit_if, target=target(*args, **kwargs)
        )

    return method


def writes_unaudited(work: Callable[Concatenate[Transaction, P], T]) -> Method[P, T]:
    """Declare a method that runs *work* in a write transaction and is never audited."""

    async def method(self: AuditedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.engine.write(lambda tx: work(tx, *args, **kwargs))

    return method


class AuditedStore:
    """A database, and for whom it is written to."""

    def __init__(self, engine: Engine, audit_hmac: AuditHmac) -> None:
        self.engine = engine
        self._audit_hmac = audit_hmac
        self._record: AuditRecord | None = None

    def by(self, record: AuditRecord) -> Self:
        """The same store, acting for a caller: its writes are recorded in the audit log."""
        other = copy(self)
        other._record = record  # noqa: SLF001 - our own class
        return other

    async def record_audit(self) -> None:
        """Record an act that changed nothing in the store."""
        await self.write(lambda _: None)

    async def write(
        self,
        work: Callable[[Transaction], T],
        *,
        audit_if: Callable[[T], bool] = always,
        target: str | None = None,
    ) -> T:
        """Run *work* in a write transaction, with an audit entry if the store acts for somebody.

        The entry names *target*, or what the result names, or what the caller named.
        """
        record, marks = self._record, list[tuple[int, bytes]]()
        if record is not None and target is not None:
            record = replace(record, targets=(target,))

        def audited(tx: Transaction) -> T:
            marks.clear()  # a first attempt may have been interrupted
            before = {} if record is None else inboxes_of(tx, record.targets)
            result = work(tx)
            if record is not None and audit_if(result):
                add_entries(tx, record, before, result)
            via = None if record is None else record.via
            newest = chain_entries(tx, self._audit_hmac, via)
            if newest is not None:
                marks.append(newest)
            return result

        result = await self.engine.write(audited)
        for number, link in marks:
            await in_thread(self._audit_hmac.mark, number, link)
        return result


START = b"\x00" * 32
"""The link before the first entry."""

_CONTENT = "id, at, actor, action, target, inbox, details, namespace, via"
AUDIT_COLUMNS = f"number, {_CONTENT}, hash"

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
