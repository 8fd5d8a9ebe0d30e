"""What happened by itself since the start, counted for whoever watches over us."""

from __future__ import annotations

from collections import Counter

COUNTED = {
    "smtp_connections": "Connections to the SMTP listener.",
    "smtp_accepted": "Mails acknowledged over SMTP.",
    "smtp_refused": "Mails refused over SMTP for good.",
    "smtp_failed": "Mails that could not be stored; their senders were told to try again.",
    "smtp_recipients_refused": "Recipients refused over SMTP.",
    "outbox_sent": "Recipients for whom the relay took a mail.",
    "outbox_deferred": "Attempts that the relay put off, by recipient.",
    "outbox_failed": "Recipients that the relay refused for good.",
    "outbox_unknown": "Recipients of whom nobody knows whether the relay took the mail.",
    "outbox_errors": "Mails that could not be handed over for a fault of our own.",
    "webhooks_told": "Events that a webhook took.",
    "webhooks_failed": "Attempts to tell a webhook that failed.",
}
"""Every counter there is, and what it counts."""


class Counts:
    """Counters by name; a name that is not in the table is a bug."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))

    def add(self, name: str, count: int = 1) -> None:
        if name not in COUNTED:
            raise KeyError(name)
        self._counted[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counted[name]
