"""The cost of importing a mailbox: mails per second of CPU time, by stage, and memory.

CPU time is that of all threads and child processes. The bar is 400 mails per second, with memory
that does not grow with the mailbox after the first segment of the search index, except for caches
of a fixed size.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import Settings
from postroom.model.key import OWNER
from postroom.operations.inboxes import create_inbox
from postroom.pipeline.transfer.import_export import ImportResult, import_mail
from postroom.pipeline.transfer.mail_files import SourceMail, Unreadable, open_source
from postroom.store.search.index import BULK_POLICY

LEAST_PER_S = 400
MAX_GROWTH_MB = 60
EARLY = 2 * BULK_POLICY.buffer_docs


@dataclass
class Measures:
    """CPU seconds of each stage, and memory at the beginning and at the end."""

    cpu_s: Counter[str] = field(default_factory=Counter)
    early_kb: int = 0

    def metered(self, part: Any, method: str, stage: str) -> Any:
        """The same object, with one method whose CPU time is counted; stages do not overlap."""
        return _Metered(part, method, self._timed(getattr(part, method), stage))

    def _timed(self, work: Callable[..., Awaitable[Any]], stage: str) -> Callable[..., Any]:
        async def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return await work(*args, **kwargs)
            finally:
                self.cpu_s[stage] += time.process_time() - start

        return timed

    def reading(
        self, mails: Iterator[SourceMail | Unreadable]
    ) -> Iterator[SourceMail | Unreadable]:
        """The same mails, with the time of reading each."""
        while True:
            start = time.thread_time()
            mail = next(mails, None)
            self.cpu_s["read"] += time.thread_time() - start
            if mail is None:
                return
            yield mail

    def report(self, outcome: ImportResult) -> None:
        if not self.early_kb and outcome.read >= EARLY:
            self.early_kb = peak_kb()


class _Metered:
    def __init__(self, part: Any, method: str, timed: Any) -> None:
        self._part = part
        setattr(self, method, timed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


async def run(path: Path, data: Path, measures: Measures) -> ImportResult:
    async with open_app(Settings(data_dir=data)) as app:
        inbox = await call(app.context(OWNER), create_inbox, {})
        services = replace(
            app.services,
            parser=measures.metered(app.services.parser, "parse", "parse"),
            blobs=measures.metered(app.services.blobs, "put", "blobs"),
            store=measures.metered(
                measures.metered(app.services.store, "add_messages", "store"),
                "compact_index",
                "index",
            ),
        )
        source = open_source(
            path, kind=None, mailbox="Inbox", max_bytes=app.settings.limits.message_bytes
        )
        mails = measures.reading(iter(source))
        return await import_mail(services, mails, inbox.id, report=measures.report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mbox", type=Path, help="an mbox, perhaps packed, or anything import takes")
    mbox: Path = parser.parse_args().mbox
    if not mbox.exists():
        parser.error(f"{mbox}: there is no such file; say make bench-import MBOX=some.mbox")
    measures = Measures()
    cpu_before, started = cpu_s(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(run(mbox, Path(folder) / "data", measures))
        took, wall_s = cpu_s() - cpu_before, time.monotonic() - started
    measures.cpu_s["other"] = took - sum(measures.cpu_s.values())
    return tell(mbox, outcome, measures, took, wall_s)


def tell(mbox: Path, outcome: ImportResult, measures: Measures, took: float, wall_s: float) -> int:
    rate = outcome.read / took
    early_mb, peak_mb = measures.early_kb // 1024, peak_kb() // 1024
    print(
        f"{mbox.name}: {outcome.read} mails, {outcome.stored} stored, "
        f"{outcome.duplicates} duplicates, "
        f"{outcome.refused} refused, in {wall_s:.1f} s"
    )
    print(f"CPU:    {took:.1f} s, {rate:.0f} mails/s (promised: {LEAST_PER_S})")
    for stage, seconds in measures.cpu_s.most_common():
        print(f"        {stage:6} {seconds:6.1f} s  {seconds / took:4.0%}")
    print(
        f"memory: {early_mb} MB at most after {EARLY} mails, {peak_mb} MB at the end "
        f"(allowed: {MAX_GROWTH_MB} MB more)"
    )
    is_flat = not early_mb or peak_mb - early_mb <= MAX_GROWTH_MB
    return 0 if rate >= LEAST_PER_S and is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
