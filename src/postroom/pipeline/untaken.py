"""Mail that waits for somebody with the relay, or with the login of its account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import MailError
from postroom.model.outbox import OutboxJob
from postroom.pipeline.attendance import is_without_relay
from postroom.pipeline.house import House

log = logging.getLogger(__name__)

LEAVE_FOR = timedelta(seconds=10)
"""How soon a mail is looked at again that a machine without the login for it came upon."""

LOOK_AGAIN_S = 60.0
NO_RELAY = "no process at work has the relay; start one with POSTROOM_RELAY_URL, or cancel the mail"
NO_LOGIN = (
    "no machine that is at work has a password or token for {0}; run: postroom account login {0}"
)


@dataclass(eq=False)
class Untaken:
    """Says of mail that nobody takes why it waits, and gives it up after 48 hours.

    Each method tells what was given up: which messages, for how many recipients.
    """

    house: House
    _next_look: float = 0.0

    async def leave(self, job: OutboxJob) -> Mapping[str, int]:
        """Leave a mail to those who have the login of its account."""
        now, why = self.house.clock(), NO_LOGIN.format(job.account_id)
        return await self.house.store.leave_mail(job, why, now=now, next_at=now + LEAVE_FOR)

    async def look(self) -> Mapping[str, int]:
        """Now and then, look after what waits for the relay while nobody has one."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look:
            return {}
        self._next_look = now + LOOK_AGAIN_S
        try:
            if await is_without_relay(self.house):
                return await self.house.store.leave_unrelayed(NO_RELAY, self.house.clock())
        except MailError as error:
            log.warning("outbox.failed", extra={"error": str(error)})
        return {}
