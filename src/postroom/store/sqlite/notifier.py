"""The notifier between processes: one named pipe per listening process, beside the database.

A pipe has no limit on the length of its path, unlike a socket. A pipe without a reader belonged to
a process that has ended; the next publisher removes it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from postroom.ports.events import Topic
from postroom.store.subscriptions import Subscriptions

_CODES: dict[Topic, bytes] = {
    "events": b"e",
    "outbox": b"o",
    "webhooks": b"w",
    "rule_jobs": b"r",
    "heartbeats": b"t",
    "accounts": b"a",
    "keys": b"k",
}
_TOPICS = {code[0]: topic for topic, code in _CODES.items()}
_UNNAMED = ".new-"


class PipeNotifier:
    """Wakes waiting tasks of this process; published to by the writer thread of any process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions = Subscriptions()

    def publish(self, topics: Iterable[Topic]) -> None:
        """Wake all listening processes; errors are ignored, because the commit has succeeded."""
        codes = b"".join(_CODES[topic] for topic in topics)
        with suppress(OSError):
            for entry in os.listdir(self._folder):
                if not entry.startswith(_UNNAMED):
                    self._publish_to(self._folder / entry, codes)

    def _publish_to(self, path: Path, codes: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            with suppress(OSError):
                path.unlink()
            return
        # A full pipe already wakes its reader.
        with suppress(OSError):
            os.write(descriptor, codes)
        os.close(descriptor)

    def position(self, topic: Topic) -> int:
        if self._loop is None and not self._subscriptions.is_closed:
            self._listen(asyncio.get_running_loop())
        return self._subscriptions.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.position(topic)
        return await self._subscriptions.wait(topic, seen)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create the pipe and give it its name once it has a reader, so that it is not removed.

        The process also holds the write end, or the reader would wake for each writer that closes.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        unnamed = self._folder / (_UNNAMED + name)
        os.mkfifo(unnamed, 0o600)
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
        self._path = self._folder / name
        os.rename(unnamed, self._path)
        loop.add_reader(self._descriptor, self._read)
        self._loop = loop

    def _read(self) -> None:
        try:
            codes = os.read(self._descriptor, 65_536)
        except BlockingIOError:
            return
        self._subscriptions.announced({_TOPICS[code] for code in codes if code in _TOPICS})

    def close(self) -> None:
        """Stop listening and remove the pipe."""
        self._subscriptions.close()
        if self._loop is None or self._path is None:
            return
        with suppress(RuntimeError):
            self._loop.remove_reader(self._descriptor)
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._loop = None
