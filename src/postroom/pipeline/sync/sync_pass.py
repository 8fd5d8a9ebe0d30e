"""A sync pass: push local changes to an account, then pull remote changes."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import timedelta

from postroom.errors import MailError, ProviderAuthFailed, RateLimited, StorageFull, Unavailable
from postroom.mail.addresses import canonical_address
from postroom.mail.html.html import sanitise_html
from postroom.model.account import (
    Account,
    Identity,
    Push,
    Pushed,
    Refusal,
    RemoteIdentity,
)
from postroom.pipeline.blobs import discard_unused
from postroom.pipeline.services import Services
from postroom.pipeline.sync.pull import (
    AccountIngest,
    Pull,
    clean_name,
    fetch_batches,
    is_valid_identity,
    look_up,
)
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
            wait = timedelta(seconds=error.retry_after)
            await store.defer_push(push, self.services.clock() + wait)
            raise
        except (StorageFull, Unavailable):
            raise
        except MailError as error:
            if _is_final(push, error):
                await self._give_up(push, str(error))
                return
            wait = min(FIRST_WAIT * (1 << min(push.attempts, 12)), LONGEST_WAIT)
            await store.defer_push(push, self.services.clock() + wait)
            # A copy in Sent is saved later and delays nothing else.
            if push.kind != "save_sent" or isinstance(error, ProviderAuthFailed):
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
        remote = await look_up(self.provider, [ref for ref, _ in push.refs]) or ()
        refusal = Refusal(reason, self.services.clock(), remote)
        await self.services.store.abandon_push(self.account.id, push, refusal)
        if push.kind == "delete":
            async for fetched in fetch_batches(self.provider, remote):
                await AccountIngest(self.services, self.account).store(fetched.mails)


def _is_final(push: Push, error: MailError) -> bool:
    """Whether a change was refused, or failed for half a day.

    A failure of our own disk or vault is not a refusal.
    """
    if isinstance(error, ProviderAuthFailed):
        return False
    may_pass = error.retryable or error.code == MailError.code or push.kind == "save_sent"
    return not may_pass or push.attempts >= MAX_ATTEMPTS


SWEEP_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class SyncPass:
    """Syncs one account, with a provider that is logged in."""

    services: Services
    account: Account
    provider: Provider

    async def begin(self) -> None:
        """Log in, and store the capabilities and the identities of the account."""
        await self.provider.check()
        capabilities = asdict(self.provider.capabilities)
        await self.services.store.set_capabilities(self.account.id, capabilities)
        found = await self.provider.identities()
        identities = [self._identity(one) for one in found if is_valid_identity(one)]
        others = [one for one in identities if one.email != self.account.address]
        if found:
            await self.services.store.replace_identities(
                self.account.inbox_id, others, served=self.services.domains
            )

    def _identity(self, found: RemoteIdentity) -> Identity:
        return Identity(
            id=self.services.new_id("idn"),
            email=canonical_address(found.email),
            name=clean_name(found.name),
            signature=sanitise_html(found.signature),
            inbox_id=self.account.inbox_id,
            account_id=self.account.id,
            is_default=False,
        )

    async def run(self, *, is_requested: bool = False) -> bool:
        """Push, pull, remove messages that are gone, and push what rules did.

        Nothing is removed between a push and the next complete pull: some servers report the new
        place of a moved message only there. True if all of the account was read.
        """
        await self.push()
        pull = Pull(self.services, self.account, self.provider, self.push)
        pulled = await pull.run(is_requested=is_requested)
        if pulled.is_complete and not pulled.has_pushed:
            await self._remove_gone()
        await self.push()
        return pulled.is_complete

    async def push(self) -> None:
        """Make the changes at the provider that were made here."""
        await Pusher(self.services, self.account, self.provider).run()

    async def _remove_gone(self) -> None:
        while True:
            removed, unused = await self.services.store.remove_remotely_deleted(
                self.account.id, SWEEP_AT_ONCE
            )
            if unused:
                await discard_unused(self.services, unused)
            if not removed:
                return
