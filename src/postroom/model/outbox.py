"""Mail on its way out: what waits, what is handed over, what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from postroom.model.attachment import BlobKey
from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.page import Slice

Verdict = Literal["sent", "deferred", "failed", "unknown"]
Way = Literal["house", "relay", "account"]
WAYS: tuple[Way, ...] = ("house", "relay", "account")
"""Who does the next step: we, once the time of a mail has come; the relay; or the provider of the
account that it is from."""

GIVE_UP_AFTER = timedelta(hours=48)
"""So long after its first attempt, or since nobody was there for it, mail is not tried any more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a relay said about one recipient; it may want us to wait so long."""

    verdict: Verdict
    detail: str
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a relay is told beside the mail itself."""

    sender: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutboxJob:
    """A message that one worker hands over now, by the numbers of its inbox and its own.

    `tried_since` is when it was tried for the first time; before that, since when it waits for
    somebody who can.
    """

    inbox: int
    number: int
    message_id: str
    envelope: Envelope
    raw: BlobKey
    attempts: int
    queued_at: datetime
    is_scheduled: bool
    holder: str
    account_id: str | None = None
    tried_since: datetime | None = None

    @property
    def way(self) -> Way:
        if self.is_scheduled:
            return "house"
        return "relay" if self.account_id is None else "account"


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker has taken over.

    `lost` are the messages that a worker was handing over when it died, and how many recipients of
    each are unknown for it.
    """

    jobs: tuple[OutboxJob, ...]
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A sent message that is not out yet, or did not get out.

    One that `is_paused` waits, whatever its time, until the outbox is resumed.
    """

    message_id: str
    thread_id: str
    inbox_id: str
    subject: str
    status: str
    recipients: tuple[Recipient, ...]
    attempts: int
    queued_at: datetime
    next_attempt_at: datetime | None
    is_paused: bool


@dataclass(frozen=True, slots=True)
class OutboxState:
    """Whether the outbox hands mail over, and how much waits."""

    is_paused: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class OutboxQuery:
    """Which entries; no status means all that are not out."""

    visible: Visible = None
    status: str | None = None
    page: Slice = Slice()
