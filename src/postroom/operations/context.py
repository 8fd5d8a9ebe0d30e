"""Who asks, and what they need to be answered."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.operations.cursors import Cursors
from postroom.operations.rates import Rates
from postroom.pipeline.house import House


@dataclass(frozen=True, kw_only=True)
class Context(House):
    """The house as one caller sees it."""

    caller: Caller
    cursors: Cursors
    rates: Rates | None = None

    @property
    def visible(self) -> Visible:
        """The inboxes that exist for this caller."""
        return self.caller.inboxes
