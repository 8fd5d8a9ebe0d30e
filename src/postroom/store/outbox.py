"""The part of the store that knows of mail that is not out yet; see `ports.outbox`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

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
from postroom.store.audited import Audited
from postroom.store.sql import (
    drafts,
    outbox,
    outbox_claims,
    outbox_listing,
    outbox_retries,
    outbox_settling,
    outbox_waiting,
)


class SqlOutbox(Audited):
    """Each method is one function of `store.sql`, run in one transaction."""

    async def save_draft(self, draft: StoredDraft) -> None:
        await self._write(lambda tx: drafts.save_draft(tx, draft), about=draft.id)

    async def draft(self, draft_id: str, visible: Visible) -> StoredDraft | None:
        return await self._engine.read(lambda tx: drafts.get_draft(tx, draft_id, visible))

    async def drafts(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[StoredDraft]:
        return await self._engine.read(lambda tx: drafts.list_drafts(tx, visible, inbox_id, page))

    async def remove_draft(self, draft_id: str, visible: Visible) -> bool:
        return await self._write(lambda tx: drafts.remove_draft(tx, draft_id, visible), is_act=bool)

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
        return await self._write(
            lambda tx: outbox_claims.claim_mail(
                tx,
                holder,
                now=now,
                until=until,
                free=free,
                most_per_domain=most_per_domain,
                active=active,
            )
        )

    async def next_mail_at(self, ways: Collection[Way] = WAYS) -> datetime | None:
        return await self._engine.read(lambda tx: outbox_claims.next_mail_at(tx, ways))

    async def renew_mail(self, jobs: Sequence[OutboxJob], until: datetime) -> None:
        await self._write(lambda tx: outbox_claims.renew_mail(tx, jobs, until))

    async def begin_handing_over(self, job: OutboxJob, accepted: Sequence[str]) -> bool:
        return await self._write(lambda tx: outbox_claims.begin_handing_over(tx, job, accepted))

    async def release_mail(self, job: OutboxJob, next_at: datetime | None = None) -> None:
        await self._write(lambda tx: outbox_claims.release_mail(tx, job, next_at))

    async def leave_mail(
        self, job: OutboxJob, why: str, *, now: datetime, next_at: datetime
    ) -> Mapping[str, int]:
        return await self._write(
            lambda tx: outbox_waiting.leave_mail(tx, job, why, now=now, next_at=next_at)
        )

    async def leave_unrelayed(self, why: str, now: datetime) -> Mapping[str, int]:
        return await self._write(lambda tx: outbox_waiting.leave_unrelayed(tx, why, now))

    async def settle_mail(
        self,
        job: OutboxJob,
        recipients: Mapping[str, Recipient],
        *,
        now: datetime,
        next_at: datetime,
    ) -> None:
        await self._write(
            lambda tx: outbox_settling.settle_mail(tx, job, recipients, now=now, next_at=next_at)
        )

    async def deliver_scheduled(
        self,
        job: OutboxJob,
        copies: Sequence[NewMessage],
        recipients: Mapping[str, Recipient],
        now: datetime,
    ) -> bool:
        return await self._write(
            lambda tx: outbox_settling.deliver_scheduled(tx, job, copies, recipients, now)
        )

    async def outbox(self, query: OutboxQuery) -> Found[OutboxEntry]:
        return await self._engine.read(lambda tx: outbox_listing.find_outbox(tx, query))

    async def outbox_state(self) -> OutboxState:
        return await self._engine.read(outbox.outbox_state)

    async def pause_outbox(self, *, paused: bool) -> OutboxState:
        return await self._write(lambda tx: outbox.pause_outbox(tx, paused=paused))

    async def retry_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        await self._write(lambda tx: outbox_retries.retry_mail(tx, message_id, visible, now))

    async def cancel_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        await self._write(lambda tx: outbox_retries.cancel_mail(tx, message_id, visible, now))
