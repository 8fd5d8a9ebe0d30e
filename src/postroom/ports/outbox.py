"""The door to mail that is not out yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.draft import StoredDraft
from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.outbox import (
    WAYS,
    Claimed,
    OutboxEntry,
    OutboxJob,
    OutboxQuery,
    OutboxState,
    Way,
)
from postroom.model.page import Found, Slice
from postroom.model.stored import NewMessage


class KeepsDrafts(Protocol):
    """Mail that is not sent yet."""

    async def save_draft(self, draft: StoredDraft) -> None:
        """Keep a draft: a new one, or the change of one that still is at its revision.

        Raises:
            NotFound: its inbox is gone, or it was sent or thrown away.
            Conflict: it was changed since it was read.
        """

    async def draft(self, draft_id: str, visible: Visible) -> StoredDraft | None:
        """A draft; one that was sent names the message that it has become."""

    async def drafts(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[StoredDraft]: ...
    async def remove_draft(self, draft_id: str, visible: Visible) -> bool: ...


class KeepsOutbox(Protocol):
    """Mail on its way out, handed over by one worker at a time."""

    async def claim_mail(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        free: Mapping[Way, int],
        most_per_domain: int,
        active: Sequence[OutboxJob] = (),
    ) -> Claimed:
        """Take what is due and keep what is *active*; what nobody hands over any more is lost.

        *free* says how many more the worker can take of each way; of others it gets none. Mail to a
        domain that has had its share of the hour waits for the next.
        """

    async def next_mail_at(self, ways: Collection[Way] = WAYS) -> datetime | None:
        """When there is something to do next for a worker that knows these ways."""

    async def renew_mail(self, jobs: Sequence[OutboxJob], until: datetime) -> None: ...
    async def begin_handing_over(self, job: OutboxJob, accepted: Sequence[str]) -> bool:
        """Write down that the mail itself goes out now; False if the claim was lost."""

    async def release_mail(self, job: OutboxJob, next_at: datetime | None = None) -> None:
        """Give a claim back before anything was handed over, as if it had not been taken."""

    async def leave_mail(
        self, job: OutboxJob, why: str, *, now: datetime, next_at: datetime
    ) -> Mapping[str, int]:
        """Give a claim back to those who have its login, and say so once that takes long.

        What nobody could take for 48 hours is given up: which messages, for how many recipients.
        """

    async def leave_unrelayed(self, why: str, now: datetime) -> Mapping[str, int]:
        """The same for mail that waits for the relay while nobody has one; nobody claims it."""

    async def settle_mail(
        self,
        job: OutboxJob,
        recipients: Mapping[str, Recipient],
        *,
        now: datetime,
        next_at: datetime,
    ) -> None:
        """Write down what became of each recipient; who is still queued waits until *next_at*."""

    async def deliver_scheduled(
        self,
        job: OutboxJob,
        copies: Sequence[NewMessage],
        recipients: Mapping[str, Recipient],
        now: datetime,
    ) -> bool:
        """Let the local copies of a scheduled mail arrive, and the rest wait for the relay.

        False if the claim was lost.
        """

    async def outbox(self, query: OutboxQuery) -> Found[OutboxEntry]: ...
    async def outbox_state(self) -> OutboxState: ...
    async def pause_outbox(self, *, paused: bool) -> OutboxState: ...
    async def retry_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Queue again whoever did not get a message. Raises NotFound, Conflict."""

    async def cancel_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Keep a message from those who have not got it. Raises NotFound, Conflict."""
