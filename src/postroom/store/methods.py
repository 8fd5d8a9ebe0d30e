"""How a method of the store is declared: a function on a transaction, run as a read or a write.

    inbox = reads(sql_inboxes.get_inbox)                    # await store.inbox(inbox_id, visible)
    remove_key = writes(sql_credentials.remove_key, audit_if=bool)

The method has the parameters of the function without `tx`. Every write of a caller goes through
`AuditedStore.write`, which adds the audit entry in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from postroom.blocking import in_thread
from postroom.model.event import AuditRecord
from postroom.store.sql import audit
from postroom.store.sql.audit import AuditHmac
from postroom.store.transaction import Engine, Transaction

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


def writes(
    work: Callable[Concatenate[Transaction, P], T], *, audit_if: Callable[[T], bool] = always
) -> Method[P, T]:
    """Declare a method that runs *work* in a write transaction, with an audit entry.

    There is no entry if *audit_if* is false for the result, or if the store acts for nobody.
    """

    async def method(self: AuditedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(lambda tx: work(tx, *args, **kwargs), audit_if=audit_if)

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
            before = {} if record is None else audit.inboxes_of(tx, record.targets)
            result = work(tx)
            if record is not None and audit_if(result):
                audit.add_entries(tx, record, before, result)
            via = None if record is None else record.via
            newest = audit.chain_entries(tx, self._audit_hmac, via)
            if newest is not None:
                marks.append(newest)
            return result

        result = await self.engine.write(audited)
        for number, link in marks:
            await in_thread(self._audit_hmac.mark, number, link)
        return result
