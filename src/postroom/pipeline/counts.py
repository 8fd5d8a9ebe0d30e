"""What happened by itself since the start, counted for whoever watches over us."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from postroom.pipeline.tally import Tally

log = logging.getLogger(__name__)

HAPPENED = {
    "smtp_connections": "Connections to the SMTP listener.",
    "smtp_accepted": "Mails acknowledged over SMTP.",
    "smtp_refused": "Mails refused over SMTP for good.",
    "smtp_recipients_refused": "Recipients refused over SMTP.",
    "outbox_sent": "Recipients for whom the relay took a mail.",
    "outbox_deferred": "Attempts that the relay put off, by recipient.",
    "webhooks_told": "Events that a webhook took.",
}
"""What is as it should be."""

FAILED = {
    "smtp_failed": "Mails that could not be stored; their senders were told to try again.",
    "smtp_smuggled": "Mails refused for a bare newline, or for words before our answer.",
    "smtp_looping": "Mails refused because they had passed too many servers.",
    "smtp_limited": "Connections and mails put off because one address brought too many.",
    "parsing_failed": "Mails whose body could not be read within bounds; their bytes are kept.",
    "outbox_failed": "Recipients that the relay refused for good.",
    "outbox_unknown": "Recipients of whom nobody knows whether the relay took the mail.",
    "outbox_bounced": "Recipients given up after 48 hours.",
    "outbox_errors": "Mails that could not be handed over for a fault of our own.",
    "outbox_claims_lost": "Mails that another process took over because we seemed to be gone.",
    "outbox_unsettled": "Mails whose outcome could not be written down at once.",
    "sync_skipped": "Mails of accounts that could not be fetched or stored; ask their providers.",
    "sync_failed": "Times that an account could not be kept in step.",
    "pushes_refused": "Changes that were not made at a provider; what it has holds here again.",
    "webhooks_failed": "Attempts to tell a webhook that failed.",
    "webhooks_dead": "Events that a webhook was told of in vain for 24 hours.",
    "readiness_failed": "Times that we were not ready: nothing could be written.",
    "tools_failed": "Calls of MCP tools that failed for a fault of our own.",
}
"""What somebody should look at: each is counted and in the log, by the same call."""

COUNTED = HAPPENED | FAILED
"""Every counter there is, and what it counts."""

_BY_ITSELF = "by itself"


class Counts:
    """Counters by name; a name that is not in the table is a bug.

    With several processes, each adds to its own part of the tally, and asked it tells the sum.
    """

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()

    def add(self, name: str, count: int = 1) -> None:
        if name not in HAPPENED:
            raise KeyError(name)
        self.tally.own((_BY_ITSELF, name))[0] += count

    def failed(
        self,
        name: str,
        about: Mapping[str, object],
        *,
        count: int = 1,
        cause: Exception | None = None,
    ) -> None:
        """Count a failure, and write a line of it: `smtp_failed` is `smtp.failed` in the log.

        A cause is written with its traceback: it is a fault of our own.
        """
        if name not in FAILED:
            raise KeyError(name)
        self.tally.own((_BY_ITSELF, name))[0] += count
        level = logging.WARNING if cause is None else logging.ERROR
        log.log(level, name.replace("_", ".", 1), extra=about, exc_info=cause)

    def totals(self) -> dict[str, int]:
        """Every counter of the table."""
        found = self.tally.totals()
        return {name: sum(found.get((_BY_ITSELF, name), ())) for name in COUNTED}

    def __getitem__(self, name: str) -> int:
        return self.totals()[name]
