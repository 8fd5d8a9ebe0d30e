"""The composition root: the only place where the parts are put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import datetime

from postroom.config import ConfigError, Settings
from postroom.mail.authentication import Trust
from postroom.model.key import ALL_SCOPES, Caller, Key
from postroom.operations.context import Context
from postroom.operations.cursors import Cursors
from postroom.operations.keys import OWNER_KEY_ID, authenticate, hash_secret, new_secret
from postroom.operations.rates import Rates
from postroom.pipeline.house import House
from postroom.pipeline.parsing import Parser


@dataclass(frozen=True)
class App:
    """An open Postroom: the house, and how callers enter it."""

    settings: Settings
    house: House
    cursors: Cursors
    rates: Rates

    def context(self, caller: Caller) -> Context:
        """The house as this caller sees it."""
        parts = {f.name: getattr(self.house, f.name) for f in fields(self.house)}
        return Context(**parts, caller=caller, cursors=self.cursors, rates=self.rates)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Do what happens by itself for as long as the block lasts."""
        from postroom.pipeline.upkeep import chores, keep_up

        upkeep = asyncio.create_task(keep_up(chores(self.house)))
        try:
            yield
        finally:
            upkeep.cancel()
            await asyncio.gather(upkeep, return_exceptions=True)

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
        if await self.house.store.has_key(OWNER_KEY_ID):
            return None
        return await self.reset_owner_key()

    async def reset_owner_key(self) -> str:
        """Replace the owner's key and return the new one."""
        secret = new_secret()
        await self._keep_owner_key(secret)
        return secret

    async def _keep_owner_key(self, secret: str) -> None:
        now = self.house.clock().replace(microsecond=0)
        await self.house.store.add_key(_owner_key(now), hash_secret(secret))


def _owner_key(now: datetime) -> Key:
    return Key(OWNER_KEY_ID, "owner", tuple(sorted(ALL_SCOPES)), None, None, None, now, None)


def read_trust(settings: Settings) -> Trust:
    """Whom the settings trust. Raises ConfigError when the keys cannot be read."""
    servers = frozenset(settings.trusted_servers)
    if settings.dkim_keys is None:
        return Trust(servers)
    from postroom.mail.dkim_keys import read_keys

    try:
        return Trust(servers, read_keys(settings.dkim_keys.read_text("utf-8")))
    except (OSError, ValueError) as error:
        problem = {"field": "dkim_keys", "problem": f"{settings.dkim_keys}: {error}"}
        raise ConfigError(f"dkim_keys: {problem['problem']}", problems=[problem]) from error


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Open the store and the blobs that the settings name, and close them in the end."""
    from postroom.blobs.files import FileBlobs
    from postroom.store.sqlite import open_store

    trust = read_trust(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = await open_store(settings.data_dir / "postroom.db")
    parser = Parser(settings.limits)
    try:
        house = House(
            store=store,
            blobs=FileBlobs(settings.data_dir / "blobs"),
            limits=settings.limits,
            parser=parser,
            domains=settings.domains,
            trust=trust,
        )
        limits = settings.limits
        rates = Rates(per_second=limits.requests_per_second, burst=limits.requests_burst)
        yield App(settings, house, Cursors(await store.secret()), rates)
    finally:
        await parser.close()
        await store.close()
