"""A house goes elsewhere: moved to other engines, backed up, brought back."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.blocking import in_thread
from postroom.config import Settings
from postroom.errors import InvalidInput
from postroom.model.page import Slice
from postroom.parts import MOST_ACCOUNTS, make_providers, open_blobs
from postroom.pipeline.ownership import check_owner, own_blobs

if TYPE_CHECKING:
    from postroom.blobs.copying import Copied
    from postroom.store.standing import Kind
    from postroom.store.store import ClosableEngine, SqlStore
    from postroom.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Moved:
    """How much was moved or kept, what is wrong with the rest, and whose login stayed behind.

    `held` mails were on their way when a backup was made: whether they have left is not known.
    """

    rows: int
    blobs: int
    problems: tuple[str, ...] = ()
    without_login: tuple[str, ...] = ()
    held: int = 0


async def move_house(
    source: Settings,
    target: Settings,
    tell: Callable[[str, int, float | None], None],
    *,
    is_copy: bool = False,
) -> Moved:
    """Move all that one house has into another, which must be empty or half full of the same.

    The source can be opened no more, unless it is a backup; a *copy* is a backup itself.

    Raises:
        Conflict: the target is in use, the source has moved, or somebody writes to it meanwhile.
        InvalidInput: a backup would share its blobs.
    """
    from postroom.store.moving import Move
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept

    async with _bare_store(source) as old:
        await check_source(old.engine, source.data_dir, source.audit_key)
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with _bare_store(target) as new:
            to: Kind = "folder" if target.database_url is None else "PostgreSQL"
            move = Move(old.engine, new.engine, to, is_copy=is_copy)
            await move.check()
            if _share_blobs(source, target) and (is_copy or await move.is_from_backup()):
                raise InvalidInput("a backup has blobs of its own; name another place: --to-blobs")
            await in_thread(seal.check, target.data_dir)
            owner = await check_owner(old, open_blobs(target), await old.house())
            async with move.begun():
                await in_thread(seal.put_key, target.data_dir)
                rows, copied = await move.until_whole(
                    partial(_copy_blobs, new, source, target, lambda n: tell("blobs", n, None)),
                    lambda count, share: tell("rows", count, share),
                )
                await _take_logins(source, target, replaces=False)
                await in_thread(seal.put_mark, target.data_dir)
                if owner is not None:  # both use the same place; from now on it is the target's
                    await open_blobs(target).mark.remove()
                held = await move.finish()
            await own_blobs(new, open_blobs(target))
            lost = await _without_login(new, target)
    return Moved(rows, copied.count, tuple(copied.problems.values()), lost, held)


async def back_up(source: Settings, folder: Path, tell: Callable[[int], None]) -> Moved:
    """Write one moment of a house that may be in use into a folder; it is a data folder then.

    Raises:
        Conflict: the folder is that of another house, or in use.
    """
    from postroom.store.sqlite.backup import alone_in, secret_of
    from postroom.store.standing import keep

    kept = replace(source, data_dir=folder, database_url=None, blobs_url=None)
    secret = await in_thread(secret_of, source.data_dir / "postroom.db")
    with alone_in(folder):
        moved = await _copy_house(source, kept, tell, keep, secret)
        async with _bare_store(kept) as store:
            await own_blobs(store, open_blobs(kept))
            await open_blobs(kept).sweep(store.used_blobs, older_than=timedelta(days=1))
    return moved


async def bring_back(kept: Path, target: Settings, tell: Callable[[int], None]) -> Moved:
    """Bring a backup back into a data folder without mail, and into the bucket of its blobs.

    Raises:
        Conflict: there is mail, or the log of some.
    """
    from postroom.store.sql.outbox_holding import bring_back as revive
    from postroom.store.sqlite.backup import alone_in

    source = replace(target, data_dir=kept, database_url=None, blobs_url=None)
    with alone_in(target.data_dir):
        moved = await _copy_house(source, target, tell, revive)
    async with _bare_store(target) as store:
        await own_blobs(store, open_blobs(target))
        return replace(moved, without_login=await _without_login(store, target))


async def _copy_house(
    source: Settings,
    target: Settings,
    tell: Callable[[int], None],
    settle: Callable[[Transaction], int],
    replaced: bytes | None = None,
) -> Moved:
    """Copy a database file with all that it needs; it appears in its place last.

    *settle* says in it what it is from now on, and of how many mails it is not known whether they
    have left. It may replace that of one house, if that is given. Until then nothing that was in
    the target is harmed, and it can be begun again. A blob that a removal takes away between the
    two copies belongs to no message of the next moment, so we take that one instead; one that is
    missing still is told.
    """
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept
    from postroom.store.sqlite.backup import (
        NEW_FILE,
        check_place,
        copy_database,
        house_of,
        put_in_place,
    )

    path, new = target.data_dir / "postroom.db", target.data_dir / NEW_FILE
    if source.data_dir.resolve() == target.data_dir.resolve():
        raise InvalidInput("folder: that is the data folder itself; name another one")
    await in_thread(check_place, path, replaced)
    house = await in_thread(house_of, path) or secrets.token_hex(16)
    seen = frozenset[str]()
    while True:
        # The seal first: what is written meanwhile is more than it promises, never less.
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        await in_thread(seal.check, target.data_dir)
        await in_thread(copy_database, source.data_dir / "postroom.db", new)
        async with _bare_store(target, new) as store:
            await check_source(store.engine, source.data_dir, source.audit_key)
            held = await store.engine.write(settle)
            await store.rename_house(house)
            await check_owner(store, open_blobs(target), house)
            # What a backup has from other nights is not read again every night.
            copied = await _copy_blobs(store, source, target, tell, rereads=replaced is None)
            count = await store.count_messages()
        if copied.problems.keys() <= seen:
            break
        seen = frozenset(copied.problems)
    await _take_logins(source, target, replaces=replaced is not None)
    await in_thread(seal.put_key, target.data_dir)
    await in_thread(put_in_place, new, path)
    await in_thread(seal.put_mark, target.data_dir)
    return Moved(count, copied.count, tuple(copied.problems.values()), held=held)


def _share_blobs(one: Settings, other: Settings) -> bool:
    if one.blobs_url is not None or other.blobs_url is not None:
        return one.blobs_url == other.blobs_url
    return one.data_dir.resolve() == other.data_dir.resolve()


async def _copy_blobs(
    store: SqlStore,
    source: Settings,
    target: Settings,
    tell: Callable[[int], None],
    *,
    rereads: bool = True,
) -> Copied:
    """Copy the blobs that a store needs from one house to another."""
    from postroom.blobs.copying import copy_blobs

    old, new = open_blobs(source), open_blobs(target)
    return await copy_blobs(store.every_blob(), old, new, tell, rereads=rereads)


@asynccontextmanager
async def _bare_store(settings: Settings, path: Path | None = None) -> AsyncIterator[SqlStore]:
    """A store to read in, also if it is not whole; nothing can be sealed in it."""
    from postroom.store.seal import Seal
    from postroom.store.store import SqlStore

    engine: ClosableEngine
    if settings.database_url is not None:
        from postroom.store.postgres.engine import PostgresEngine

        engine = await in_thread(PostgresEngine.open, settings.database_url)
    else:
        from postroom.store.sqlite.engine import SqliteEngine

        engine = await in_thread(SqliteEngine.open, path or settings.data_dir / "postroom.db")
    try:
        yield SqlStore(engine, Seal(b""))
    finally:
        await engine.close()


async def _take_logins(source: Settings, target: Settings, *, replaces: bool) -> None:
    """Copy the encrypted files of passwords and tokens; those of a keyring stay in it."""
    from postroom.providers.vault.files import copy_vault

    await in_thread(
        copy_vault, source.data_dir / "secrets", target.data_dir / "secrets", replaces=replaces
    )


async def _without_login(store: SqlStore, settings: Settings) -> tuple[str, ...]:
    """The accounts whose password or token is not there."""
    found = await store.accounts(None, Slice(limit=MOST_ACCOUNTS))
    providers = make_providers(settings)
    return await in_thread(providers.without_secret, [account.id for account in found.rows])
