"""Blobs as files in a folder.

Syncing a whole filesystem by one call is much cheaper than a sync of each of many files. `syncfs`
is used where it is known to wait for the disk and to report errors: on Linux from 5.8 on, and on
filesystems of a local disk. Everywhere else each file is synced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path

from postroom.blocking import in_thread
from postroom.errors import MailError, NotFound, StorageFull
from postroom.model.mail.message import BlobKey
from postroom.ports.blobs import UsedBlobs

_SAFE_KINDS = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
_MIN_KERNEL = (5, 8)
_MOUNTS = Path("/proc/self/mountinfo")


@contextmanager
def filesystem_sync(folder: Path) -> Iterator[Callable[[], None] | None]:
    """A function that syncs all files on the filesystem of a folder; None if there is none.

    It raises OSError also for what failed since the context began, so begin it before writing.
    """
    call = _syncfs() if _kind(folder) in _SAFE_KINDS else None
    if call is None:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield lambda: call(descriptor)
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Callable[[int], None] | None:
    if sys.platform != "linux" or _kernel() < _MIN_KERNEL:
        return None
    # Imported on first use: a single mail does not need it.
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None

    def call(descriptor: int) -> None:
        if function(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return call


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


@cache
def _kind(folder: Path) -> str | None:
    """The type of the filesystem of a folder, from the list of mounts; None if it is not there."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for fields in map(str.split, lines):
        if fields[2] == name:
            return fields[fields.index("-") + 1]
    return None


def write_file(path: Path, content: bytes) -> None:
    """Write and sync a file of mode 0600, which then gets its name."""
    new = path.parent / f".new-{secrets.token_hex(8)}"
    try:
        _write_new(new, content, sync=os.fsync)
        os.rename(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _write_new(
    path: Path | str, content: bytes, *, sync: Callable[[int], object] = lambda _: None
) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk_errors() -> Iterator[None]:
    """Raise StorageFull if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull("the disk is full; free some space and try again") from error
        raise


OWNER_FILES = ("installation.json", ".house")
"""The name of a mark, and what it was called before schema 40; that one held the id alone."""


def owner_mark(installation: str) -> bytes:
    return b'{"installation":"%s"}\n' % installation.encode()


def owner_in(mark: bytes) -> str:
    """The id of the installation that a mark names, in either format."""
    text = mark.decode("ascii", "replace").strip()
    return text.removeprefix('{"installation":"').removesuffix('"}')


class FileInstallationMark:
    """The owner mark: the file `installation.json` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.place = folder, str(folder)
        self._path, self._old_path = (folder / name for name in OWNER_FILES)
        self.is_outdated = False

    async def read(self) -> str | None:
        return await in_thread(self.read_sync)

    async def write(self, installation: str) -> None:
        await in_thread(self._write, installation)

    async def remove(self) -> None:
        for path in (self._path, self._old_path):
            await in_thread(path.unlink, missing_ok=True)

    async def has_blobs(self) -> bool:
        return await in_thread(
            lambda: any(len(path.name) >= 62 for path in self._folder.glob("??/*"))
        )

    def read_sync(self) -> str | None:
        """The id of the installation; None if the folder has no mark."""
        for path in (self._path, self._old_path):
            with suppress(FileNotFoundError):
                owner = owner_in(path.read_bytes())
                self.is_outdated = path == self._old_path
                return owner
        return None

    def _write(self, installation: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with full_disk_errors():
            write_file(self._path, owner_mark(installation))
            self._old_path.unlink(missing_ok=True)
            self.is_outdated = False
            sync_folder(self._folder)


_CHUNK_BYTES = 256 * 1024
_MAX_SAMPLED = 2_000
_GONE = ".gone"
_BATCH = 500
_MANY = 32
"""From this many new files on, their whole filesystem is synced instead of each of them."""

_PROBE_BYTES = 1024 * 1024
"""The size of an ordinary mail."""

_BROKEN = "the disk failed; repair it, then restart Postroom"


class FileBlobs:
    """A folder of content-addressed files.

    A file gets its name after it is synced; many files are synced together. A removal first
    renames a file and then checks again whether it is in use: one that was put again in the
    meantime is restored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mark = FileInstallationMark(folder)
        self._is_broken = False

    async def put(self, contents: Iterable[bytes], *, overwrite: bool = False) -> list[BlobKey]:
        return await in_thread(self._put_all, list(contents), overwrite=overwrite)

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        return frozenset(keys) - (await self.sizes(keys)).keys()

    async def sizes(self, keys: Sequence[BlobKey]) -> dict[BlobKey, int]:
        found = await in_thread(lambda: [(key, self._size(key)) for key in keys])
        if self._is_broken:
            raise MailError(_BROKEN)
        return {key: size for key, size in found if size is not None}

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        return await in_thread(self._read, key, offset, size)

    async def estimated_bytes(self) -> int:
        """The size of all blobs, from some of the folders: keys are spread evenly over them."""
        return await in_thread(self._estimated_bytes)

    async def stream(self, key: BlobKey) -> AsyncIterator[bytes]:
        offset = 0
        while chunk := await in_thread(self._read, key, offset, _CHUNK_BYTES):
            yield chunk
            offset += len(chunk)

    async def find_damage(self, key: BlobKey, size: int) -> str | None:
        return await in_thread(self._damage, key, size)

    async def discard(self, keys: Sequence[BlobKey], used: UsedBlobs) -> None:
        started = time.time()
        for path in map(self._path, keys):
            with suppress(FileNotFoundError):
                await in_thread(os.rename, path, path.with_name(path.name + _GONE))
        in_use = await used(keys) if keys else frozenset()
        for key in keys:
            await in_thread(self._finish_removal, key, in_use, started)

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        before = time.time() - older_than.total_seconds()
        await self._recover(used, before)
        removed = 0
        keys = await in_thread(self._keys_before, before)
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            in_use = await used(batch)
            unused = [key for key in batch if key not in in_use]
            await self.discard(unused, used)
            removed += sum(not self._path(key).exists() for key in unused)
        return removed

    async def check(self) -> None:
        await self.discard(await self.put([secrets.token_bytes(_PROBE_BYTES)]), _unused)

    async def _recover(self, used: UsedBlobs, before: float) -> None:
        """Finish interrupted removals."""
        aside = await in_thread(lambda: list(self._folder.glob(f"??/*{_GONE}")))
        keys = [path.parent.name + path.name.removesuffix(_GONE) for path in aside]
        for start in range(0, len(keys), _BATCH):
            part = keys[start : start + _BATCH]
            in_use = await used(part)
            for key in part:
                await in_thread(self._finish_removal, key, in_use, before)

    def _path(self, key: BlobKey) -> Path:
        return self._folder / key[:2] / key[2:]

    def _put_all(self, contents: Sequence[bytes], *, overwrite: bool) -> list[BlobKey]:
        """Write and sync every new file, then rename it, then sync the folders."""
        keys = [hashlib.sha256(content).hexdigest() for content in contents]
        new = {
            key: content
            for key, content in zip(keys, contents, strict=True)
            if overwrite or not self._touch(key, len(content))
        }
        with self._disk_errors():
            if len(new) < _MANY or not self._write_together(new):
                for key, content in new.items():
                    self._write(key, content)
                # Also those of existing blobs: their writer may not have synced them yet.
                for folder in {self._path(key).parent for key in keys}:
                    sync_folder(folder)
        return keys

    def _write_together(self, contents: Mapping[BlobKey, bytes]) -> bool:
        """Write many files with two syncs for all; False if this filesystem cannot do that."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with filesystem_sync(self._folder) as sync:
            if sync is None:
                return False
            folder, mark = str(self._folder), f".new-{secrets.token_hex(8)}-"
            for prefix in {key[:2] for key in contents}:
                with suppress(FileExistsError):
                    os.mkdir(f"{folder}/{prefix}", 0o700)
            names = {
                f"{folder}/{key[:2]}/{mark}{number}": f"{folder}/{key[:2]}/{key[2:]}"
                for number, key in enumerate(contents)
            }
            try:
                for new, content in zip(names, contents.values(), strict=True):
                    _write_new(new, content)
                sync()
                for new, name in names.items():
                    os.rename(new, name)
            except BaseException:
                for new in names:
                    Path(new).unlink(missing_ok=True)
                raise
            sync()
        return True

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Translate disk errors. After EIO, nothing more is written until a restart.

        The operating system drops pages that it could not write, so a second fsync would succeed
        without effect.
        """
        if self._is_broken:
            raise MailError(_BROKEN)
        try:
            with full_disk_errors():
                yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._is_broken = True
            raise MailError(_BROKEN) from error

    def _touch(self, key: BlobKey, size: int) -> bool:
        """Renew the time of a blob, so that no sweep removes it. False if it does not exist."""
        with suppress(FileNotFoundError):
            if self._size(key) == size:
                os.utime(self._path(key))
                return True
        return False

    def _estimated_bytes(self) -> int:
        folders = sorted(self._folder.glob("??"))
        size = files = looked_at = 0
        for folder in folders:
            if files >= _MAX_SAMPLED:
                break
            with os.scandir(folder) as entries:
                sizes = [entry.stat().st_size for entry in entries if entry.is_file()]
            size, files, looked_at = size + sum(sizes), files + len(sizes), looked_at + 1
        return size * len(folders) // looked_at if looked_at else 0

    def _size(self, key: BlobKey) -> int | None:
        try:
            return os.stat(f"{self._folder}/{key[:2]}/{key[2:]}").st_size
        except FileNotFoundError:
            return None

    def _write(self, key: BlobKey, content: bytes) -> None:
        path = self._path(key)
        if not path.parent.is_dir():
            for folder in (self._folder, path.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_folder(self._folder)
        write_file(path, content)

    def _read(self, key: BlobKey, offset: int, size: int | None) -> bytes:
        path = self._path(key)
        for candidate in (path, path.with_name(path.name + _GONE), path):
            with suppress(FileNotFoundError), open(candidate, "rb") as file:
                file.seek(offset)
                return file.read(-1 if size is None else size)
        raise missing_error(key)

    def _damage(self, key: BlobKey, size: int) -> str | None:
        digest, length = hashlib.sha256(), 0
        try:
            while chunk := self._read(key, length, _CHUNK_BYTES * 16):
                digest.update(chunk)
                length += len(chunk)
        except NotFound:
            return f"blob {key} is missing"
        except OSError as error:
            return f"blob {key} cannot be read: {error.strerror}"
        if digest.hexdigest() != key or length != size:
            return f"blob {key} is damaged: its content is not what was stored"
        return None

    def _finish_removal(self, key: BlobKey, in_use: frozenset[BlobKey], before: float) -> None:
        """Delete a blob that was set aside, or restore it if it is in use."""
        path = self._path(key)
        aside = path.with_name(path.name + _GONE)
        with suppress(FileNotFoundError):
            is_kept = key in in_use or aside.stat().st_mtime >= before
            if is_kept and not path.exists():
                os.rename(aside, path)
            else:
                os.unlink(aside)

    def _keys_before(self, before: float) -> list[BlobKey]:
        found = []
        for folder in sorted(self._folder.glob("??")):
            for entry in os.scandir(folder):
                if len(entry.name) == 62 and entry.stat().st_mtime < before:
                    found.append(folder.name + entry.name)
                elif entry.name.startswith(".new-") and entry.stat().st_mtime < before:
                    os.unlink(entry.path)
        return found


async def _unused(_keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    return frozenset()


def missing_error(key: BlobKey) -> NotFound:
    return NotFound(f"the content {key[:12]}… is missing from the blob store")
