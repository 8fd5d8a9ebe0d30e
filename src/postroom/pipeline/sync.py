"""One pass over an account: tell it what was done here, then take over what was done there."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from postroom.errors import (
    MailError,
    ProviderAuthFailed,
    RateLimited,
    StorageFull,
    Unavailable,
)
from postroom.mail.html import sanitise_html
from postroom.model.account import Account, Identity
from postroom.model.remote import (
    Push,
    Pushed,
    Refusal,
    RemoteIdentity,
    RemoteMessage,
)
from postroom.pipeline.discarding import discard_unused
from postroom.pipeline.fetching import fetch_batches
from postroom.pipeline.house import House
from postroom.pipeline.keeping import Keeping
from postroom.pipeline.pulling import Pull, Pulled
from postroom.pipeline.remote_names import is_identity, name_in
from postroom.ports.provider import Provider

log = logging.getLogger(__name__)

PUSHES_AT_ONCE = 50
SWEEP_AT_ONCE = 200

FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(hours=1)
MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Pass:
    """One look at an account, with a provider that is logged in."""

    house: House
    account: Account
    provider: Provider

    async def begin(self) -> None:
        """Log in, and write down what the account can do and whom it may send as."""
        await self.provider.check()
        capabilities = asdict(self.provider.capabilities)
        await self.house.store.set_capabilities(self.account.id, capabilities)
        found = await self.provider.identities()
        identities = [self._identity(one) for one in found if is_identity(one)]
        others = [one for one in identities if one.email != self.account.address]
        if found:
            await self.house.store.keep_identities(self.account.inbox_id, others)

    def _identity(self, found: RemoteIdentity) -> Identity:
        return Identity(
            id=self.house.new_id("idn"),
            email=found.email.lower(),
            name=name_in(found.name),
            signature=sanitise_html(found.signature),
            inbox_id=self.account.inbox_id,
            account_id=self.account.id,
            is_default=False,
        )

    async def run(self, *, is_asked: bool = False) -> bool:
        """Tell, take over, remove what is nowhere any more, and tell what rules did.

        Nothing is removed between a push and the next whole pull: a server that does not say where
        it has moved a message tells us there. True if all of the account was looked at.
        """
        await self.push()
        pulled = await self.pull(is_asked=is_asked)
        if pulled.is_whole and not pulled.has_pushed:
            await self._sweep()
        await self.push()
        return pulled.is_whole

    # What was done here.

    async def push(self) -> None:
        """Make the changes at the provider that were made here, in their order."""
        store = self.house.store
        while pushes := await store.due_pushes(self.account.id, self.house.clock(), PUSHES_AT_ONCE):
            for push in pushes:
                await self._push(push)

    async def _push(self, push: Push) -> None:
        store = self.house.store
        try:
            pushed = await self._told(push)
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
            about = {"account": self.account.id, "message_id": push.message_id}
            log.warning("sync.copy_failed", extra={**about, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - one change must not stop an account
            await self._give_up(push, "an error of ours; see the log", error)
        else:
            await store.settle_push(self.account.id, push, pushed)

    async def _give_up(self, push: Push, why: str, cause: Exception | None = None) -> None:
        """A change will not be made: what the provider has holds here again."""
        about = {"account": self.account.id, "message_id": push.message_id, "error": why}
        self.house.counts.failed("pushes_refused", about, cause=cause)
        there = await self._look(push)
        refusal = Refusal(why, self.house.clock(), there)
        await self.house.store.give_up_push(self.account.id, push, refusal)
        if push.kind == "delete":
            async for fetched in fetch_batches(self.provider, there):
                await Keeping(self.house, self.account).keep(fetched.mails)

    async def _look(self, push: Push) -> tuple[RemoteMessage, ...]:
        """How a message stands at the provider, as far as it says so."""
        try:
            return await self.provider.look([ref for ref, _ in push.refs])
        except MailError as error:
            if error.retryable or isinstance(error, ProviderAuthFailed):
                raise
            return ()

    def _later(self, wait: timedelta) -> datetime:
        return self.house.clock() + wait

    async def _told(self, push: Push) -> Pushed:
        if push.kind == "drop_draft":
            return await self.provider.push(push)
        if push.kind != "save_sent":
            return await self.provider.push(push) if push.refs else Pushed()
        if push.raw is None or push.refs:
            return Pushed()
        return await self.provider.save_sent(push, await self.house.blobs.read(push.raw))

    # What was done there.

    async def pull(self, *, is_asked: bool = False) -> Pulled:
        """Take over what changed."""
        return await Pull(self.house, self.account, self.provider, self.push).run(is_asked=is_asked)

    async def _sweep(self) -> None:
        while True:
            removed, unused = await self.house.store.sweep_gone(self.account.id, SWEEP_AT_ONCE)
            if unused:
                await discard_unused(self.house, unused)
            if not removed:
                return


def _is_final(push: Push, error: MailError) -> bool:
    """Whether a change will not be made, or could not be for half a day.

    A disk or a vault of ours that fails is no refusal of the provider's.
    """
    if isinstance(error, ProviderAuthFailed):
        return False
    may_pass = error.retryable or error.code == MailError.code or push.kind == "save_sent"
    return not may_pass or push.attempts >= MOST_ATTEMPTS


def _is_copy(push: Push, error: MailError) -> bool:
    """Whether only a copy in Sent is missing: it is made later, and all else goes on."""
    return push.kind == "save_sent" and not isinstance(error, ProviderAuthFailed)
