"""Import of mail from files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, TooLarge, Unstorable
from postroom.model.inbox import SENT
from postroom.model.message import Direction
from postroom.model.storage import Added
from postroom.pipeline.ingest import Arrival, check_size, receive_many
from postroom.pipeline.maintenance import compact_all, compact_some
from postroom.pipeline.services import Services
from postroom.pipeline.transfer.mail_files import SourceMail, Unreadable

log = logging.getLogger(__name__)

BATCH_MAILS = 200
BATCH_BYTES = 8 * 1024 * 1024
MAX_PROBLEMS = 100
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
) -> ImportResult:
    """Store all mails in their order; *report* is called after each batch is on disk.

    It compacts the search index too, since perhaps no server is running.

    Raises:
        NotFound: the inbox was removed.
        StorageFull: the disk is full; what was reported is stored.
    """
    outcome = ImportResult()
    iterator = iter(mails)
    while batch := await in_thread(_next_batch, iterator, batch_mails):
        good = list(_acceptable(services, batch, outcome))
        for added in await _store(services, good, inbox_id, outcome) if good else ():
            if added.is_duplicate:
                outcome.duplicates += 1
            else:
                outcome.stored += 1
        report(outcome)
        await compact_some(services)
    await compact_all(services)
    return outcome


def _next_batch(mails: Iterator[SourceMail | Unreadable], max_mails: int) -> Batch:
    batch: Batch = []
    size = 0
    for mail in mails:
        batch.append(mail)
        size += len(mail.raw) if isinstance(mail, SourceMail) else 0
        if len(batch) >= max_mails or size >= BATCH_BYTES:
            break
    return batch


def _acceptable(services: Services, batch: Batch, outcome: ImportResult) -> Iterator[SourceMail]:
    """The mails of a valid size; the others are counted as refused."""
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
        yield mail


async def _store(
    services: Services, mails: Sequence[SourceMail], inbox_id: str, outcome: ImportResult
) -> list[Added]:
    """Store a batch; if the database refuses one mail, each is stored on its own."""
    try:
        return await receive_many(services, [_arrival(mail, inbox_id) for mail in mails])
    except (InvalidInput, Unstorable) as error:
        if len(mails) > 1:
            return [
                one for mail in mails for one in await _store(services, [mail], inbox_id, outcome)
            ]
        log.warning("import.skipped", extra={"place": mails[0].place, "error": str(error)})
        outcome.refuse(Unreadable(mails[0].place, str(error)))
        return []


def _arrival(mail: SourceMail, inbox_id: str) -> Arrival:
    direction: Direction = "outbound" if mail.mailbox == SENT else "inbound"
    return Arrival(mail.raw, inbox_id, mail.mailbox, direction, mail.flags, is_imported=True)
