"""Import of mail from files, export to files, and back-tests of rules on files."""

from __future__ import annotations

import gc
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO

from postroom.blocking import in_thread
from postroom.errors import Conflict, InvalidInput, NotFound, TooLarge, Unstorable
from postroom.mail.message import ParsedMessage
from postroom.model.inbox import INBOX, SENT
from postroom.model.mail.message import MessageState
from postroom.model.mail.storage import Added, RawMessage
from postroom.model.view import EVERYTHING
from postroom.pipeline.apply_rules import ArrivalFacts, facts_of
from postroom.pipeline.ingest import Arrival, check_size, effective_date, receive_many, searchable
from postroom.pipeline.maintenance import compact_all, compact_some
from postroom.pipeline.parse_worker import Parser
from postroom.pipeline.services import Services
from postroom.pipeline.transfer.archives import (
    NO_HEADER,
    SourceMail,
    Unreadable,
    has_mail_header,
    write_entry,
)
from postroom.pipeline.transfer.mail_files import (
    Kind,
    compressing,
    folder_for,
    info_for,
)
from postroom.rules.backtest import BackTest

log = logging.getLogger(__name__)

BATCH_MAILS = 200
BATCH_BYTES = 8 * 1024 * 1024
_COLLECT_AFTER = (10_000, 20, 20)
MAX_PROBLEMS = 10_000
"""How many problems are listed; the others are counted."""

Batch = list[SourceMail | Unreadable]


@dataclass(slots=True)
class ImportResult:
    """The result so far; what counts as stored is on disk."""

    read: int = 0
    stored: int = 0
    duplicates: int = 0
    refused: int = 0
    problems: list[Unreadable] = field(default_factory=list)

    def refuse(self, problem: Unreadable) -> None:
        """Count something that was not imported."""
        self.refused += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


async def import_mail(
    services: Services,
    mails: Iterable[SourceMail | Unreadable],
    inbox_id: str,
    *,
    report: Callable[[ImportResult], None] = lambda _: None,
    batch_mails: int = BATCH_MAILS,
    takes_any: bool = False,
) -> ImportResult:
    """Store all mails in their order; *report* is called after each batch is on disk.

    What has no header of a mail is refused, unless it *takes any* file.

    It compacts the search index too, since perhaps no server is running.

    Raises:
        NotFound: the inbox was removed.
        StorageFull: the disk is full; what was reported is stored.
    """
    outcome = ImportResult()
    iterator = iter(mails)
    with _rare_collections():
        while batch := await in_thread(_next_batch, iterator, batch_mails):
            good = list(_acceptable(services, batch, outcome, takes_any=takes_any))
            added = await _store(services, good, inbox_id, outcome) if good else []
            duplicates = sum(one.is_duplicate for one in added)
            outcome.duplicates += duplicates
            outcome.stored += len(added) - duplicates
            report(outcome)
            await compact_some(services, in_bulk=True)
        await compact_all(services)
    return outcome


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for reference cycles less often: a batch is many objects, and hardly any cycles."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _next_batch(mails: Iterator[SourceMail | Unreadable], max_mails: int) -> Batch:
    batch: Batch = []
    size = 0
    for mail in mails:
        batch.append(mail)
        size += len(mail.raw) if isinstance(mail, SourceMail) else 0
        if len(batch) >= max_mails or size >= BATCH_BYTES:
            break
    return batch


def _acceptable(
    services: Services, batch: Batch, outcome: ImportResult, *, takes_any: bool
) -> Iterator[SourceMail]:
    """The mails of a valid size and form; the others are counted as refused."""
    for mail in batch:
        outcome.read += 1
        if isinstance(mail, Unreadable):
            outcome.refuse(mail)
            continue
        try:
            check_size(mail.raw, services.limits.message_bytes)
        except (InvalidInput, TooLarge) as error:
            outcome.refuse(Unreadable(mail.place, str(error)))
            continue
        if takes_any or has_mail_header(mail.raw):
            yield mail
        else:
            outcome.refuse(Unreadable(mail.place, NO_HEADER))


async def _store(
    services: Services, mails: Sequence[SourceMail], inbox_id: str, outcome: ImportResult
) -> list[Added]:
    """Store a batch; if the database refuses one mail, each is stored on its own."""
    arrivals = [
        Arrival(
            mail.raw,
            inbox_id,
            mail.mailbox,
            "outbound" if mail.mailbox == SENT else "inbound",
            mail.flags,
            is_imported=True,
        )
        for mail in mails
    ]
    try:
        return await receive_many(services, arrivals)
    except (InvalidInput, Unstorable) as error:
        if len(mails) > 1:
            stored = [await _store(services, [mail], inbox_id, outcome) for mail in mails]
            return [one for each in stored for one in each]
        log.warning("import.skipped", extra={"place": mails[0].place, "error": str(error)})
        outcome.refuse(Unreadable(mails[0].place, str(error)))
        return []


_OWNER_ONLY = 0o600


@dataclass(slots=True)
class ExportResult:
    """What was written so far, and the messages that could not be read."""

    written: int = 0
    problems: list[Unreadable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MboxTarget:
    """One file for all mail."""

    file: IO[bytes]

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None:
        self.file.write(write_entry(raw, message.from_address, message.date, is_last=is_last))


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """One file for each mail, named so that the order of names is the order of arrival.

    A Maildir has a folder for each mailbox except Inbox, and flags in the file names.
    """

    folder: Path
    is_maildir: bool

    def write(self, message: RawMessage, raw: bytes, *, is_last: bool) -> None:
        path = self.folder / f"{message.number:010}.{message.id}.eml"
        if self.is_maildir:
            name = f"{path.stem}.postroom{info_for(message.flags)}"
            path = self._maildir_of(message) / "cur" / name
        with open(path, "xb", opener=_open_private) as file:
            file.write(raw)
        moment = max(message.date.timestamp(), 0)
        os.utime(path, (moment, moment))

    def _maildir_of(self, message: RawMessage) -> Path:
        mailbox = next(iter(message.mailboxes), INBOX)
        folder = self.folder if mailbox == INBOX else self.folder / folder_for(mailbox)
        if not (folder / "cur").is_dir():
            _make_maildir(folder)
            if folder != self.folder:
                (folder / "maildirfolder").touch(_OWNER_ONLY)
        return folder


Target = MboxTarget | FolderTarget


def _make_maildir(folder: Path) -> None:
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True, mode=0o700, exist_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER_ONLY)


@contextmanager
def open_target(path: Path, kind: Kind) -> Iterator[Target]:
    """A target that gets its final name when all is written. Raises Conflict if that exists."""
    if path.exists():
        raise Conflict(f"{path} already exists; use another path, or remove it")
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
        _make_maildir(part)
    yield FolderTarget(part, is_maildir=kind == "maildir")


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


_AT_ONCE = 200


async def back_test(
    test: BackTest, mails: Iterable[SourceMail | Unreadable], parser: Parser, now: datetime
) -> list[Unreadable]:
    """Run the rules on each mail as if it had just arrived; returns what could not be read."""
    iterator, refused = iter(mails), list[Unreadable]()
    # `islice` and not `zip` with a range, which would consume one more than it returns.
    while batch := await in_thread(lambda: list(islice(iterator, _AT_ONCE))):
        refused += [mail for mail in batch if isinstance(mail, Unreadable)]
        found = [mail for mail in batch if isinstance(mail, SourceMail)]
        parsed = await parser.parse([mail.raw for mail in found])
        await in_thread(_test_batch, test, list(zip(found, parsed, strict=True)), now)
    return refused


def _test_batch(
    test: BackTest, pairs: list[tuple[SourceMail, ParsedMessage]], now: datetime
) -> None:
    for mail, parsed in pairs:
        date = effective_date(parsed.date, now)
        state = MessageState(flags=mail.flags, mailboxes=(mail.mailbox,))
        arriving = ArrivalFacts(mail.place, "", date, state, searchable(parsed))
        test.run_on(mail.place, facts_of(parsed, arriving), now)
