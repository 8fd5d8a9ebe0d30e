"""Export of mail to files."""

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
from postroom.model.storage import RawMessage
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.pipeline.transfer.mail_files import (
    Kind,
    Unreadable,
    compressing,
    folder_for,
    info_for,
)
from postroom.pipeline.transfer.mbox import write_entry

_OWNER_ONLY = 0o600


@dataclass(slots=True)
class ExportResult:
    """What was written so far, and the messages that could not be read."""

    written: int = 0
    problems: list[Unreadable] = field(default_factory=list)


class Target(Protocol):
    """A file or folder that mail is written to."""

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
    """A Maildir with a folder for each mailbox except Inbox, and flags in the file names."""

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
                (folder / "maildirfolder").touch(_OWNER_ONLY)
        return folder


def make_maildir(folder: Path) -> None:
    """Create the three folders of a Maildir."""
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True, mode=0o700, exist_ok=True)


def _write_file(path: Path, message: RawMessage, raw: bytes) -> None:
    with open(path, "xb", opener=_open_private) as file:
        file.write(raw)
    moment = max(message.date.timestamp(), 0)
    os.utime(path, (moment, moment))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER_ONLY)


@contextmanager
def open_target(path: Path, kind: Kind) -> Iterator[Target]:
    """A target that gets its final name when all is written. Raises Conflict if that exists."""
    if path.exists():
        raise Conflict(f"{path} exists already; use another path, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _partial_target(part, path.suffix, kind) as target:
            yield target
        os.rename(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


@contextmanager
def _partial_target(part: Path, suffix: str, kind: Kind) -> Iterator[Target]:
    if kind == "mbox":
        with open(part, "xb", opener=_open_private) as disk:
            with compressing(suffix, disk) as file:
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
    services: Services,
    inbox_id: str,
    target: Target,
    *,
    report: Callable[[ExportResult], None] = lambda _: None,
) -> ExportResult:
    """Write every message of an inbox, Trash and Junk included. Raises NotFound."""
    outcome = ExportResult()
    async for message, is_last in _mark_last(services.store.raw_messages(inbox_id, EVERYTHING)):
        try:
            raw = await services.blobs.read(message.raw)
        except NotFound as error:
            outcome.problems.append(Unreadable(message.id, str(error)))
            continue
        await in_thread(target.write, message, raw, is_last=is_last)
        outcome.written += 1
        report(outcome)
    return outcome


async def _mark_last(messages: AsyncIterator[RawMessage]) -> AsyncIterator[tuple[RawMessage, bool]]:
    held: RawMessage | None = None
    async for message in messages:
        if held is not None:
            yield held, False
        held = message
    if held is not None:
        yield held, True
