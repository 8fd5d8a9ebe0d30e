"""Rules tried on mail in files: nothing is stored, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from postroom.blocking import in_thread
from postroom.mail.message import ParsedMessage
from postroom.model.facts import State
from postroom.pipeline.parsing import Parser
from postroom.pipeline.receive import effective_date, searchable
from postroom.pipeline.ruling import Arriving, facts_of
from postroom.pipeline.sources import SourceMail, Unreadable
from postroom.rules.backtest import BackTest

_AT_ONCE = 200


async def back_test(
    test: BackTest, mails: Iterable[SourceMail | Unreadable], parser: Parser, now: datetime
) -> list[Unreadable]:
    """Try the rules on each mail as if it had just arrived; what could not be read is returned."""
    iterator, refused = iter(mails), list[Unreadable]()
    while batch := await in_thread(_next_batch, iterator):
        refused += [mail for mail in batch if isinstance(mail, Unreadable)]
        found = [mail for mail in batch if isinstance(mail, SourceMail)]
        parsed = await parser.parse([mail.raw for mail in found])
        await in_thread(_look_at_all, test, list(zip(found, parsed, strict=True)), now)
    return refused


def _next_batch(mails: Iterable[SourceMail | Unreadable]) -> list[SourceMail | Unreadable]:
    return [mail for mail, _ in zip(mails, range(_AT_ONCE), strict=False)]


def _look_at_all(
    test: BackTest, pairs: list[tuple[SourceMail, ParsedMessage]], now: datetime
) -> None:
    for mail, parsed in pairs:
        date = effective_date(parsed.date, now)
        state = State((), mail.flags, (mail.mailbox,))
        arriving = Arriving(mail.place, "", date, state, searchable(parsed))
        test.look_at(mail.place, facts_of(parsed, arriving), now)
