"""The door to whoever waits: a commit in any process wakes the others."""

from __future__ import annotations

from typing import Literal, Protocol

Topic = Literal["accounts", "events", "outbox", "webhooks", "errands", "keys", "attendance"]
"""What there may be news of."""


class Bell(Protocol):
    """Rings after a commit that announced a topic, in every process on the same data.

    To miss nothing: note `rung`, look, and only then wait for it to have rung again.
    """

    def rung(self, topic: Topic) -> int:
        """How often it has rung since this process began to listen; listens from now on."""

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return once it has rung more often than *seen*, with the new count."""
