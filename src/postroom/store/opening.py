"""Who may open a database: it must live here, whole, its audit log sealed with our key."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from postroom.blocking import in_thread
from postroom.errors import Conflict
from postroom.store.seal import KEY_FILE, MARK_FILE, Seal, load_key, read_key
from postroom.store.standing import facts_of, refuse_half_moved, refuse_moved
from postroom.store.store import ClosableEngine, SqlStore
from postroom.store.transaction import Transaction

PUT_SEAL = """
    INSERT INTO facts (name, value) VALUES ('seal', :value) ON CONFLICT (name) DO NOTHING
"""
OTHER_KEY = (
    "the audit log of this house is sealed with another key than ours; set POSTROOM_AUDIT_KEY to "
    "the one that its other machines have, or bring back its own audit.key (docs/operations.md)"
)
NO_KEY = (
    "the key that the audit log of this house is sealed with is not here; bring back audit.key, "
    "from a backup or another machine, or set it as POSTROOM_AUDIT_KEY (docs/operations.md)"
)


async def open_on(engine: ClosableEngine, folder: Path, key: bytes | None) -> SqlStore:
    """The store on an open database; without a key, the one in a file of the folder.

    Raises:
        Conflict: it is half moved, or moved away, or sealed with another key. It is closed then.
    """
    try:
        key = await _our_key(engine, folder, key)
    except BaseException:
        await engine.close()
        raise
    engine.guard()
    return SqlStore(engine, Seal(key, folder / MARK_FILE))


async def _our_key(engine: ClosableEngine, folder: Path, key: bytes | None) -> bytes:
    facts = await engine.read(facts_of)
    refuse_half_moved(facts)
    refuse_moved(facts)
    if key is None:
        # None is made for a log that another key has sealed.
        find = read_key if "seal" in facts else load_key
        key = await in_thread(find, folder / KEY_FILE)
    if "seal" not in facts and key is not None:
        facts = await engine.write(partial(_seal_first, seal=Seal(key)))
    check_seal(facts, key)
    assert key is not None
    return key


def _seal_first(tx: Transaction, seal: Seal) -> dict[str, bytes]:
    """Write down whose key it is, unless another process was first."""
    tx.put(PUT_SEAL, value=seal.fingerprint)
    return facts_of(tx)


def check_seal(facts: Mapping[str, bytes], key: bytes | None) -> None:
    """Raise Conflict if the log was sealed with another key, or with one that is not here."""
    sealed = facts.get("seal")
    if sealed is not None and key is None:
        raise Conflict(NO_KEY)
    if sealed and key and not hmac.compare_digest(sealed, Seal(key).fingerprint):
        raise Conflict(OTHER_KEY)


async def check_source(engine: ClosableEngine, folder: Path, key: bytes | None) -> None:
    """Raise Conflict unless all of a house is there, and the key that its log is sealed with."""
    facts = await engine.read(facts_of)
    refuse_half_moved(facts)
    check_seal(facts, key or await in_thread(read_key, folder / KEY_FILE))
