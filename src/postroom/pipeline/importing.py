"""Mail from files into an inbox, in batches; running it again doubles nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, TooLarge, Unstorable
from postroom.model.inbox import SENT
from postroom.model.message import Direction
from postroom.model.stored import Added
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, check_size, receive_many
from postroom.pipeline.sources import SourceMail, Unreadable
from postroom.pipeline.upkeep import tidy_all, tidy_some

log = logging.getLogger(__name__)

BATCH_MAILS = 200
BATCH_BYTES = 8 * 1024 * 1024
MOST_PROBLEMS = 100
"""How many problems a tally tells one by one; the others are counted."""

Batch = list[SourceMail | Unreadable]


@dataclass(slots=True)
class ImportTally:
    """What became of the mail so far; when a number says `stored`, it is on disk."""

    read: int = 0
    stored: int = 0
    duplicates: int = 0
    refused: int = 0
    problems: list[Unreadable] = field(default_factory=list)

    def refuse(self, problem: Unreadable) -> None:
        """Count something that is no mail for us."""
        self.refused += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


async def import_mail(
    house: House,
    mails: Iterable[SourceMail | Unreadable],
    inbox_id: str,
    *,
    report: Callable[[ImportTally], None] = lambda _: None,
    batch_mails: int = BATCH_MAILS,
) -> ImportTally:
    """Take in all of the mail, in its order; *report* hears of each batch once it is on disk.

    The search index is kept in shape on the way, since no server need be running.

    Raises:
        NotFound: the inbox is gone.
        StorageFull: there is no space; what was reported is kept.
    """
    tally = ImportTally()
    iterator = iter(mails)
    while batch := await in_thread(_next_batch, iterator, batch_mails):
        good = list(_acceptable(house, batch, tally))
        for added in await _store(house, good, inbox_id, tally) if good else ():
            if added.is_duplicate:
                tally.duplicates += 1
            else:
                tally.stored += 1
        report(tally)
        await tidy_some(house)
    await tidy_all(house)
    return tally


def _next_batch(mails: Iterator[SourceMail | Unreadable], most: int) -> Batch:
    batch: Batch = []
    size = 0
    for mail in mails:
        batch.append(mail)
        size += len(mail.raw) if isinstance(mail, SourceMail) else 0
        if len(batch) >= most or size >= BATCH_BYTES:
            break
    return batch


def _acceptable(house: House, batch: Batch, tally: ImportTally) -> Iterator[SourceMail]:
    """Count what was read and put aside what is refused."""
    for mail in batch:
        tally.read += 1
        if isinstance(mail, Unreadable):
            tally.refuse(mail)
            continue
        try:
            check_size(mail.raw, house.limits.message_bytes)
        except (InvalidInput, TooLarge) as error:
            tally.refuse(Unreadable(mail.place, str(error)))
            continue
        yield mail


async def _store(
    house: House, mails: Sequence[SourceMail], inbox_id: str, tally: ImportTally
) -> list[Added]:
    """Store a batch; a mail that the database refuses is left out alone."""
    try:
        return await receive_many(house, [_arrival(mail, inbox_id) for mail in mails])
    except (InvalidInput, Unstorable) as error:
        if len(mails) > 1:
            return [one for mail in mails for one in await _store(house, [mail], inbox_id, tally)]
        log.warning("import.skipped", extra={"place": mails[0].place, "error": str(error)})
        tally.refuse(Unreadable(mails[0].place, str(error)))
        return []


def _arrival(mail: SourceMail, inbox_id: str) -> Arrival:
    direction: Direction = "outbound" if mail.mailbox == SENT else "inbound"
    return Arrival(mail.raw, inbox_id, mail.mailbox, direction, mail.flags, is_imported=True)
