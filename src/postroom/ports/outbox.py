"""The store of drafts and of the outbox."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.page import Found, Slice
from postroom.model.sending import (
    TRANSPORTS,
    Claimed,
    OutboxEntry,
    OutboxJob,
    OutboxQuery,
    OutboxState,
    StoredDraft,
    Transport,
)
from postroom.model.storage import NewMessage


class DraftStore(Protocol):
    """Drafts."""

    async def save_draft(self, draft: StoredDraft) -> None:
        """Add a draft, or change one that still has the same revision.

        Raises:
            NotFound: its inbox was removed, or it was sent or removed.
            Conflict: it was changed since it was read.
        """

    async def draft(self, draft_id: str, visible: Visible) -> StoredDraft | None:
        """A draft; if it was sent, with the id of the message."""

    async def drafts(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[StoredDraft]: ...
    async def remove_draft(self, draft_id: str, visible: Visible) -> bool: ...


class OutboxStore(Protocol):
    """Mail to be sent, each claimed by one worker at a time."""

    async def claim_mail(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        free: Mapping[Transport, int],
        max_per_domain: int,
        active: Sequence[OutboxJob] = (),
    ) -> Claimed:
        """Claim mail that is due, and renew the claims that are *active*.

        *free* is the number of mails that the worker can take for each way. Mail to a domain that
        has reached its limit for the hour is left for the next hour.
        """

    async def next_mail_at(self, transports: Collection[Transport] = TRANSPORTS) -> datetime | None:
        """When the next mail is due for a worker that can send in these ways."""

    async def renew_mail(self, jobs: Sequence[OutboxJob], until: datetime) -> None: ...
    async def begin_transmission(self, job: OutboxJob, accepted: Sequence[str]) -> bool:
        """Record that the content is being transmitted now; False if the claim was lost."""

    async def release_mail(self, job: OutboxJob, next_at: datetime | None = None) -> None:
        """Release a claim before anything was sent, as if it had not been made."""

    async def defer_mail(
        self, job: OutboxJob, why: str, *, now: datetime, next_at: datetime
    ) -> Mapping[str, int]:
        """Release a claim to workers that have the login, and report it if that takes long.

        Mail that no worker could send for 48 hours fails: returns the number of recipients by
        message id.
        """

    async def defer_unrelayed(self, why: str, now: datetime) -> Mapping[str, int]:
        """Like `defer_mail`, for mail that waits for a relay that no worker has."""

    async def settle_mail(
        self,
        job: OutboxJob,
        recipients: Mapping[str, Recipient],
        *,
        now: datetime,
        next_at: datetime,
    ) -> None:
        """Store the outcome of each recipient; those still queued are due at *next_at*."""

    async def deliver_scheduled(
        self,
        job: OutboxJob,
        copies: Sequence[NewMessage],
        recipients: Mapping[str, Recipient],
        now: datetime,
    ) -> bool:
        """Deliver the local copies of a scheduled mail, and queue the rest for the relay.

        False if the claim was lost.
        """

    async def outbox(self, query: OutboxQuery) -> Found[OutboxEntry]: ...
    async def outbox_state(self) -> OutboxState: ...
    async def pause_outbox(self, *, paused: bool) -> OutboxState: ...
    async def retry_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Queue the recipients that did not get a message again. Raises NotFound, Conflict."""

    async def cancel_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Stop sending a message to the remaining recipients. Raises NotFound, Conflict."""
