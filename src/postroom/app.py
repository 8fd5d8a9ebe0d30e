"""The composition root: the only place where the parts are put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.blocking import in_thread
from postroom.config import ConfigError, Settings
from postroom.errors import InvalidInput
from postroom.mail.authentication import Trust
from postroom.model.audit import Deed
from postroom.model.key import ALL_SCOPES, Caller, Key
from postroom.model.page import Slice
from postroom.operations.context import Context
from postroom.operations.cursors import Cursors
from postroom.operations.keys import OWNER_KEY_ID, authenticate, hash_secret, new_secret
from postroom.operations.rates import Rates
from postroom.operations.room import Room
from postroom.operations.turns import Turns
from postroom.pipeline.house import House
from postroom.pipeline.parsing import Parser
from postroom.ports.blobs import BlobStore
from postroom.ports.embedder import Embedder
from postroom.ports.imap import LiveImap
from postroom.ports.inbound import Bucket, Fetcher, Inbound
from postroom.ports.sender import Sender
from postroom.ports.store import GrantsLeases, Store

if TYPE_CHECKING:
    from postroom.blobs.copying import Copied
    from postroom.model.imap import ImapAccount
    from postroom.pipeline.errands import Errands
    from postroom.pipeline.outbox import Outbox
    from postroom.providers.accounts import Accounts
    from postroom.store.store import ClosableEngine, SqlStore

_MOST_ACCOUNTS = 1_000
_LEAVE_S = 15.0
"""How long a command waits for the relay before it leaves the rest to a server."""


@dataclass(frozen=True)
class App:
    """An open Postroom: the house, and how callers enter it."""

    settings: Settings
    house: House
    cursors: Cursors
    rates: Rates
    room: Room = field(default_factory=Room)
    turns: Turns = field(default_factory=Turns)

    def context(self, caller: Caller) -> Context:
        """The house as this caller sees it."""
        parts = {f.name: getattr(self.house, f.name) for f in fields(self.house)}
        return Context(
            **parts, caller=caller, cursors=self.cursors, rates=self.rates, turns=self.turns
        )

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

        Those have the settings of the room; a client of ours may have started us with none.
        """
        from postroom.pipeline.attendance import fill_in

        make_sender(self.settings)  # a wrong setting is told at the start, not when we fill in
        work = asyncio.create_task(fill_in(self.house, lambda: self.at_work(serves=False)))
        try:
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

    def outbox(self) -> Outbox:
        """A worker that hands mail over to the relay of the settings."""
        from postroom.pipeline.outbox import Outbox

        return Outbox(self.house, make_sender(self.settings))

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


def _embedder(settings: Settings) -> Embedder | None:
    """What the settings choose; none of it is loaded before it is used."""
    if settings.embeddings == "none" or not settings.memory_search:
        return None
    from postroom.providers.embeddings.recent import RecentEmbedder

    if settings.embeddings == "bundled":
        from postroom.providers.embeddings.bundled import BundledEmbedder

        return RecentEmbedder(BundledEmbedder())
    from postroom.providers.embeddings.endpoint import EndpointEmbedder

    endpoint = EndpointEmbedder(
        settings.embeddings, settings.embeddings_model, settings.embeddings_key
    )
    return RecentEmbedder(endpoint)


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


def make_sender(settings: Settings) -> Sender | None:
    """The relay that the settings name. Raises ConfigError when its key cannot be read."""
    if settings.relay_url is None:
        return None
    from postroom.providers.smtp.relay import SmtpRelay
    from postroom.providers.smtp.signing import load_signer
    from postroom.providers.smtp.url import parse_relay_url

    return SmtpRelay(
        parse_relay_url(settings.relay_url),
        settings.domains[0],
        load_signer(settings.dkim_key, settings.dkim_selector, settings.domains),
    )


def make_inbound(settings: Settings, leases: GrantsLeases) -> dict[str, Inbound]:
    """The providers that may post mail to us. Raises InvalidInput for a key that is none."""
    from postroom.providers.inbound.mailgun import Mailgun
    from postroom.providers.inbound.postmark import Postmark
    from postroom.providers.inbound.resend import Resend

    window = timedelta(seconds=settings.inbound_window_s)
    found: dict[str, Inbound] = {}
    if settings.mailgun_signing_key is not None:
        found["mailgun"] = Mailgun(settings.mailgun_signing_key, window, leases)
    if settings.postmark_login is not None:
        found["postmark"] = Postmark(settings.postmark_login)
    if settings.resend_signing_secret is not None:
        if settings.resend_api_key is None:
            raise InvalidInput("POSTROOM_RESEND_API_KEY: is needed too; it fetches the mail")
        found["resend"] = Resend(
            settings.resend_signing_secret, settings.resend_api_key, window, _fetcher(settings)
        )
    if settings.sendgrid_public_key is not None:
        from postroom.providers.inbound.sendgrid import SendGrid, load_public_key

        found["sendgrid"] = SendGrid(load_public_key(settings.sendgrid_public_key), window)
    if settings.ses_topics:
        from postroom.providers.inbound.ses import Ses

        found["ses"] = Ses(settings.ses_topics, _fetcher(settings), _bucket(settings))
    return found


def _bucket(settings: Settings) -> Bucket | None:
    if settings.ses_bucket is None:
        return None
    from postroom.providers.inbound.bucket import MailBucket

    return MailBucket.named(settings.ses_bucket, settings.limits.message_bytes)


def _fetcher(settings: Settings) -> Fetcher:
    from postroom.providers.inbound.fetcher import HttpsFetcher
    from postroom.providers.webhooks.guard import Guard

    return HttpsFetcher(Guard(settings.webhook_allow), settings.limits.message_bytes)


def _live_imap(settings: Settings, synced: Iterable[ImapAccount]) -> LiveImap | None:
    """The live accounts, if there are any; connections are made when they are used.

    Raises:
        ConfigError: a name is in the settings and was added as an account, too.
    """
    live = settings.imap
    accounts = {account.account_id: account for account in live.accounts}
    for account in synced:
        if accounts.setdefault(account.account_id, account) is not account:
            raise ConfigError(
                f"MAIL_IMAP_{account.account_id.upper()}_HOST: there is an account of this name "
                "already; choose another, or remove that one: postroom account remove"
            )
    if not accounts:
        return None
    from postroom.providers.imap.provider import ImapAccounts

    return ImapAccounts(accounts.values(), live.timeouts, is_write_enabled=live.is_write_enabled)


async def _synced_imap(store: Store, providers: Accounts) -> list[ImapAccount]:
    """The accounts over IMAP that are kept in step; they are live as well."""
    found = await store.accounts(None, Slice(limit=_MOST_ACCOUNTS))
    live = (providers.live(account) for account in found.rows if account.provider == "imap")
    return [account for account in live if account is not None]


def make_providers(settings: Settings) -> Accounts:
    """What opens accounts, at the places that the settings name."""
    from postroom.providers.accounts import Accounts, Endpoints

    endpoints = Endpoints(
        gmail=settings.gmail_url,
        gmail_login=settings.gmail_login_url,
        gmail_token=settings.gmail_oauth_url,
        gmail_client_id=settings.gmail_client_id,
        gmail_client_secret=settings.gmail_client_secret,
        outlook=settings.outlook_url,
        outlook_login=settings.outlook_login_url,
        outlook_client_id=settings.outlook_client_id,
        fastmail=settings.fastmail_url,
    )
    return Accounts(
        settings.data_dir / "secrets", settings.secrets, endpoints, settings.limits.message_bytes
    )


async def open_store(settings: Settings) -> SqlStore:
    """The store that the settings name: a PostgreSQL database, or a file in the data folder."""
    if settings.database_url is not None:
        from postroom.store import postgres

        return await postgres.open_store(
            settings.database_url, settings.data_dir, settings.audit_key
        )
    from postroom.store import sqlite

    return await sqlite.open_store(settings.data_dir / "postroom.db", settings.audit_key)


def open_blobs(settings: Settings) -> BlobStore:
    """The blobs that the settings name: a bucket, or files in the data folder."""
    if settings.blobs_url is not None:
        from postroom.blobs.objects import ObjectBlobs

        return ObjectBlobs.at(settings.blobs_url, settings.blobs_public_url)
    from postroom.blobs.files import FileBlobs

    return FileBlobs(settings.data_dir / "blobs")


@dataclass(frozen=True, slots=True)
class Moved:
    """How much was moved or kept, what is wrong with the rest, and whose login stayed behind."""

    rows: int
    blobs: int
    problems: tuple[str, ...] = ()
    without_login: tuple[str, ...] = ()


async def move_house(
    source: Settings, target: Settings, tell: Callable[[str, int, float | None], None]
) -> Moved:
    """Copy all that one house has into another, which must be empty or half full of the same.

    Raises:
        Conflict: the target is in use, or somebody writes to the source meanwhile.
    """
    from postroom.store.moving import Move
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept

    target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with _bare_store(source) as old:
        await check_source(old.engine, source.data_dir, source.audit_key)
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        async with _bare_store(target) as new:
            move = Move(old.engine, new.engine)
            await move.check()
            await in_thread(seal.check, target.data_dir)
            await move.begin()
            await in_thread(seal.put_key, target.data_dir)
            rows, copied = await move.until_whole(
                partial(_copy_blobs, new, source, target, lambda count: tell("blobs", count, None)),
                lambda count, share: tell("rows", count, share),
            )
            await _take_logins(source, target, replaces=False)
            await in_thread(seal.put_mark, target.data_dir)
            await move.finish()
            lost = await _without_login(new, target)
    return Moved(rows, copied.count, tuple(copied.problems.values()), lost)


async def back_up(source: Settings, folder: Path, tell: Callable[[int], None]) -> Moved:
    """Write one moment of a house that may be in use into a folder; it is a data folder then.

    Raises:
        Conflict: the folder is that of another house, or in use.
    """
    from postroom.store.sqlite.backup import secret_of

    kept = replace(source, data_dir=folder, database_url=None, blobs_url=None)
    secret = await in_thread(secret_of, source.data_dir / "postroom.db")
    moved = await _copy_house(source, kept, tell, secret)
    async with _bare_store(kept) as store:
        await open_blobs(kept).sweep(store.used_blobs, older_than=timedelta(days=1))
    return moved


async def bring_back(kept: Path, target: Settings, tell: Callable[[int], None]) -> Moved:
    """Bring a backup back into a data folder without mail, and into the bucket of its blobs.

    Raises:
        Conflict: there is mail, or the log of some.
    """
    source = replace(target, data_dir=kept, database_url=None, blobs_url=None)
    moved = await _copy_house(source, target, tell)
    async with _bare_store(target) as store:
        return replace(moved, without_login=await _without_login(store, target))


async def _copy_house(
    source: Settings, target: Settings, tell: Callable[[int], None], replaced: bytes | None = None
) -> Moved:
    """Copy a database file with all that it needs; it appears in its place last.

    It may replace that of one house, if that is given. Until then nothing that was in the target
    is harmed, and it can be begun again. A blob that a removal takes away between the two copies
    belongs to no message of the next moment, so we take that one instead; one that is missing
    still is told.
    """
    from postroom.store.opening import check_source
    from postroom.store.seal import Kept
    from postroom.store.sqlite.backup import check_place, copy_database, put_in_place

    path, new = target.data_dir / "postroom.db", target.data_dir / ".new-postroom.db"
    if source.data_dir.resolve() == target.data_dir.resolve():
        raise InvalidInput("folder: that is the data folder itself; name another one")
    await in_thread(check_place, path, replaced)
    target.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    seen = frozenset[str]()
    while True:
        # The seal first: what is written meanwhile is more than it promises, never less.
        seal = await in_thread(Kept.of, source.data_dir, source.audit_key)
        await in_thread(seal.check, target.data_dir)
        await in_thread(copy_database, source.data_dir / "postroom.db", new)
        async with _bare_store(target, new) as store:
            await check_source(store.engine, source.data_dir, source.audit_key)
            copied = await _copy_blobs(store, source, target, tell)
            count = await store.count_messages()
        if copied.problems.keys() <= seen:
            break
        seen = frozenset(copied.problems)
    await _take_logins(source, target, replaces=replaced is not None)
    await in_thread(seal.put_key, target.data_dir)
    await in_thread(put_in_place, new, path)
    await in_thread(seal.put_mark, target.data_dir)
    return Moved(count, copied.count, tuple(copied.problems.values()))


async def _copy_blobs(
    store: SqlStore, source: Settings, target: Settings, tell: Callable[[int], None]
) -> Copied:
    """Copy the blobs that a store needs from one house to another."""
    from postroom.blobs.copying import copy_blobs

    return await copy_blobs(store.every_blob(), open_blobs(source), open_blobs(target), tell)


@asynccontextmanager
async def _bare_store(settings: Settings, path: Path | None = None) -> AsyncIterator[SqlStore]:
    """A store to read in, also if it is not whole; nothing can be sealed in it."""
    from postroom.store.seal import Seal
    from postroom.store.store import SqlStore

    engine: ClosableEngine
    if settings.database_url is not None:
        from postroom.store.postgres.engine import PostgresEngine

        engine = await in_thread(PostgresEngine.open, settings.database_url)
    else:
        from postroom.store.sqlite.engine import SqliteEngine

        engine = await in_thread(SqliteEngine.open, path or settings.data_dir / "postroom.db")
    try:
        yield SqlStore(engine, Seal(b""))
    finally:
        await engine.close()


async def _take_logins(source: Settings, target: Settings, *, replaces: bool) -> None:
    """Copy the encrypted files of passwords and tokens; those of a keyring stay in it."""
    from postroom.providers.vault.files import copy_vault

    await in_thread(
        copy_vault, source.data_dir / "secrets", target.data_dir / "secrets", replaces=replaces
    )


async def _without_login(store: SqlStore, settings: Settings) -> tuple[str, ...]:
    """The accounts whose password or token is not there."""
    found = await store.accounts(None, Slice(limit=_MOST_ACCOUNTS))
    providers = make_providers(settings)
    return await in_thread(providers.without_secret, [account.id for account in found.rows])


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Open the store and the blobs that the settings name, and close them in the end."""
    from postroom.providers.webhooks.guard import Guard
    from postroom.providers.webhooks.poster import HttpPoster

    trust = read_trust(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = await open_store(settings)
    parser = Parser(settings.limits)
    embedder = _embedder(settings)
    providers = make_providers(settings)
    imap = None
    try:
        imap = _live_imap(settings, await _synced_imap(store, providers))
        house = House(
            store=store,
            blobs=open_blobs(settings),
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
        )
        limits = settings.limits
        rates = Rates(per_second=limits.requests_per_second, burst=limits.requests_burst)
        yield App(settings, house, Cursors(await store.secret()), rates)
    finally:
        if imap is not None:
            await imap.close()
        if embedder is not None:
            await embedder.close()
        await parser.close()
        await store.close()
