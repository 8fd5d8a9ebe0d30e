"""The SQLite engine: shared commits, isolated failures, several processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from postroom.errors import MailError, StorageFull, Unavailable
from postroom.store.sqlite.connection import (
    Role,
    StorageFailed,
    check_sqlite,
    connect,
    wait_for_locks,
)
from postroom.store.sqlite.engine import READERS, SqliteEngine, migrate
from postroom.store.transaction import Transaction, remembered
from postroom.store.upgrade import VERSION

PUT = "INSERT INTO metadata (name, value) VALUES (:name, :value)"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    opened = SqliteEngine.open(tmp_path / "test.db")
    yield opened
    await opened.close()


def put(name: str) -> object:
    return lambda tx: tx.run(PUT, name=name, value=b"1")


async def names(engine: SqliteEngine) -> list[str]:
    rows = await engine.read(lambda tx: tx.all("SELECT name FROM metadata ORDER BY name"))
    return [row[0] for row in rows if row[0] != "secret"]


SHARED = 0x40000002, 510
"""The byte range that SQLite locks in a file that is in use."""

TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
"""


async def test_another_process_sees_that_the_file_is_in_use(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    await asyncio.gather(*(names(engine) for _ in range(2 * READERS)))
    await engine.scan(lambda tx: tx.one("SELECT 1"))

    words = [sys.executable, "-c", TRY_TO_LOCK, str(tmp_path / "test.db"), *map(str, SHARED)]
    tried = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)

    assert "BlockingIOError" in tried.stderr


async def test_a_commit_waits_for_the_disk(engine: SqliteEngine) -> None:
    row = await engine.read(lambda tx: tx.one("PRAGMA synchronous"))
    mode = await engine.write(lambda tx: tx.one("PRAGMA synchronous"))
    journal = await engine.write(lambda tx: tx.one("PRAGMA journal_mode"))

    assert ((2,), (2,), ("wal",)) == (row, mode, journal)


async def test_a_failing_job_does_not_affect_others_in_its_commit(engine: SqliteEngine) -> None:
    def fails(tx: Transaction) -> None:
        tx.run(PUT, name="half", value=b"1")
        raise ValueError("no")

    jobs = [engine.write(put(f"n{number}")) for number in range(9)]  # type: ignore[arg-type]
    results = await asyncio.gather(*jobs, engine.write(fails), return_exceptions=True)

    assert isinstance(results[-1], ValueError)
    assert [f"n{number}" for number in range(9)] == await names(engine)


async def test_waiting_writers_share_one_commit(engine: SqliteEngine) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(tx: Transaction) -> None:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(10)

    held = asyncio.create_task(engine.write(hold))
    others = [asyncio.create_task(engine.write(put(f"n{n}"))) for n in range(50)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    before = engine.commits
    gate.set()
    await asyncio.gather(held, *others)

    assert engine.commits - before <= 2


async def test_a_cancelled_write_is_committed_completely_or_not_at_all(
    engine: SqliteEngine,
) -> None:
    tasks = [asyncio.create_task(engine.write(put(f"n{n:02}"))) for n in range(20)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    kept = await names(engine)
    assert {f"n{n:02}" for n in range(1, 20, 2)} <= set(kept)


async def test_readers_see_one_snapshot_and_cannot_write(engine: SqliteEngine) -> None:
    await engine.write(put("one"))  # type: ignore[arg-type]

    with pytest.raises(apsw.ReadOnlyError):
        await engine.read(lambda tx: tx.run(PUT, name="two", value=b""))

    assert ["one"] == await names(engine)


async def test_cached_reads_are_valid_until_any_write(engine: SqliteEngine, tmp_path: Path) -> None:
    def count(tx: Transaction) -> tuple[int, int]:
        now = tx.all("SELECT 1 FROM metadata")
        return len(remembered(tx, "facts", lambda: now)), len(now)

    async def counts() -> list[tuple[int, int]]:
        return [await engine.read(count) for _ in range(9)]

    other = connect(tmp_path / "test.db", Role.WRITER)
    before = await counts()
    await engine.write(put("ours"))  # type: ignore[arg-type]
    ours = await counts()
    other.execute(PUT, {"name": "theirs", "value": b"1"})
    theirs = await counts()
    other.close()

    [(_, first), *_] = before
    assert [{(first + n, first + n)} for n in range(3)] == [set(c) for c in (before, ours, theirs)]


async def test_a_cached_query_is_run_once_between_writes(engine: SqliteEngine) -> None:
    asked = []

    def ask(tx: Transaction) -> None:
        remembered(tx, "question", lambda: asked.append(1))

    for _ in range(99):
        await engine.read(ask)

    assert 1 <= len(asked) <= READERS


async def test_writes_do_not_use_the_cache(engine: SqliteEngine) -> None:
    assert (await engine.write(lambda tx: tx.remembered)) is None


async def test_a_full_disk_is_reported_and_the_next_write_works(engine: SqliteEngine) -> None:
    pages = await engine.write(lambda tx: tx.one("PRAGMA page_count"))
    assert pages is not None
    await engine.write(lambda tx: tx.all(f"PRAGMA max_page_count = {pages[0] + 2}"))

    with pytest.raises(StorageFull, match="free some space"):
        await engine.write(lambda tx: tx.run(PUT, name="big", value=b"x" * 1_000_000))
    await engine.write(lambda tx: tx.all("PRAGMA max_page_count = 1000000"))
    await engine.write(put("after"))  # type: ignore[arg-type]

    assert ["after"] == await names(engine)


async def test_a_lock_of_another_program_is_a_temporary_error(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    wait_for_locks(engine._writer, 0.05)
    other = apsw.Connection(str(tmp_path / "test.db"))
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unavailable, match="another process has locked") as refused:
        await engine.write(put("while locked"))
    other.execute("ROLLBACK")
    await engine.write(put("afterwards"))
    other.close()

    assert refused.value.retry_after > 0
    assert ["afterwards"] == await names(engine)


async def test_after_a_failed_disk_nothing_more_is_acknowledged(engine: SqliteEngine) -> None:
    def disk_fails(tx: Transaction) -> None:
        raise apsw.IOError("disk I/O error")

    with pytest.raises(StorageFailed):
        await engine.write(disk_fails)
    with pytest.raises(StorageFailed):
        await engine.write(put("late"))  # type: ignore[arg-type]

    assert [] == await names(engine)


def test_an_unsafe_sqlite_is_refused_by_name() -> None:
    check_sqlite(3_051_003)

    with pytest.raises(MailError, match=r"SQLite 3\.40\.1 has the WAL-reset bug"):
        check_sqlite(3_040_001)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    connection = connect(tmp_path / "new.db", Role.WRITER)
    migrate(connection)
    connection.pragma("user_version", VERSION + 1)

    with pytest.raises(MailError, match="newer Postroom"):
        migrate(connection)


KILLED_AT = """
import os, sys
from pathlib import Path
from postroom.store.sqlite.connection import Role, connect
from postroom.store.sqlite.engine import migrate
left = int(sys.argv[2])
def trace(cursor, sql, bindings):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    return True
connection = connect(Path(sys.argv[1]), Role.WRITER)
connection.exec_trace = trace
migrate(connection)
"""


@pytest.mark.parametrize("statements", range(0, 150, 12))
def test_a_kill_during_a_migration_leaves_the_old_schema_or_the_new(
    tmp_path: Path, statements: int
) -> None:
    path = tmp_path / "killed.db"
    subprocess.run([sys.executable, "-c", KILLED_AT, str(path), str(statements)], check=False)

    connection = connect(path, Role.WRITER)
    version = connection.pragma("user_version")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    migrate(connection)

    assert ("messages" in tables) == (version is not None and int(version) >= 1)
    assert VERSION == int(connection.pragma("user_version") or 0)


WRITER = """
import asyncio, sys
from pathlib import Path
from postroom.store.sqlite.engine import SqliteEngine
async def main():
    engine = SqliteEngine.open(Path(sys.argv[1]))
    async def put(n):
        name = f"{sys.argv[2]}-{n}"
        sql = "INSERT INTO metadata (name, value) VALUES (:name, :value)"
        await engine.write(lambda tx: tx.run(sql, name=name, value=b""))
    for start in range(0, 200, 10):
        await asyncio.gather(*(put(n) for n in range(start, start + 10)))
    await engine.close()
asyncio.run(main())
"""


async def test_many_processes_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    processes = [await asyncio.create_subprocess_exec(*command, f"p{n}") for n in range(6)]

    codes = [await process.wait() for process in processes]
    engine = SqliteEngine.open(path)
    kept = await names(engine)
    await engine.close()

    assert ([0] * 6, 6 * 200) == (codes, len(kept))


async def test_the_database_file_is_private(engine: SqliteEngine, tmp_path: Path) -> None:
    await engine.write(put("one"))  # type: ignore[arg-type]

    assert {"test.db": 0o600, "test.db-shm": 0o600, "test.db-wal": 0o600} == modes(tmp_path)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
