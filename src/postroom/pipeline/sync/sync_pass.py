"""A sync pass: push local changes to an account, then pull remote changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from postroom.mail.addresses import canonical_address
from postroom.mail.html.html import sanitise_html
from postroom.model.account import Account, Identity, RemoteIdentity
from postroom.pipeline.blobs import discard_unused
from postroom.pipeline.services import Services
from postroom.pipeline.sync.pull import Pull, Pulled, clean_name, is_valid_identity
from postroom.pipeline.sync.push import Pusher
from postroom.ports.provider import Provider

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
        pulled = await self.pull(is_requested=is_requested)
        if pulled.is_complete and not pulled.has_pushed:
            await self._remove_gone()
        await self.push()
        return pulled.is_complete

    async def push(self) -> None:
        """Make the changes at the provider that were made here."""
        await Pusher(self.services, self.account, self.provider).run()

    async def pull(self, *, is_requested: bool = False) -> Pulled:
        """Store the changes that were made at the provider."""
        pull = Pull(self.services, self.account, self.provider, self.push)
        return await pull.run(is_requested=is_requested)

    async def _remove_gone(self) -> None:
        while True:
            removed, unused = await self.services.store.remove_remotely_deleted(
                self.account.id, SWEEP_AT_ONCE
            )
            if unused:
                await discard_unused(self.services, unused)
            if not removed:
                return
