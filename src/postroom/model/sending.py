"""What becomes of mail that is sent."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.model.message import Recipient

WORST_FIRST = (
    "failed",
    "unknown",
    "bounced",
    "queued",
    "scheduled",
    "captured",
    "sent",
    "delivered",
)

OPEN = ("queued", "scheduled")
"""Still on the way."""

AGAIN = ("failed", "unknown", "bounced", "captured", *OPEN)
"""Whom a mail may be sent to again."""

NOT_OUT = ("failed", "unknown", "bounced", *OPEN)
"""What somebody may want to look at."""

PAUSED = "the outbox is paused; it goes out once the outbox is resumed"
"""What is said of mail that is queued meanwhile."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer to every send. `status` is the worst of the recipients'."""

    message_id: str
    thread_id: str
    status: str
    recipients: tuple[Recipient, ...]
    deduplicated: bool | None = None
    warnings: tuple[str, ...] | None = None


def overall_status(recipients: tuple[Recipient, ...]) -> str:
    """Return the worst status among the recipients."""
    return min((r.status for r in recipients), key=WORST_FIRST.index)
