"""Whose the blobs of a bucket are: an object beside them with the name of the house."""

from __future__ import annotations

import re
from contextlib import suppress

import obstore
from obstore.store import S3Store

from postroom.blobs.object_errors import no_bucket, object_errors

_PATH = ".house"
_FOLDER = re.compile(r"(gone|[0-9a-f]{2})/?")


class ObjectMark:
    """The object `.house` below the prefix."""

    def __init__(self, store: S3Store, reading: S3Store, place: str) -> None:
        self._store, self._reading, self._place = store, reading, place

    @property
    def place(self) -> str:
        return self._place

    async def read(self) -> str | None:
        with suppress(FileNotFoundError), object_errors():
            found = await obstore.get_async(self._reading, _PATH)
            return bytes(await found.bytes_async()).decode("ascii", "replace").strip()
        return None

    async def write(self, house: str) -> None:
        try:
            with object_errors():
                await obstore.put_async(
                    self._store, _PATH, f"{house}\n".encode(), use_multipart=False
                )
        except FileNotFoundError as error:
            raise no_bucket(error) from error

    async def remove(self) -> None:
        with suppress(FileNotFoundError), object_errors():
            await obstore.delete_async(self._store, _PATH)

    async def has_blobs(self) -> bool:
        """Whether there is a folder as ours are called: to look for more could take for ever."""
        with object_errors():
            found = await obstore.list_with_delimiter_async(self._reading)
        return any(_FOLDER.fullmatch(path.rpartition("/")[2]) for path in found["common_prefixes"])
