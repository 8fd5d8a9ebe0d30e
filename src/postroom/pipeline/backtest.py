"""Back-test: rules run on mail in files, without storing anything."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from postroom.blocking import in_thread
from postroom.mail.message import ParsedMessage
from postroom.model.rule import State
from postroom.pipeline.apply_rules import ArrivalFacts, facts_of
from postroom.pipeline.ingest import effective_date, searchable
from postroom.pipeline.parser import Parser
from postroom.pipeline.transfer.source_mail import SourceMail, Unreadable
from postroom.rules.backtest import BackTest

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
        state = State((), mail.flags, (mail.mailbox,))
        arriving = ArrivalFacts(mail.place, "", date, state, searchable(parsed))
        test.look_at(mail.place, facts_of(parsed, arriving), now)
