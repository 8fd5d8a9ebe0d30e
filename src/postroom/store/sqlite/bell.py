"""A bell between processes: a named pipe for each that listens, in a folder beside the database.

A pipe and not a socket, because its path may be long. One without a reader belonged to a process
that is gone: whoever rings removes it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from postroom.ports.bell import Topic
from postroom.store.rings import Rings

_LETTERS: dict[Topic, bytes] = {
    "events": b"e",
    "outbox": b"o",
    "webhooks": b"w",
    "errands": b"r",
    "attendance": b"t",
    "accounts": b"a",
    "keys": b"k",
}
_TOPICS = {letter[0]: topic for topic, letter in _LETTERS.items()}
_NEW = ".new-"


class PipeBell:
    """Heard by this process once somebody in it has asked; rung by the writer's thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rings = Rings()

    def ring(self, topics: Iterable[Topic]) -> None:
        """Wake everyone; whatever goes wrong here must not harm the commit before it."""
        letters = b"".join(_LETTERS[topic] for topic in topics)
        with suppress(OSError):
            for entry in os.listdir(self._folder):
                if not entry.startswith(_NEW):
                    self._ring_one(self._folder / entry, letters)

    def _ring_one(self, path: Path, letters: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            with suppress(OSError):
                path.unlink()
            return
        # A full pipe has been rung already.
        with suppress(OSError):
            os.write(descriptor, letters)
        os.close(descriptor)

    def rung(self, topic: Topic) -> int:
        if self._loop is None:
            self._listen(asyncio.get_running_loop())
        return self._rings.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.rung(topic)
        return await self._rings.wait(topic, seen)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """The pipe gets its name only when it has a reader; until then it looks abandoned.

        We also hold its writing end, for else the reader would hear of every writer that leaves.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        unnamed = self._folder / (_NEW + name)
        os.mkfifo(unnamed, 0o600)
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
        self._path = self._folder / name
        os.rename(unnamed, self._path)
        loop.add_reader(self._descriptor, self._hear)
        self._loop = loop

    def _hear(self) -> None:
        try:
            letters = os.read(self._descriptor, 65_536)
        except BlockingIOError:
            return
        self._rings.heard({_TOPICS[letter] for letter in letters if letter in _TOPICS})

    def close(self) -> None:
        """Stop listening and take the pipe away."""
        if self._loop is None or self._path is None:
            return
        with suppress(RuntimeError):
            self._loop.remove_reader(self._descriptor)
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._loop = None
        self._rings.cancel()
