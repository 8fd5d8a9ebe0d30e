"""One pass over an account: tell it what was done here, then take over what was done there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
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
from postroom.model.inbox import TRASH
from postroom.model.remote import (
    Push,
    Pushed,
    Refusal,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    Unfetched,
)
from postroom.pipeline.discarding import discard_unused
from postroom.pipeline.arriving import Arriving, Mail
from postroom.pipeline.fetching import Aside, Fetched, fetch_batch, fetch_batches
from postroom.pipeline.house import House
from postroom.pipeline.remote_names import is_identity, name_in, storable
from postroom.ports.provider import Provider

log = logging.getLogger(__name__)

PUSHES_AT_ONCE = 50
SWEEP_AT_ONCE = 200
TIDIED_MAILS = 50
"""So many mails at once bring work for the index with them; nothing else waits for it."""

FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(hours=1)
MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Stored:
    """What we hold of an account: the view that a provider gets of it."""

    house: House
    account_id: str

    async def scopes(self) -> frozenset[str]:
        return await self.house.store.remote_scopes(self.account_id)

    async def keys(self, scope: str) -> frozenset[str]:
        return await self.house.store.remote_keys(self.account_id, scope)

    async def labels(self) -> frozenset[str]:
        return await self.house.store.remote_labels(self.account_id)


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
                await self._arriving.keep(fetched.mails)

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

    @property
    def _arriving(self) -> Arriving:
        return Arriving(self.house, self.account)

    async def pull(self, *, is_asked: bool = False) -> _Pulled:
        """Take over what changed; mail is fetched while the mail before it is stored."""
        queue: asyncio.Queue[_Part | None] = asyncio.Queue(maxsize=2)
        fetching = asyncio.create_task(self._fetch_all(queue, is_asked=is_asked))
        try:
            while (part := await queue.get()) is not None:
                await self._store(part)
                queue.task_done()
            return await fetching
        finally:
            fetching.cancel()
            with suppress(asyncio.CancelledError, MailError):
                await fetching

    async def _fetch_all(self, queue: asyncio.Queue[_Part | None], *, is_asked: bool) -> _Pulled:
        has_pushed, is_whole = False, True
        store, account_id = self.house.store, self.account.id
        since = await store.checkpoint_of(account_id)
        aside = Aside({one.ref: one for one in await store.unfetched(account_id)})
        known = Stored(self.house, account_id)
        try:
            async for part in self._fetch_again(aside, is_asked=is_asked):
                await queue.put(part)
            async with aclosing(self.provider.changes(since, known)) as parts:
                async for changes in parts:
                    async for part in self._fetch(changes, aside):
                        await queue.put(part)
                    is_whole &= not changes.is_partial
                    has_pushed |= await self._push_between(queue)
        except Exception:
            await queue.put(None)
            raise
        await queue.put(None)
        return _Pulled(is_whole=is_whole, has_pushed=has_pushed)

    async def _push_between(self, queue: asyncio.Queue[_Part | None]) -> bool:
        """Tell what was done here during a long pass; what was read before that is stored first."""
        if not await self.house.store.due_pushes(self.account.id, self.house.clock(), 1):
            return False
        await queue.join()
        await self.push()
        return True

    async def _fetch_again(self, aside: Aside, *, is_asked: bool) -> AsyncIterator[_Part]:
        """What the provider did not give out before; who asks wants all of it tried."""
        for ref in aside.due(None if is_asked else self.house.clock()):
            there = storable(await self.provider.look([ref]))
            wanted = await self._unknown(there)
            if not wanted:
                aside.drop([ref])
                yield _Part(unfetched=tuple(aside.kept.values()))
            for message in wanted:
                yield self._part(await fetch_batch(self.provider, [message]), aside)

    async def _fetch(self, changes: RemoteChanges, aside: Aside) -> AsyncIterator[_Part]:
        changes = replace(changes, messages=storable(changes.messages))
        unknown = await self._unknown(changes.messages)
        refs = {message.ref for message in unknown}
        most = self.house.limits.message_bytes
        for message in unknown:
            if message.size_bytes > most:
                self._arriving.skip(message, bytes=message.size_bytes)
        wanted = [m for m in unknown if m.size_bytes <= most and m.ref not in aside.kept]
        async for fetched in fetch_batches(self.provider, wanted):
            yield self._part(fetched, aside)
        known = tuple(message for message in changes.messages if message.ref not in refs)
        left = tuple(aside.kept.values()) if aside.drop_gone(changes) else None
        yield _Part(changes=replace(changes, messages=known), unfetched=left)

    async def _unknown(self, found: Sequence[RemoteMessage]) -> list[RemoteMessage]:
        """Those that we know nothing of, or let go to Trash and find back."""
        if not found:
            return []
        refs = [message.ref for message in found]
        back = [message.ref for message in found if TRASH not in message.mailboxes]
        store = self.house.store
        unknown = await store.unknown_refs(self.account.id, refs, untrashed=back)
        return [message for message in found if message.ref in unknown]

    def _part(self, fetched: Fetched, aside: Aside) -> _Part:
        """What was fetched; what the provider has and did not give out is put aside."""
        for message, why in fetched.failed:
            if aside.put(message.ref, self.house.clock()):
                self._arriving.skip(message, error=why)
        has_changed = aside.drop(remote.ref for remote, _ in fetched.mails) or fetched.failed
        return _Part(fetched.mails, unfetched=tuple(aside.kept.values()) if has_changed else None)

    async def _store(self, part: _Part) -> None:
        if part.mails:
            await self._arriving.keep(part.mails)
        if part.unfetched is not None:
            await self.house.store.set_unfetched(self.account.id, part.unfetched)
        if part.changes is not None:
            await self.house.store.apply_changes(self.account.id, part.changes)
        if len(part.mails) >= TIDIED_MAILS:
            await self.house.store.tidy()

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


@dataclass(frozen=True, slots=True)
class _Pulled:
    """What a pull came to: whether all was looked at, and whether we have told something."""

    is_whole: bool
    has_pushed: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """Something to store: mail, or changes with the checkpoint that follows all mail before it.

    `unfetched` is all that the provider did not give out, where that has changed.
    """

    mails: tuple[Mail, ...] = ()
    changes: RemoteChanges | None = None
    unfetched: tuple[Unfetched, ...] | None = None
