"""The state of a database: active, being migrated, migrated away, or a backup.

The state is a row with a name; an active database has none. The source and the target of a
migration share a random token, by which an interrupted run recognizes its own target.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, Self

from postroom.errors import Conflict, MailError
from postroom.store.sql import installation
from postroom.store.transaction import Engine, Transaction

Kind = Literal["PostgreSQL", "folder"]

STATE = """
    SELECT name, value FROM metadata
     WHERE name IN ('migrating', 'migrated', 'migrated_to', 'backup', 'secret', 'audit_key')
"""
CLEAR_STATE = "DELETE FROM metadata WHERE name IN ('migrated', 'migrated_to', 'backup')"
MARK_BACKUP = "INSERT INTO metadata (name, value) VALUES ('backup', :value)"
MARK_MIGRATED = "INSERT INTO metadata (name, value) VALUES ('migrated', :value)"
MARK_TARGET = "INSERT INTO metadata (name, value) VALUES ('migrated_to', :value)"
UNMARK_MIGRATED = "DELETE FROM metadata WHERE name IN ('migrated', 'migrated_to')"
MIGRATED = "SELECT name, value FROM metadata WHERE name IN ('migrated', 'migrated_to')"
CANNOT_SEND = "SELECT 1 FROM metadata WHERE name IN ('migrated', 'backup')"

INCOMPLETE = (
    "`postroom migrate` has not finished here, and mail is incomplete; run it again with the same "
    "--from and --to, or empty this place"
)
_MIGRATED_TO: Mapping[Kind, str] = {
    "PostgreSQL": "this mail was migrated to PostgreSQL{place}: set POSTROOM_DATABASE_URL to its "
    "address, also where an MCP client starts Postroom",
    "folder": "this mail was migrated to another folder{place}: name that one with --data, without "
    "POSTROOM_DATABASE_URL, also where an MCP client starts Postroom",
}
_HOW_TO_UNDO = (
    "To undo it, run `postroom migrate` from there into an empty place; if it is lost, see "
    "docs/operations.md, Moving an installation"
)
CANNOT_SEND_ERROR = (
    "nothing is sent from a backup or from the source of a migration; bring it back with "
    "`postroom restore` or `postroom migrate` (docs/operations.md)"
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
    if tx.one(CANNOT_SEND) is not None:
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
    tx.run(MARK_MIGRATED, value=token + to.encode())
    tx.run(MARK_TARGET, value=place.encode())


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
    tx.run(MARK_BACKUP, value=b"\1")
    return 0


_NAME = "migrating"
_LASTING = timedelta(seconds=20)
_RENEWED_S = 5.0
_LOOKS = 30
"""How many seconds to wait for a holder that may have stopped: its lease expires."""

UNTIL = "SELECT until FROM leases WHERE name = :name"
RUNNING = "another `postroom migrate` into this place is running; wait for it, or stop it"
LEASE_LOST = (
    "another `postroom migrate` into this place has taken over or finished; this one has stopped"
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
        return installation.claim(tx, _NAME, self._holder, now=now, lasting=_LASTING)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEWED_S)
            with suppress(MailError):
                await self._engine.write(self._claim)
