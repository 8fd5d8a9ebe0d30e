"""What was done at the provider of an account, taken over here: one look at all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from postroom.errors import MailError
from postroom.model.account import Account
from postroom.model.inbox import TRASH
from postroom.model.remote import RemoteChanges, RemoteMessage, Unfetched
from postroom.pipeline.fetching import Aside, Fetched, fetch_batch, fetch_batches, look_at
from postroom.pipeline.house import House
from postroom.pipeline.keeping import Keeping, Mail
from postroom.pipeline.remote_names import storable
from postroom.pipeline.upkeep import tidy_some
from postroom.ports.provider import Provider

TIDIED_MAILS = 50
"""So many mails at once bring work for the index with them; nothing else waits for it."""


@dataclass(frozen=True, slots=True)
class Pulled:
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
class Pull:
    """Takes over what changed; *push* tells what was done here meanwhile."""

    house: House
    account: Account
    provider: Provider
    push: Callable[[], Awaitable[None]]

    @property
    def _keeping(self) -> Keeping:
        return Keeping(self.house, self.account)

    async def run(self, *, is_asked: bool) -> Pulled:
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

    async def _fetch_all(self, queue: asyncio.Queue[_Part | None], *, is_asked: bool) -> Pulled:
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
        return Pulled(is_whole=is_whole, has_pushed=has_pushed)

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
            there = await look_at(self.provider, ref)
            wanted = await self._unknown(storable(there or ()))
            if there is None:
                aside.put(ref, self.house.clock())
            elif not wanted:
                aside.drop([ref])
            if not wanted:
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
                self._keeping.skip(message, bytes=message.size_bytes)
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
                self._keeping.skip(message, error=why)
        has_changed = aside.drop(remote.ref for remote, _ in fetched.mails) or fetched.failed
        return _Part(fetched.mails, unfetched=tuple(aside.kept.values()) if has_changed else None)

    async def _store(self, part: _Part) -> None:
        if part.mails:
            await self._keeping.keep(part.mails)
        if part.unfetched is not None:
            await self.house.store.set_unfetched(self.account.id, part.unfetched)
        if part.changes is not None:
            await self.house.store.apply_changes(self.account.id, part.changes)
        if len(part.mails) >= TIDIED_MAILS:
            await tidy_some(self.house)
