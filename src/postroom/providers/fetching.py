"""Several messages at once from providers that give out one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from postroom.model.remote import RemoteRef

AT_ONCE = 8


async def fetch_each(
    refs: Sequence[RemoteRef],
    fetch: Callable[[RemoteRef], Awaitable[bytes | None]],
    *,
    at_once: int = AT_ONCE,
) -> AsyncIterator[tuple[RemoteRef, bytes]]:
    """Fetch with a few requests under way, in order; what is gone is left out."""
    tasks: dict[int, asyncio.Task[bytes | None]] = {}
    try:
        for number, ref in enumerate(refs):
            for ahead in range(number, min(number + at_once, len(refs))):
                if ahead not in tasks:
                    tasks[ahead] = asyncio.ensure_future(_run(fetch, refs[ahead]))
            raw = await tasks[number]
            if raw is not None:
                yield ref, raw
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _run(
    fetch: Callable[[RemoteRef], Awaitable[bytes | None]], ref: RemoteRef
) -> bytes | None:
    return await fetch(ref)
