"""Opens a store: its database must be complete, active, and use our audit key (a file)."""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path

from postroom.blocking import in_thread
from postroom.errors import Conflict
from postroom.model.values import dataclass
from postroom.store.audited_store import AuditHmac
from postroom.store.maintenance.lifecycle import refuse_incomplete, refuse_migrated, state_of
from postroom.store.search.index import add_missing_flag_sets
from postroom.store.sql.statements import insert
from postroom.store.store import Store
from postroom.store.transaction import Engine, Transaction
from postroom.store.webhooks import encrypt_secrets_in_clear, has_secrets_in_clear

KEY_FILE, MARK_FILE = "audit.key", "audit.mark"
_KEY_BYTES = 32

OTHER_KEY = (
    "the audit log of this installation uses another key; set POSTROOM_AUDIT_KEY to the one that "
    "its other machines have, or restore its audit.key (docs/how-to/operations.md); if this "
    "is not the installation that you mean, check POSTROOM_DATABASE_URL and POSTROOM_DATA_DIR"
)
NO_KEY = (
    "the key of the audit log is missing; restore audit.key from a backup or another machine, or "
    "set it as POSTROOM_AUDIT_KEY (docs/how-to/operations.md)"
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
    fingerprint = audit_hmac.fingerprint
    insert(tx, "metadata", " ON CONFLICT DO NOTHING", name="audit_key", value=fingerprint)
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


def load_key(path: Path) -> bytes:
    """The key in a file that only its owner can read; created if there is none.

    The file is created atomically, and by one process if several start at the same time.
    """
    if not path.exists():
        with _folder_lock(path.parent) as folder:
            if not path.exists():
                write_private(path, secrets.token_bytes(_KEY_BYTES).hex().encode())
                os.fsync(folder)
    key = read_key(path)
    assert key is not None
    return key


def read_key(path: Path) -> bytes | None:
    """The key in a file; None if there is no file. Raises ValueError for another content."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(text) != 2 * _KEY_BYTES:
        raise ValueError(f"{path} is not a valid key; restore it from a backup")
    return bytes.fromhex(text.decode())


@contextmanager
def _folder_lock(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically and to disk."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


@dataclass(frozen=True, slots=True)
class AuditKeyFiles:
    """The key and the mark of a data folder, as they were at one moment."""

    folder: Path
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, folder: Path, configured_key: bytes | None) -> AuditKeyFiles:
        """Read the files of a folder; a key from the settings is not copied."""
        names = [MARK_FILE] if configured_key is not None else [KEY_FILE, MARK_FILE]
        paths = [folder / name for name in names]
        return cls(folder, {path.name: path.read_bytes() for path in paths if path.exists()})

    def check(self, target: Path) -> None:
        """Check that the target has no other key.

        Raises:
            Conflict: it has one.
        """
        own, there = self.files.get(KEY_FILE), target / KEY_FILE
        if own is not None and there.exists() and there.read_bytes() != own:
            raise Conflict(
                f"{there} is another key than {self.folder / KEY_FILE}, of another installation; "
                "name another folder, or remove that file if its installation no longer exists"
            )

    def copy(self, name: str, target: Path) -> None:
        """Copy one of the files: the key first, and the mark after the log was copied."""
        if name in self.files and self.folder.resolve() != target.resolve():
            write_private(target / name, self.files[name])
