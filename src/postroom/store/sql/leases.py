"""Leases: of several processes, one does a piece of work, and another takes over if it dies.

What several do at the same time they attend to, each under a name of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.store.sql.values import seconds
from postroom.store.transaction import Transaction

CLAIM = """
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
     WHERE leases.until <= :now OR leases.holder = excluded.holder
"""

OF_THE_ROLE = "name > :role || ' ' AND name < :role || '!'"
"""A name is the role, a space and the holder; an exclamation mark comes next after a space."""


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


def attend(tx: Transaction, role: str, holder: str, *, now: datetime, lasting: timedelta) -> None:
    """Be counted among those who do a work, or go on being counted; the dead are forgotten."""
    name = f"{role} {holder}"
    known = tx.one("SELECT 1 FROM leases WHERE name = :name", name=name)
    claim(tx, name, holder, now=now, lasting=lasting)
    if known is None:
        tx.run(
            f"DELETE FROM leases WHERE {OF_THE_ROLE} AND until <= :now", role=role, now=seconds(now)
        )
        tx.announce("attendance")


def leave(tx: Transaction, role: str, holder: str) -> None:
    """Be counted no more."""
    release(tx, f"{role} {holder}", holder)
    tx.announce("attendance")


def is_attended(tx: Transaction, role: str, now: datetime) -> bool:
    """Whether anybody does a work now."""
    found = tx.one(
        f"SELECT 1 FROM leases WHERE {OF_THE_ROLE} AND until > :now LIMIT 1",
        role=role,
        now=seconds(now),
    )
    return found is not None
