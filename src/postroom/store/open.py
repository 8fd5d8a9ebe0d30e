"""Opens a store: its database must be complete, active, and use our audit key."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from postroom.blocking import in_thread
from postroom.errors import Conflict
from postroom.store.audit_hmac import KEY_FILE, MARK_FILE, AuditHmac, load_key, read_key
from postroom.store.maintenance.lifecycle import refuse_incomplete, refuse_migrated, state_of
from postroom.store.search.index import add_missing_flag_sets
from postroom.store.store import Store
from postroom.store.transaction import Engine, Transaction
from postroom.store.webhooks import encrypt_secrets_in_clear, has_secrets_in_clear

INSERT_FINGERPRINT = """
    INSERT INTO metadata (name, value) VALUES ('audit_key', :value) ON CONFLICT (name) DO NOTHING
"""
OTHER_KEY = (
    "the audit log of this installation uses another key; set POSTROOM_AUDIT_KEY to the one that "
    "its other machines have, or restore its audit.key (docs/operations.md)"
)
NO_KEY = (
    "the key of the audit log is missing; restore audit.key from a backup or another machine, or "
    "set it as POSTROOM_AUDIT_KEY (docs/operations.md)"
)


async def open_on(engine: Engine, folder: Path, key: bytes | None) -> Store:
    """The store on an open database; without *key*, the one in a file of the folder.

    Raises:
        Conflict: a migration is incomplete, it was migrated away, or it uses another key. The
            database is closed then.
    """
    try:
        audit_hmac = AuditHmac(await _our_key(engine, folder, key), folder / MARK_FILE)
        await encrypt_old_secrets(engine, audit_hmac)
        await add_missing_flag_sets(engine)
    except BaseException:
        await engine.close()
        raise
    engine.guard()
    return Store(engine, audit_hmac)


async def encrypt_old_secrets(engine: Engine, audit_hmac: AuditHmac) -> None:
    """Encrypt the webhook secrets that an earlier version stored in the clear."""
    if await engine.read(has_secrets_in_clear):
        await engine.write(partial(_encrypt_old_secrets, engine, audit_hmac))


def _encrypt_old_secrets(engine: Engine, audit_hmac: AuditHmac, tx: Transaction) -> None:
    if encrypt_secrets_in_clear(tx, audit_hmac):
        engine.clear_unused(tx, "webhooks")


async def _our_key(engine: Engine, folder: Path, key: bytes | None) -> bytes:
    state = await engine.read(state_of)
    refuse_incomplete(state)
    refuse_migrated(state)
    if key is None:
        # No new key for a log that already has one.
        find = read_key if "audit_key" in state else load_key
        key = await in_thread(find, folder / KEY_FILE)
    if "audit_key" not in state and key is not None:
        state = await engine.write(partial(_store_fingerprint, audit_hmac=AuditHmac(key)))
    check_audit_key(state, key)
    assert key is not None
    return key


def _store_fingerprint(tx: Transaction, audit_hmac: AuditHmac) -> dict[str, bytes]:
    """Store the fingerprint of the key, unless another process was first."""
    tx.put(INSERT_FINGERPRINT, value=audit_hmac.fingerprint)
    return state_of(tx)


def check_audit_key(state: Mapping[str, bytes], key: bytes | None) -> None:
    """Raise Conflict if the log uses another key, or one that is missing."""
    fingerprint = state.get("audit_key")
    if fingerprint is not None and key is None:
        raise Conflict(NO_KEY)
    if fingerprint and key and not hmac.compare_digest(fingerprint, AuditHmac(key).fingerprint):
        raise Conflict(OTHER_KEY)


async def check_source(engine: Engine, folder: Path, key: bytes | None) -> bytes | None:
    """The key of the audit log of a source; None if it has none yet.

    Raises:
        Conflict: a migration is incomplete, or the key is missing.
    """
    state = await engine.read(state_of)
    refuse_incomplete(state)
    found = key or await in_thread(read_key, folder / KEY_FILE)
    check_audit_key(state, found)
    return found
