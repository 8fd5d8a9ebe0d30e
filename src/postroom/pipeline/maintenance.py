"""Maintenance: background tasks that every server runs; leases keep two from doing the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import MailError
from postroom.model.activity import KEPT_DAYS
from postroom.pipeline.blobs import sweep_blobs
from postroom.pipeline.embedding import embed_pending, remove_vectors_of_other_models
from postroom.pipeline.services import Services

log = logging.getLogger(__name__)

SWEEP_EVERY = timedelta(hours=6)
SWEEP_FIRST = timedelta(minutes=10)
SWEEP_OLDER_THAN = timedelta(hours=24)
COMPACT_EVERY = timedelta(seconds=3)
EMBED_EVERY = timedelta(seconds=2)
CLEANUP_EVERY = timedelta(hours=1)
COMPACT_STEPS = 6
"""Steps after a batch of 200 mails; enough to keep up with them."""


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A task that runs periodically; `work` returns whether there is more to do at once."""

    name: str
    first: timedelta
    every: timedelta
    work: Callable[[], Awaitable[bool]]


def background_tasks(services: Services) -> tuple[BackgroundTask, ...]:
    """All tasks."""
    compact = services.store.compact_index
    return (
        BackgroundTask("compact", COMPACT_EVERY, COMPACT_EVERY, compact),
        # a second one, which indexes new mail while the first merges for a minute
        BackgroundTask("compact beside", COMPACT_EVERY, COMPACT_EVERY, compact),
        BackgroundTask("embed", EMBED_EVERY, EMBED_EVERY, lambda: embed_pending(services)),
        BackgroundTask(
            "vectors", EMBED_EVERY, CLEANUP_EVERY, lambda: remove_vectors_of_other_models(services)
        ),
        BackgroundTask(
            "leases", CLEANUP_EVERY, CLEANUP_EVERY, lambda: remove_expired_leases(services)
        ),
        BackgroundTask("counts", CLEANUP_EVERY, CLEANUP_EVERY, lambda: remove_old_counts(services)),
        BackgroundTask("sweep", SWEEP_FIRST, SWEEP_EVERY, lambda: sweep(services)),
    )


async def remove_expired_leases(services: Services) -> bool:
    """Remove expired leases; some are claimed only once."""
    await services.store.remove_expired_leases(services.clock())
    return False


async def remove_old_counts(services: Services) -> bool:
    """Remove the counts of days that nobody can ask for any more."""
    await services.store.remove_counts((services.clock() - timedelta(days=KEPT_DAYS)).date())
    return False


async def sweep(services: Services) -> bool:
    """Remove unused blobs, in one process at a time."""
    holder = services.new_id("proc")
    if await services.store.claim("sweep", holder, now=services.clock(), lasting=SWEEP_EVERY):
        removed = await sweep_blobs(services, older_than=SWEEP_OLDER_THAN)
        log.info("blobs.swept", extra={"removed": removed})
    return False


async def run_maintenance(background_tasks: Sequence[BackgroundTask]) -> None:
    """Run the tasks until cancelled; one that fails is logged and runs again."""
    async with asyncio.TaskGroup() as group:
        for task in background_tasks:
            group.create_task(_repeat(task))


async def _repeat(task: BackgroundTask) -> None:
    wait = task.first
    while True:
        await asyncio.sleep(wait.total_seconds())
        more = False
        try:
            more = await task.work()
        except MailError as error:
            log.warning("task.failed", extra={"task": task.name, "error": str(error)})
        except Exception:
            log.exception("task.failed", extra={"task": task.name})
        wait = timedelta(0) if more else task.every


async def compact_some(services: Services) -> None:
    """Compact the search index after a batch of mail, where perhaps no server runs."""
    for _ in range(COMPACT_STEPS):
        if not await services.store.compact_index():
            break


async def compact_all(services: Services) -> None:
    """Compact the search index until nothing is left to do."""
    while await services.store.compact_index():
        pass
