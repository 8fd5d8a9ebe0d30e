"""Who asks, and what they need to be answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.operations.cursors import Cursors
from postroom.operations.rates import Rates
from postroom.operations.turns import Turns
from postroom.pipeline.house import House

Report = Callable[[float, str], Awaitable[None]]
"""Tells a caller who waits how far it is, in seconds, and what we are doing."""


async def _nobody_listens(_seconds: float, _doing: str) -> None:
    """What most callers want to hear."""


@dataclass(frozen=True, kw_only=True)
class Context(House):
    """The house as one caller sees it."""

    caller: Caller
    cursors: Cursors
    rates: Rates | None = None
    turns: Turns | None = None
    report: Report = _nobody_listens

    @property
    def visible(self) -> Visible:
        """The inboxes that exist for this caller."""
        return self.caller.inboxes
