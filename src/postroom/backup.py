"""Backup, restore and migration of an installation: database, blobs, logins, audit key.

`store.maintenance` describes the format of a backup. Each of these can be interrupted and run
again: the database is put in its place last.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from postroom.blocking import in_thread
from postroom.config import Settings
from postroom.errors import InvalidInput
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.blobs import check_installation_mark, claim_blob_store
from postroom.wiring import MAX_ACCOUNTS, make_providers, open_blobs

if TYPE_CHECKING:
    from postroom.blobs.copy import CopyResult
    from postroom.store.maintenance.lifecycle import Kind
    from postroom.store.store import Store
    from postroom.store.transaction import Engine, Transaction


@dataclass(frozen=True, slots=True)
class TransferResult:
    """How much was copied, what was damaged or missing, and which accounts have no login here.

    `held` mails were in the outbox when the backup was made, and may have been sent since.
    """

    rows: int
    blobs: int
    problems: tuple[str, ...] = ()
    without_login: tuple[str, ...] = ()
    held: int = 0


async def migrate_installation(
    source: Settings,
    target: Settings,
    report: Callable[[str, int, float | None], None],
    *,
    is_copy: bool = False,
) -> TransferResult:
    """Migrate an installation to a target that is empty or partly filled from the same source.

    The source cannot be opened any more, unless it is a backup; with *is_copy* the target is one.

    Raises:
        Conflict: the target is in use, or the source was migrated or is being written to.
        InvalidInput: a backup would share its blobs.
    """
    from postroom.store.maintenance.migration import Migration
    from postroom.store.open import KEY_FILE, MARK_FILE, AuditKeyFiles, check_source

    async with _unchecked_store(source) as old:
        await check_source(old.engine, source.data_dir, source.audit_key)
        seal = await in_thread(AuditKeyFiles.of, source.data_dir, source.audit_key)
        target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with _unchecked_store(target) as new:
            to: Kind = "folder" if target.database_url is None else "PostgreSQL"
            place = _shown_place(target)
            migration = Migration(old.engine, new.engine, to, place, is_copy=is_copy)
            await migration.check()
            if _share_blobs(source, target) and (is_copy or await migration.is_from_backup()):
                raise InvalidInput(
                    "a backup needs its own blobs; choose another location with --to-blobs"
                )
            await in_thread(seal.check, target.data_dir)
            owner = await check_installation_mark(
                old, open_blobs(target), await old.installation_id()
            )
            async with migration.target_lock():
                await in_thread(seal.copy, KEY_FILE, target.data_dir)
                rows, copied = await migration.copy_until_equal(
                    partial(_copy_blobs, new, source, target, lambda n: report("blobs", n, None)),
                    lambda count, share: report("rows", count, share),
                )
                await _copy_logins(source, target, replaces=False)
                await in_thread(seal.copy, MARK_FILE, target.data_dir)
                if owner is not None:  # both use the same blobs, which the target owns from now on
                    await open_blobs(target).mark.remove()
                held = await migration.finish()
            await claim_blob_store(new, open_blobs(target))
            without_login = await _without_login(new, target)
    return TransferResult(rows, copied.count, tuple(copied.problems.values()), without_login, held)


def _shown_place(target: Settings) -> str:
    """Where the target is: a folder, or host and name of a database, without its login."""
    if target.database_url is None:
        return str(target.data_dir.absolute())
    parts = urlsplit(target.database_url)
    return parts.netloc.rpartition("@")[2] + parts.path


async def create_backup(
    source: Settings, folder: Path, report: Callable[[int], None]
) -> TransferResult:
    """Write a backup of an installation, which may be in use, to a folder.

    Raises:
        Conflict: the folder has another installation, or is in use.
    """
    from postroom.providers.vault import open_files
    from postroom.store.maintenance.database_files import folder_lock, secret_of
    from postroom.store.maintenance.lifecycle import mark_backup

    backup = replace(source, data_dir=folder, database_url=None, blobs_url=None)
    # Moves the key to POSTROOM_VAULT_KEY_FILE first, so that the copy does not include it.
    await in_thread(open_files, source.data_dir / "secrets", source.vault_key_file)
    secret = await in_thread(secret_of, source.data_dir / "postroom.db")
    with folder_lock(folder):
        result = await _copy_installation(source, backup, report, mark_backup, secret)
        async with _unchecked_store(backup) as store:
            await claim_blob_store(store, open_blobs(backup))
            await open_blobs(backup).sweep(store.used_blobs, older_than=timedelta(days=1))
    return result


async def restore_backup(
    backup: Path, target: Settings, report: Callable[[int], None]
) -> TransferResult:
    """Restore a backup to a data folder without mail, and its blobs to the bucket if one is set.

    Raises:
        Conflict: there is a database, or the log of one.
    """
    from postroom.store.maintenance.database_files import folder_lock
    from postroom.store.sql.outbox.queue import restore_backup as revive

    source = replace(target, data_dir=backup, database_url=None, blobs_url=None)
    with folder_lock(target.data_dir):
        result = await _copy_installation(source, target, report, revive)
    async with _unchecked_store(target) as store:
        await claim_blob_store(store, open_blobs(target))
        return replace(result, without_login=await _without_login(store, target))


async def _copy_installation(
    source: Settings,
    target: Settings,
    report: Callable[[int], None],
    settle: Callable[[Transaction], int],
    replaced: bytes | None = None,
) -> TransferResult:
    """Copy a database file with its blobs, logins and audit key; the database is put in place last.

    *settle* marks the copy as a backup or as active, and returns how many mails may have been sent
    since. The copy may replace a database with the secret *replaced*. A blob that is removed while
    blobs are copied belongs to no message of a later moment, so the database is copied again; a
    blob that is still missing then is reported.
    """
    from postroom.store.audited_store import AuditHmac
    from postroom.store.maintenance.database_files import (
        NEW_FILE,
        check_replaceable,
        copy_database,
        installation_of,
        replace_database,
    )
    from postroom.store.open import (
        KEY_FILE,
        MARK_FILE,
        AuditKeyFiles,
        check_source,
        encrypt_old_secrets,
    )

    path, new = target.data_dir / "postroom.db", target.data_dir / NEW_FILE
    if source.data_dir.resolve() == target.data_dir.resolve():
        raise InvalidInput("folder: this is the data folder itself; choose another folder")
    await in_thread(check_replaceable, path, replaced)
    installation_id = await in_thread(installation_of, path) or secrets.token_hex(16)
    seen = frozenset[str]()
    while True:
        # The mark first: entries that are written meanwhile only make the log longer than it says.
        seal = await in_thread(AuditKeyFiles.of, source.data_dir, source.audit_key)
        await in_thread(seal.check, target.data_dir)
        await in_thread(copy_database, source.data_dir / "postroom.db", new)
        async with _unchecked_store(target, new) as store:
            key = await check_source(store.engine, source.data_dir, source.audit_key)
            if key is not None:
                await encrypt_old_secrets(store.engine, AuditHmac(key))
            held = await store.engine.write(settle)
            await store.replace_installation_id(installation_id)
            await check_installation_mark(store, open_blobs(target), installation_id)
            # Blobs of earlier backups in the folder are not read again.
            copied = await _copy_blobs(store, source, target, report, rereads=replaced is None)
            count = await store.count_messages()
        if copied.problems.keys() <= seen:
            break
        seen = frozenset(copied.problems)
    await _copy_logins(source, target, replaces=replaced is not None)
    await in_thread(seal.copy, KEY_FILE, target.data_dir)
    await in_thread(replace_database, new, path)
    await in_thread(seal.copy, MARK_FILE, target.data_dir)
    return TransferResult(count, copied.count, tuple(copied.problems.values()), held=held)


def _share_blobs(one: Settings, other: Settings) -> bool:
    if one.blobs_url is not None or other.blobs_url is not None:
        return one.blobs_url == other.blobs_url
    return one.data_dir.resolve() == other.data_dir.resolve()


async def _copy_blobs(
    store: Store,
    source: Settings,
    target: Settings,
    report: Callable[[int], None],
    *,
    rereads: bool = True,
) -> CopyResult:
    """Copy the blobs that a store uses."""
    from postroom.blobs.copy import copy_blobs

    old, new = open_blobs(source), open_blobs(target)
    return await copy_blobs(store.all_blobs(), old, new, report, rereads=rereads)


@asynccontextmanager
async def _unchecked_store(settings: Settings, path: Path | None = None) -> AsyncIterator[Store]:
    """A store on a database in any state; audit entries cannot be written in it."""
    from postroom.store.audited_store import AuditHmac
    from postroom.store.store import Store

    engine: Engine
    if settings.database_url is not None:
        from postroom.store.postgres.engine import PostgresEngine

        engine = await in_thread(PostgresEngine.open, settings.database_url)
    else:
        from postroom.store.sqlite.engine import SqliteEngine

        engine = await in_thread(SqliteEngine.open, path or settings.data_dir / "postroom.db")
    try:
        yield Store(engine, AuditHmac(b""))
    finally:
        await engine.close()


async def _copy_logins(source: Settings, target: Settings, *, replaces: bool) -> None:
    """Copy the encrypted logins; those in a keyring, and a key in another place, are not copied."""
    from postroom.providers.vault import copy_vault

    await in_thread(
        copy_vault, source.data_dir / "secrets", target.data_dir / "secrets", replaces=replaces
    )


def holds_key(folder: Path) -> bool:
    """Whether a data folder has logins together with their key."""
    from postroom.providers.vault import holds_key

    return holds_key(folder / "secrets")


async def _without_login(store: Store, settings: Settings) -> tuple[str, ...]:
    """The accounts whose login is missing."""
    found = await store.accounts(EVERYTHING, Slice(limit=MAX_ACCOUNTS))
    providers = make_providers(settings)
    return await in_thread(providers.without_secret, [account.id for account in found.rows])
