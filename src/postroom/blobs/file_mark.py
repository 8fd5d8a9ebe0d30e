"""Whose a folder of blobs is: a file beside them with the name of the house."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from postroom.blobs.disk import sync_folder, write_synced
from postroom.blocking import in_thread
from postroom.errors import StorageFull


class FileMark:
    """The file `.house` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / ".house"

    @property
    def place(self) -> str:
        return str(self._folder)

    async def read(self) -> str | None:
        return await in_thread(self.read_now)

    async def write(self, house: str) -> None:
        await in_thread(self._write, house)

    async def remove(self) -> None:
        await in_thread(self._path.unlink, missing_ok=True)

    async def has_blobs(self) -> bool:
        return await in_thread(self._has_blobs)

    def read_now(self) -> str | None:
        """The name of the house; None if nobody has marked the folder."""
        try:
            return self._path.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return None

    def _write(self, house: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self._folder / f".new-{secrets.token_hex(8)}"
        try:
            write_synced(new, f"{house}\n".encode())
            os.rename(new, self._path)
            sync_folder(self._folder)
        except OSError as error:
            new.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull("the disk is full; free some space and try again") from error
            raise

    def _has_blobs(self) -> bool:
        return any(len(path.name) >= 62 for path in self._folder.glob("??/*"))
