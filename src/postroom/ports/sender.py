"""The door out: a relay that takes mail over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from postroom.model.outbox import Envelope, Outcome

Accepted = Callable[[Sequence[str]], Awaitable[None]]
"""Told which recipients are accepted, before the mail itself goes out: from then on, whatever
interrupts us leaves it unknown whether the relay has it."""


class Sender(Protocol):
    """Hands mail over, and never twice by itself."""

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        """Hand one mail over and say what became of each recipient; it does not raise."""

    async def close(self) -> None:
        """Say goodbye to the relay."""
