"""The context of a request: its caller and the services it may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.admission.rate_limits import FairQueue, RateLimits
from postroom.calls.cursors import Cursors
from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.model.view import Everything
from postroom.pipeline.services import Services

Report = Callable[[float, str], Awaitable[None]]
"""Reports progress to a waiting caller: seconds, and what is being done."""


async def _no_report(_seconds: float, _activity: str) -> None:
    """The default: no progress is reported."""


@dataclass(frozen=True, kw_only=True)
class RequestContext(Services):
    """The services, and the caller of a request."""

    caller: Caller
    cursors: Cursors
    rates: RateLimits | None = None
    fair_queue: FairQueue | None = None
    report: Report = _no_report

    @property
    def visible(self) -> Visible:
        """The inboxes that exist for this caller."""
        return self.caller.inboxes

    @property
    def is_limited(self) -> bool:
        """Whether the caller is limited to some inboxes."""
        return not isinstance(self.visible, Everything)
