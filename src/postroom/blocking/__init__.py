"""The doors for work that blocks: a thread for what is ours, a process for what may go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking *work* in a thread, so that the event loop goes on."""
    return await asyncio.to_thread(work, *args, **kwargs)
