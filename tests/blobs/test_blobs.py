"""Every blob store passes the same suite."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from postroom.blobs import files
from postroom.blobs.files import FileBlobs
from postroom.blobs.objects import ObjectBlobs
from postroom.errors import MailError, NotFound
from postroom.ports.blobs import BlobStore
from tests.servers.s3 import empty, running


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Store]:
    """A bucket on a server that speaks S3."""
    with running() as store:
        yield store


async def nothing_used(keys: Sequence[str]) -> frozenset[str]:
    return frozenset()


async def all_used(keys: Sequence[str]) -> frozenset[str]:
    return frozenset(keys)


@pytest.fixture(params=["files", "objects"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "files":
        return FileBlobs(tmp_path / request.param)
    store: S3Store = request.getfixturevalue("bucket")
    empty(store)
    return ObjectBlobs(store)


async def test_a_stored_blob_is_read_back_whole_and_in_parts(blobs: BlobStore) -> None:
    content = os.urandom(700_000)

    (key,) = await blobs.put([content])

    assert hashlib.sha256(content).hexdigest() == key
    assert content == await blobs.read(key)
    assert content[10:20] == await blobs.read(key, offset=10, size=10)
    assert b"" == await blobs.read(key, offset=10**9, size=10)
    assert content == b"".join([chunk async for chunk in blobs.stream(key)])


async def test_the_same_content_has_one_key_and_may_be_empty(
    blobs: BlobStore,
) -> None:
    one, two, empty = await blobs.put([b"same", b"same", b""])

    assert one == two
    assert b"" == await blobs.read(empty)


async def test_a_missing_blob_is_not_found(blobs: BlobStore) -> None:
    with pytest.raises(NotFound):
        await blobs.read("0" * 64)
    with pytest.raises(NotFound):
        [chunk async for chunk in blobs.stream("0" * 64)]
    assert frozenset({"0" * 64}) == await blobs.missing(["0" * 64])


async def test_damage_is_reported(blobs: BlobStore) -> None:
    (key,) = await blobs.put([b"content"])

    assert await blobs.find_damage(key, 7) is None
    assert "damaged" in (await blobs.find_damage(key, 8) or "")
    assert "missing" in (await blobs.find_damage("0" * 64, 1) or "")


async def test_discard_removes_only_unused_blobs(blobs: BlobStore) -> None:
    used, unused = await blobs.put([b"used", b"unused"])

    async def first_used(keys: Sequence[str]) -> frozenset[str]:
        return frozenset(keys) & {used}

    await blobs.discard([used, unused], first_used)

    assert frozenset({unused}) == await blobs.missing([used, unused])


async def test_a_sweep_removes_only_old_unused_blobs(blobs: BlobStore) -> None:
    keys = await blobs.put([b"one", b"two"])

    assert 0 == await blobs.sweep(nothing_used, older_than=timedelta(hours=1))
    assert 0 == await blobs.sweep(all_used, older_than=timedelta(seconds=-1))
    assert frozenset() == await blobs.missing(keys)
    assert 2 == await blobs.sweep(nothing_used, older_than=timedelta(seconds=-1))


async def test_the_installation_mark_is_not_a_blob(blobs: BlobStore) -> None:
    unmarked = await blobs.mark.read()
    await blobs.mark.write("one")
    await blobs.mark.write("another")

    assert (None, "another") == (unmarked, await blobs.mark.read())
    assert not await blobs.mark.has_blobs()
    assert 0 == await blobs.sweep(nothing_used, older_than=timedelta(seconds=-1))
    await blobs.put([b"some"])
    assert await blobs.mark.has_blobs()
    await blobs.mark.remove()
    assert await blobs.mark.read() is None


async def test_a_blob_put_again_during_removal_survives(blobs: BlobStore) -> None:
    (key,) = await blobs.put([b"again"])

    async def put_meanwhile(keys: Sequence[str]) -> frozenset[str]:
        await blobs.put([b"again"])
        return frozenset()

    await blobs.discard([key], put_meanwhile)

    assert b"again" == await blobs.read(key)


async def test_concurrent_writers_of_the_same_content_do_not_damage_it(blobs: BlobStore) -> None:
    contents = [b"x" * 50_000, b"y" * 50_000]

    await asyncio.gather(*(blobs.put(contents) for _ in range(8)))

    keys = await blobs.put(contents)
    assert contents == [await blobs.read(key) for key in keys]


async def test_a_file_blob_set_aside_by_a_killed_removal_comes_back(tmp_path: Path) -> None:
    files = FileBlobs(tmp_path)
    (key,) = await files.put([b"needed"])
    path = tmp_path / key[:2] / key[2:]
    path.rename(path.with_name(path.name + ".gone"))

    assert b"needed" == await files.read(key)
    await files.sweep(all_used, older_than=timedelta(hours=1))

    assert frozenset() == await files.missing([key])


async def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"

    (key,) = await FileBlobs(folder).put([b"private"])

    paths = [folder, folder / key[:2], folder / key[:2] / key[2:]]
    assert [0o700, 0o700, 0o600] == [path.stat().st_mode & 0o777 for path in paths]


@pytest.mark.parametrize(("harm", "overwrite"), [(b"cut", False), (b"wrong", True)])
async def test_a_damaged_blob_is_written_again(
    blobs: BlobStore, tmp_path: Path, harm: bytes, overwrite: bool
) -> None:
    (key,) = await blobs.put([b"whole"])
    if isinstance(blobs, FileBlobs):
        (tmp_path / "files" / key[:2] / key[2:]).write_bytes(harm)
    elif isinstance(blobs, ObjectBlobs):
        obstore.put(blobs._store, f"{key[:2]}/{key[2:]}", harm)
    assert {key: len(harm)} == await blobs.sizes([key, "0" * 64])

    await blobs.put([b"whole"], overwrite=overwrite)

    assert b"whole" == await blobs.read(key)


def test_a_readiness_check_leaves_no_file(tmp_path: Path) -> None:
    asyncio.run(FileBlobs(tmp_path).check())

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


async def test_after_a_failed_sync_nothing_is_stored_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    (key,) = await blobs.put([b"before"])
    sync = os.fsync

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(MailError, match="disk failed"):
        await blobs.put([b"during"])
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(MailError, match="disk failed"):
        await blobs.put([b"after"])
    with pytest.raises(MailError, match="disk failed"):
        await blobs.missing([key])

    assert b"before" == await blobs.read(key)
    assert 1 == len(await FileBlobs(tmp_path).put([b"after"]))


PUT_MANY = """
import asyncio, sys
from pathlib import Path
from postroom.blobs import files
from postroom.blobs.files import FileBlobs

if sys.argv[2] == "each":
    files._SAFE_KINDS = frozenset()
asyncio.run(FileBlobs(Path(sys.argv[1])).put([b"%d" % n * 100 for n in range(50)]))
"""
IN_FOLDER = re.compile(r"blobs/(../[^\">]+|..(?=>))")


@pytest.mark.parametrize("syncs", ["together", "each"])
def test_files_are_synced_before_they_are_renamed(tmp_path: Path, syncs: str) -> None:
    blobs, trace = tmp_path / "blobs", tmp_path / "trace"
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=openat,rename,fsync,syncfs"]
    subprocess.run([*strace, sys.executable, "-c", PUT_MANY, str(blobs), syncs], check=True)

    lines = [line for line in trace.read_text().splitlines() if str(blobs) in line]
    written, named = set[str](), set[str]()
    for line in lines:
        path = "".join(IN_FOLDER.findall(line)[:1])
        if "syncfs(" in line:
            written.clear()
            named.clear()
        elif "fsync(" in line:
            written.discard(path)
            named = {name for name in named if not name.startswith(f"{path}/")}
        elif "rename(" in line:
            assert path not in written
            named.add(path)
        elif "O_CREAT" in line:
            written.add(path)

    assert not named
    assert 50 == sum("rename(" in line for line in lines)
    is_together = syncs == "together" and files._kind(tmp_path) in files._SAFE_KINDS
    assert is_together == any("syncfs(" in line for line in lines)


def test_no_file_is_kept_if_the_sync_of_a_batch_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_syncfs", lambda: broken)
    monkeypatch.setattr(os, "fsync", broken)

    with pytest.raises(MailError, match="disk failed"):
        asyncio.run(FileBlobs(tmp_path).put([b"%d" % number for number in range(50)]))

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]
