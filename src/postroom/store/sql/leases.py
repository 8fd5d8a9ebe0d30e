"""Leases: of several processes, one does a piece of work, and another takes over if it dies."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.store.sql.values import seconds
from postroom.store.transaction import Transaction

CLAIM = """
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
     WHERE leases.until <= :now OR leases.holder = excluded.holder
"""


def claim(tx: Transaction, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
    """Take or renew a lease; False while somebody else has it."""
    until = seconds(now + lasting)
    return tx.run(CLAIM, name=name, holder=holder, now=seconds(now), until=until) > 0


def release(tx: Transaction, name: str, holder: str) -> None:
    """Give a lease back before it ends."""
    tx.run("DELETE FROM leases WHERE name = :name AND holder = :holder", name=name, holder=holder)


def forget_past(tx: Transaction, now: datetime) -> None:
    """Forget what has run out."""
    tx.run("DELETE FROM leases WHERE until <= :now", now=seconds(now))
