"""A house goes elsewhere: moved to other engines, backed up, brought back."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from postroom.blobs.copying import Copied
    from postroom.store.store import ClosableEngine, SqlStore


@dataclass(frozen=True, slots=True)
class Moved:
    """How much was moved or kept, what is wrong with the rest, and whose login stayed behind."""

    rows: int
    blobs: int
    problems: tuple[str, ...] = ()
    without_login: tuple[str, ...] = ()


async def move_house(
    source: Settings, target: Settings, tell: Callable[[str, int, float | None], None]
) -> Moved:
    """Copy all that one house has into another, which must be empty or half full of the same.

    Raises:
        Conflict: the target is in use, or somebody writes to the source meanwhile.
    """
    from postroom.store.moving import Move
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept

    target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with _bare_store(source) as old:
        await check_source(old.engine, source.data_dir, source.audit_key)
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        async with _bare_store(target) as new:
            move = Move(old.engine, new.engine)
            await move.check()
            await in_thread(seal.check, target.data_dir)
            await move.begin()
            await in_thread(seal.put_key, target.data_dir)
            rows, copied = await move.until_whole(
                partial(_copy_blobs, new, source, target, lambda count: tell("blobs", count, None)),
                lambda count, share: tell("rows", count, share),
            )
            await _take_logins(source, target, replaces=False)
            await in_thread(seal.put_mark, target.data_dir)
            await move.finish()
            lost = await _without_login(new, target)
    return Moved(rows, copied.count, tuple(copied.problems.values()), lost)


async def back_up(source: Settings, folder: Path, tell: Callable[[int], None]) -> Moved:
    """Write one moment of a house that may be in use into a folder; it is a data folder then.

    Raises:
        Conflict: the folder is that of another house, or in use.
    """
    from postroom.store.sqlite.backup import secret_of

    kept = replace(source, data_dir=folder, database_url=None, blobs_url=None)
    secret = await in_thread(secret_of, source.data_dir / "postroom.db")
    moved = await _copy_house(source, kept, tell, secret)
    async with _bare_store(kept) as store:
        await open_blobs(kept).sweep(store.used_blobs, older_than=timedelta(days=1))
    return moved


async def bring_back(kept: Path, target: Settings, tell: Callable[[int], None]) -> Moved:
    """Bring a backup back into a data folder without mail, and into the bucket of its blobs.

    Raises:
        Conflict: there is mail, or the log of some.
    """
    source = replace(target, data_dir=kept, database_url=None, blobs_url=None)
    moved = await _copy_house(source, target, tell)
    async with _bare_store(target) as store:
        return replace(moved, without_login=await _without_login(store, target))


async def _copy_house(
    source: Settings, target: Settings, tell: Callable[[int], None], replaced: bytes | None = None
) -> Moved:
    """Copy a database file with all that it needs; it appears in its place last.

    It may replace that of one house, if that is given. Until then nothing that was in the target
    is harmed, and it can be begun again. A blob that a removal takes away between the two copies
    belongs to no message of the next moment, so we take that one instead; one that is missing
    still is told.
    """
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept
    from postroom.store.sqlite.backup import check_place, copy_database, put_in_place

    path, new = target.data_dir / "postroom.db", target.data_dir / ".new-postroom.db"
    if source.data_dir.resolve() == target.data_dir.resolve():
        raise InvalidInput("folder: that is the data folder itself; name another one")
    await in_thread(check_place, path, replaced)
    target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    seen = frozenset[str]()
    while True:
        # The seal first: what is written meanwhile is more than it promises, never less.
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        await in_thread(seal.check, target.data_dir)
        await in_thread(copy_database, source.data_dir / "postroom.db", new)
        async with _bare_store(target, new) as store:
            await check_source(store.engine, source.data_dir, source.audit_key)
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
    return Moved(count, copied.count, tuple(copied.problems.values()))


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
