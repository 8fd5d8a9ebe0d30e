"""The time of a plan with the search index, compared with checking every message in Python."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from bench.search import loading
from bench.search.corpus import Corpus, Mail
from postroom.blobs.files import FileBlobs
from postroom.calls.context import Cursors, RequestContext
from postroom.model.key import OWNER
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations import rules
from postroom.rules.parser import parse_rule
from postroom.rules.planning import PlanDraft
from tests.bare_services import NO_PROVIDERS

RULE = parse_rule("""
name: Supplier
when:
  - from: {equals: "@supplier.example"}
  - subject: {contains: ledger entry}
then: [{apply_label: Bookkeeping}, mark_read]
safety: {max_messages: 100000}
""")
ONE_IN = 100
ALLOWED = 1 / 10


class MarkedCorpus(Corpus):
    """One mail in a hundred matches the rule; others nearly match."""

    def mails(self, start: int, stop: int):
        for mail in super().mails(start, stop):
            yield marked(mail)


def marked(mail: Mail) -> Mail:
    kind = mail.number % ONE_IN
    if kind == 0:
        return replace(
            mail, from_address="ana@supplier.example", subject=f"{mail.subject} Ledger Entry"
        )
    if kind == 1:
        return replace(mail, subject=f"{mail.subject} ledger entry")
    return replace(mail, from_address="bo@supplier.example") if kind == 2 else mail


async def cpu_s(work: Callable[[], Awaitable[PlanDraft]]) -> tuple[PlanDraft, float]:
    """The result of the work, and its CPU time, threads included."""
    started = time.process_time()
    draft = await work()
    return draft, time.process_time() - started


async def measure(folder: Path, messages: int) -> bool:
    with patch.object(loading, "Corpus", MarkedCorpus):
        loaded = await loading.load(folder, messages)
    ctx = RequestContext(
        **NO_PROVIDERS,
        store=loaded.store,
        blobs=FileBlobs(folder / "blobs"),
        caller=OWNER,
        cursors=Cursors(b""),
        clock=lambda: datetime(2026, 6, 1, tzinfo=UTC),
    )

    def with_index() -> Awaitable[PlanDraft]:
        return rules.draft_plan(ctx, RULE, EVERYTHING)

    await cpu_s(with_index)
    draft, quick_s = min([await cpu_s(with_index) for _ in range(5)], key=lambda pair: pair[1])
    with patch.object(rules, "queries_for", lambda *_: (MessageQuery(visible=EVERYTHING),)):
        every, slow_s = await cpu_s(with_index)
    await loaded.store.close()
    assert draft.items == every.items, "both ways must find the same messages"
    print(f"{messages} messages, {draft.total} match")
    print(f"with the index:            {quick_s * 1000:8.1f} ms CPU")
    print(f"every message, in Python:  {slow_s * 1000:8.1f} ms CPU")
    print(f"share: {quick_s / slow_s:.3f} (allowed: {ALLOWED})")
    return quick_s <= slow_s * ALLOWED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--data", type=Path, help="a folder to keep the corpus in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        is_good = asyncio.run(measure(options.data or Path(folder), options.messages))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
