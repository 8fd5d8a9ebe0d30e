"""Push: make the changes at the provider that were made here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.errors import MailError, ProviderAuthFailed, RateLimited, StorageFull, Unavailable
from postroom.model.account import Account, Push, Pushed, Refusal, RemoteMessage
from postroom.pipeline.services import Services
from postroom.pipeline.sync.fetch import AccountIngest, fetch_batches
from postroom.ports.provider import Provider

log = logging.getLogger(__name__)

PUSHES_AT_ONCE = 50
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(hours=1)
MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Pusher:
    """Pushes local changes to one account, with a provider that is logged in."""

    services: Services
    account: Account
    provider: Provider

    async def run(self) -> None:
        """Push all changes that are due, in their order."""
        store = self.services.store
        while pushes := await store.due_pushes(
            self.account.id, self.services.clock(), PUSHES_AT_ONCE
        ):
            for push in pushes:
                await self._push(push)

    async def _push(self, push: Push) -> None:
        store = self.services.store
        try:
            pushed = await self._push_to_provider(push)
        except RateLimited as error:
            await store.defer_push(push, self._later(timedelta(seconds=error.retry_after)))
            raise
        except (StorageFull, Unavailable):
            raise
        except MailError as error:
            if _is_final(push, error):
                await self._give_up(push, str(error))
                return
            wait = min(FIRST_WAIT * (1 << min(push.attempts, 12)), LONGEST_WAIT)
            await store.defer_push(push, self._later(wait))
            if not _is_copy(push, error):
                raise
            context = {"account": self.account.id, "message_id": push.message_id}
            log.warning("sync.copy_failed", extra={**context, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - one change must not stop the account
            await self._give_up(push, "internal error; see the log", error)
        else:
            await store.settle_push(self.account.id, push, pushed)

    async def _push_to_provider(self, push: Push) -> Pushed:
        if push.kind == "drop_draft":
            return await self.provider.push(push)
        if push.kind != "save_sent":
            return await self.provider.push(push) if push.refs else Pushed()
        if push.raw is None or push.refs:
            return Pushed()
        return await self.provider.save_sent(push, await self.services.blobs.read(push.raw))

    async def _give_up(self, push: Push, reason: str, cause: Exception | None = None) -> None:
        """Undo a change here that the provider refused."""
        context = {"account": self.account.id, "message_id": push.message_id, "error": reason}
        self.services.counts.failed("pushes_refused", context, cause=cause)
        remote = await self._look_up(push)
        refusal = Refusal(reason, self.services.clock(), remote)
        await self.services.store.abandon_push(self.account.id, push, refusal)
        if push.kind == "delete":
            async for fetched in fetch_batches(self.provider, remote):
                await AccountIngest(self.services, self.account).store(fetched.mails)

    async def _look_up(self, push: Push) -> tuple[RemoteMessage, ...]:
        """The state of the message at the provider, as far as the provider tells it."""
        try:
            return await self.provider.read_states([ref for ref, _ in push.refs])
        except MailError as error:
            if error.retryable or isinstance(error, ProviderAuthFailed):
                raise
            return ()

    def _later(self, wait: timedelta) -> datetime:
        return self.services.clock() + wait


def _is_final(push: Push, error: MailError) -> bool:
    """Whether a change was refused, or failed for half a day.

    A failure of our own disk or vault is not a refusal.
    """
    if isinstance(error, ProviderAuthFailed):
        return False
    may_pass = error.retryable or error.code == MailError.code or push.kind == "save_sent"
    return not may_pass or push.attempts >= MAX_ATTEMPTS


def _is_copy(push: Push, error: MailError) -> bool:
    """Whether only a copy in Sent is missing; it is saved later and delays nothing else."""
    return push.kind == "save_sent" and not isinstance(error, ProviderAuthFailed)
