"""An inbox into files, byte for byte: mbox, Maildir or a folder of .eml files."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from postroom.blocking import in_thread
from postroom.errors import Conflict, NotFound
from postroom.model.inbox import INBOX
from postroom.model.stored import RawMessage
from postroom.pipeline.house import House
from postroom.pipeline.maildir import folder_for, info_for
from postroom.pipeline.mbox import write_entry
from postroom.pipeline.packed import packing
from postroom.pipeline.sources import Kind, Unreadable

_ONLY_THE_OWNER = 0o600


@dataclass(slots=True)
class ExportTally:
    """What was written so far, and which messages could not be."""

    written: int = 0
    problems: list[Unreadable] = field(default_factory=list)


class Target(Protocol):
    """Somewhere that mail is written to."""

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class MboxTarget:
    """One file for all mail."""

    file: IO[bytes]

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None:
        self.file.write(write_entry(raw, message.from_address, message.date, is_last=is_last))


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """One file for each mail, named so that the order of names is the order of arrival."""

    folder: Path

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None:
        _write_file(self.folder / f"{message.number:010}.{message.id}.eml", message, raw)


@dataclass(frozen=True, slots=True)
class MaildirTarget:
    """A Maildir with a folder for each mailbox but Inbox, and flags in the names."""

    folder: Path

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None:
        name = f"{message.number:010}.{message.id}.postroom{info_for(message.flags)}"
        _write_file(self._folder_of(message) / "cur" / name, message, raw)

    def _folder_of(self, message: RawMessage) -> Path:
        mailbox = next(iter(message.mailboxes), INBOX)
        folder = self.folder if mailbox == INBOX else self.folder / folder_for(mailbox)
        if not (folder / "cur").is_dir():
            make_maildir(folder)
            if folder != self.folder:
                (folder / "maildirfolder").touch(_ONLY_THE_OWNER)
        return folder


def make_maildir(folder: Path) -> None:
    """Make the three folders that a Maildir consists of."""
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True, mode=0o700, exist_ok=True)


def _write_file(path: Path, message: RawMessage, raw: bytes) -> None:
    with open(path, "xb", opener=_private) as file:
        file.write(raw)
    moment = max(message.date.timestamp(), 0)
    os.utime(path, (moment, moment))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, _ONLY_THE_OWNER)


@contextmanager
def open_target(path: Path, kind: Kind) -> Iterator[Target]:
    """A place to write to, which appears under its name when all is written.

    Raises:
        Conflict: there is something already.
    """
    if path.exists():
        raise Conflict(f"{path} exists already; name another place, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _unfinished(part, path.suffix, kind) as target:
            yield target
        os.rename(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


@contextmanager
def _unfinished(part: Path, suffix: str, kind: Kind) -> Iterator[Target]:
    if kind == "mbox":
        with open(part, "xb", opener=_private) as disk:
            with packing(suffix, disk) as file:
                yield MboxTarget(file)
            disk.flush()
            os.fsync(disk.fileno())
        return
    part.mkdir(mode=0o700)
    if kind == "maildir":
        make_maildir(part)
        yield MaildirTarget(part)
    else:
        yield FolderTarget(part)


async def export_mail(
    house: House,
    inbox_id: str,
    target: Target,
    *,
    report: Callable[[ExportTally], None] = lambda _: None,
) -> ExportTally:
    """Write every message of an inbox, Trash and Junk included. Raises NotFound."""
    tally = ExportTally()
    async for message, is_last in _with_last(house.store.raw_messages(inbox_id, None)):
        try:
            raw = await house.blobs.read(message.raw)
        except NotFound as error:
            tally.problems.append(Unreadable(message.id, str(error)))
            continue
        await in_thread(target.write, message, raw, is_last=is_last)
        tally.written += 1
        report(tally)
    return tally


async def _with_last(messages: AsyncIterator[RawMessage]) -> AsyncIterator[tuple[RawMessage, bool]]:
    held: RawMessage | None = None
    async for message in messages:
        if held is not None:
            yield held, False
        held = message
    if held is not None:
        yield held, True
