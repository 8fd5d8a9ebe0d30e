"""The notifier that announces what was written, and the client that calls webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from postroom.model.event import Posted

Topic = Literal["accounts", "events", "outbox", "webhooks", "rule_jobs", "keys", "heartbeats"]
"""What a commit can announce."""


class Notifier(Protocol):
    """Counts the commits that announced a topic, in every process on the same data.

    To miss nothing, read `position` first, then the data, and then wait for a higher position.
    """

    def position(self, topic: Topic) -> int:
        """The number of announcements since this process subscribed, which this call does."""

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return the new position once it is higher than *seen*."""


class WebhookClient(Protocol):
    """Posts to untrusted servers."""

    def check(self, url: str) -> None:
        """Raise InvalidInput if the URL is not permitted."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Post once; redirects are not followed. Does not raise."""


class NoWebhookClient:
    """For an installation without webhooks."""

    def check(self, url: str) -> None:
        """Permit every URL: none is called."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        return Posted(None, "webhooks are not available here")
