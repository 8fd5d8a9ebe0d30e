"""The composition root: the only place where the parts are put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING

from postroom.blocking import finish_threads
from postroom.config import Settings
from postroom.errors import Conflict, StorageFull, Unavailable
from postroom.model.audit import Deed
from postroom.model.key import ALL_SCOPES, Caller, Key
from postroom.operations.arrivals import Arrivals
from postroom.operations.context import Context
from postroom.operations.cursors import Cursors
from postroom.operations.keys import OWNER_KEY_ID, authenticate, hash_secret, new_secret
from postroom.operations.rates import Rates
from postroom.operations.room import Room
from postroom.operations.turns import Turns
from postroom.parts import (
    is_new,
    make_embedder,
    make_inbound,
    make_live_imap,
    make_providers,
    make_sender,
    open_blobs,
    open_store,
    read_trust,
    synced_imap,
)
from postroom.pipeline.counts import Counts
from postroom.pipeline.house import House
from postroom.pipeline.ownership import own_blobs, refuse_without_database
from postroom.pipeline.parsing import Parser
from postroom.pipeline.tally import Tally
from postroom.ports.blobs import BlobStore

if TYPE_CHECKING:
    from postroom.pipeline.errands import Errands
    from postroom.pipeline.outbox import Outbox

log = logging.getLogger(__name__)

_MOST_ACCOUNTS = 1_000
_LEAVE_S = 15.0
"""How long a command waits for the relay before it leaves the rest to a server."""

_LOOK_S = 5.0


@dataclass(frozen=True)
class App:
    """An open Postroom: the house, and how callers enter it."""

    settings: Settings
    house: House
    cursors: Cursors
    rates: Rates
    arrivals: Arrivals
    room: Room = field(default_factory=Room)
    turns: Turns = field(default_factory=Turns)

    def context(self, caller: Caller) -> Context:
        """The house as this caller sees it."""
        parts = {f.name: getattr(self.house, f.name) for f in fields(self.house)}
        return Context(
            **parts, caller=caller, cursors=self.cursors, rates=self.rates, turns=self.turns
        )

    def hurry(self) -> None:
        """Keep nobody any longer who waits for news, or for a database that is silent: we stop."""
        self.house.watch.close()
        self.house.store.hurry()

    @asynccontextmanager
    async def at_work(self, *, serves: bool = True) -> AsyncIterator[None]:
        """Do what happens by itself for as long as the block lasts.

        One that *serves* is there for the whole room; whoever only fills in leaves it the work.
        """
        from postroom.pipeline.attendance import Role, attending

        roles: list[Role] = ["serving"] if serves else []
        roles += ["relaying"] if self.house.has_relay else []
        async with attending(self.house, roles), self._working():
            yield

    @asynccontextmanager
    async def filling_in(self) -> AsyncIterator[None]:
        """Do what happens by itself in the block while no server or worker does.

        Those have the settings of the room; a client of ours may have started us with none. If we
        have a relay and none of them has, we hand over what needs one.
        """
        from postroom.pipeline.attendance import fill_in

        make_sender(self.settings)  # a wrong setting is told at the start, not when we fill in
        at_work, lending = (lambda: self.at_work(serves=False)), self._lending
        work = asyncio.create_task(fill_in(self.house, at_work, lending))
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    @asynccontextmanager
    async def _lending(self) -> AsyncIterator[None]:
        from postroom.pipeline.attendance import attending

        work = asyncio.create_task(self.outbox(only_relays=True).run())
        try:
            async with attending(self.house, ["lending"]):
                yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        from postroom.pipeline.syncing import Syncing
        from postroom.pipeline.upkeep import chores, keep_up
        from postroom.pipeline.webhooks import Webhooks

        work = [
            asyncio.create_task(keep_up(chores(self.house))),
            asyncio.create_task(self.outbox().run()),
            asyncio.create_task(Webhooks(self.house).run()),
            asyncio.create_task(self.errands().run()),
            asyncio.create_task(Syncing(self.house).run()),
        ]
        try:
            yield
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Hand over what is sent in the block before it ends, if anybody takes it."""
        outbox = self.outbox()
        work = asyncio.create_task(outbox.run())
        try:
            yield
            await outbox.finish(_LEAVE_S)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def outbox(self, *, only_relays: bool = False) -> Outbox:
        """A worker that hands mail over to the relay of the settings."""
        from postroom.pipeline.outbox import Outbox

        return Outbox(self.house, make_sender(self.settings), only_relays=only_relays)

    def errands(self) -> Errands:
        """A worker that does what rules want done outside the house."""
        from postroom.operations.errands import caller_of, perform_errand
        from postroom.pipeline.errands import Errands

        return Errands(self.house, lambda e: perform_errand(self.context(caller_of(e)), e))

    async def sign_in(
        self,
        provider: str,
        scopes: Iterable[str],
        *,
        show: Callable[[str], None],
        ask: Callable[[], str] | None = None,
        device: bool = False,
    ) -> Mapping[str, str]:
        """Let a person sign in to a provider: here, on another device, or by pasting."""
        from postroom.providers.accounts import Accounts
        from postroom.providers.oauth import signing_in

        assert isinstance(self.house.providers, Accounts)
        client = self.house.providers.oauth_client(provider, scopes)
        if device:
            visit = await signing_in.begin_device(client)
            show(f"Open {visit.url} and type {visit.user_code}")
            return await signing_in.finish_device(client, visit)
        if ask is None:
            return await signing_in.sign_in_here(client, lambda url: show(f"Open {url}"))
        pasted = signing_in.begin(client, signing_in.NOWHERE)
        show(f"Open {pasted.url}")
        code = signing_in.code_in(pasted, ask())
        return await signing_in.exchange(client, pasted, code)

    async def authenticate(self, secret: str | None) -> Caller:
        """Find out who bears this key. Raises Unauthenticated."""
        return await authenticate(self.house, secret)

    async def owner_key(self) -> str | None:
        """Make sure that there is an owner's key; return it if it was made just now.

        `POSTROOM_API_KEY` is the owner's key if it is set.
        """
        wanted = self.settings.api_key
        if wanted is not None:
            await self._keep_owner_key(wanted)
            return None
        secret = new_secret()
        is_ours = await self._keep_owner_key(secret, replaces=False)
        return secret if is_ours else None

    async def reset_owner_key(self) -> str:
        """Replace the owner's key and return the new one."""
        secret = new_secret()
        await self._keep_owner_key(secret)
        return secret

    async def _keep_owner_key(self, secret: str, *, replaces: bool = True) -> bool:
        now = self.house.clock().replace(microsecond=0)
        store = self.house.store.by(Deed(OWNER_KEY_ID, "reset_key", now))
        return await store.add_key(_owner_key(now), hash_secret(secret), replaces=replaces)


def _owner_key(now: datetime) -> Key:
    return Key(OWNER_KEY_ID, "owner", tuple(sorted(ALL_SCOPES)), None, None, None, now, None)


async def _refuse_without_database(settings: Settings, blobs: BlobStore) -> None:
    """Make no new house where there are blobs. Raises Conflict."""
    try:
        if is_new(settings):
            await refuse_without_database(blobs)
    except Conflict:
        if is_new(settings):  # otherwise another process has made this house just now
            raise


async def _if_it_answers(looking: Awaitable[None]) -> None:
    """Look whose the blobs are; if nobody answers now, whoever removes some asks again."""
    try:
        async with asyncio.timeout(_LOOK_S):
            await looking
    except (OSError, StorageFull, Unavailable) as error:  # a timeout is an OSError, too
        log.warning("blobs.unknown", extra={"error": str(error) or "this takes too long"})


@asynccontextmanager
async def open_app(
    settings: Settings, tally: Tally | None = None, *, uses_blobs: bool = True
) -> AsyncIterator[App]:
    """Open the store and the blobs that the settings name, and close them in the end.

    One of several processes has a part of their *tally*. Who does not *use* the blobs does not ask
    whose they are, either.

    Raises:
        Conflict: they are those of another house, or the database is half moved.
    """
    from postroom.providers.webhooks.guard import Guard
    from postroom.providers.webhooks.poster import HttpPoster

    trust = read_trust(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    blobs = open_blobs(settings)
    if uses_blobs:
        await _if_it_answers(_refuse_without_database(settings, blobs))
    store = await open_store(settings)
    parser = Parser(settings.limits)
    embedder = make_embedder(settings)
    providers = make_providers(settings)
    imap = None
    try:
        if uses_blobs:
            await _if_it_answers(own_blobs(store, blobs))
        imap = make_live_imap(settings, await synced_imap(store, providers))
        house = House(
            store=store,
            blobs=blobs,
            imap=imap,
            limits=settings.limits,
            parser=parser,
            domains=settings.domains,
            trust=trust,
            catch_all=settings.catch_all,
            poster=HttpPoster(Guard(settings.webhook_allow)),
            inbound=make_inbound(settings, store),
            has_relay=settings.relay_url is not None,
            embedder=embedder,
            memory_search=settings.memory_search,
            providers=providers,
            counts=Counts(tally),
        )
        limits = settings.limits
        rates = Rates(per_second=limits.requests_per_second, burst=limits.requests_burst)
        arrivals = Arrivals(settings.data_dir)
        yield App(settings, house, Cursors(await store.secret()), rates, arrivals)
    finally:
        if imap is not None:
            await imap.close()
        if embedder is not None:
            await embedder.close()
        await parser.close()
        await store.close()
        await finish_threads()
