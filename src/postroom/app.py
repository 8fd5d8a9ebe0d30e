"""The composition root: the only place where the parts are put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field, fields, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from postroom.admission.rate_limits import ConcurrencyLimit, FairQueue, RateLimits
from postroom.admission.spool import RequestBodies
from postroom.blocking import finish_threads
from postroom.calls.authentication import OWNER_KEY_ID, authenticate, hash_secret, new_secret
from postroom.calls.context import Cursors, RequestContext
from postroom.config import Settings
from postroom.errors import Conflict, StorageFull, Unavailable
from postroom.mail.senders import mark_key
from postroom.model.account import UNUSED_REDIRECT
from postroom.model.event import AuditRecord, Via
from postroom.model.health import CheckResult
from postroom.model.key import AGENT, ALL_SCOPES, OWNER, Caller, Key
from postroom.model.mail.approval import Policy
from postroom.model.mail.storage import Gate
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING
from postroom.pipeline.blobs import claim_blob_store, refuse_without_database
from postroom.pipeline.counters import CallCounts, Counts, SharedCounters
from postroom.pipeline.parse_worker import Parser
from postroom.pipeline.services import Services
from postroom.ports.blobs import BlobStore
from postroom.wiring import (
    is_new,
    lacks_model,
    make_cell_relays,
    make_embedder,
    make_inbound,
    make_live_imap,
    make_oauth,
    make_providers,
    make_sender,
    open_blobs,
    open_store,
    read_trust,
    synced_imap,
)

if TYPE_CHECKING:
    from postroom.pipeline.apply_rules import RuleJobs
    from postroom.pipeline.outbox import Outbox
    from postroom.store.store import Store

log = logging.getLogger(__name__)

_LEAVE_S = 15.0
"""How long a command waits for the relay before it leaves mail in the outbox."""

_LOOK_S = 5.0
_BACKGROUND_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class App:
    """An open installation, and the contexts of its callers."""

    settings: Settings
    services: Services
    cursors: Cursors
    rates: RateLimits
    request_bodies: RequestBodies
    concurrency_limit: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    fair_queue: FairQueue = field(default_factory=FairQueue)

    @property
    def agent(self) -> Caller:
        """The agent without a key, under the policy of the settings."""
        return replace(AGENT, policy=self.services.gate.agent)

    def context(self, caller: Caller, via: Via = "cli") -> RequestContext:
        """The services as this caller sees them, who asks by way of *via*."""
        parts = {f.name: getattr(self.services, f.name) for f in fields(self.services)}
        # The agent without a key sees what the owner sees: their cursors are the same.
        cursors = self.cursors.of(OWNER.key_id if caller.is_agent else caller.key_id)
        return RequestContext(
            **parts,
            caller=caller,
            via=via,
            cursors=cursors,
            rates=self.rates,
            fair_queue=self.fair_queue,
        )

    def begin_shutdown(self) -> None:
        """End waits for events and for the database, because the process is stopping."""
        self.services.watch.close()
        self.services.store.begin_shutdown()

    @asynccontextmanager
    async def background_jobs(self, *, serves: bool = True) -> AsyncIterator[None]:
        """Run background jobs for as long as the block lasts. A process that *serves* announces it,
        so that others do not run them.
        """
        from postroom.pipeline.services import Role, heartbeat

        roles: list[Role] = ["serving"] if serves else []
        roles += ["relaying"] if self.services.has_relay else []
        async with heartbeat(self.services, roles), self._run_background_jobs():
            yield

    @asynccontextmanager
    async def background_jobs_when_unattended(self) -> AsyncIterator[Callable[[], None]]:
        """Run background jobs in the block while no server or worker does.

        Those have the settings of the installation; a client may have started us with none. If we
        have a relay and none of them has, we hand over the mail that needs one. Jobs start when
        the block calls what it is given, at the latest after a second, so that a client's first
        request is answered first.
        """
        make_sender(self.settings)  # a wrong setting is reported at the start
        make_cell_relays(self.settings)
        begun = asyncio.Event()

        async def run() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(begun.wait(), _BACKGROUND_AFTER_S)
            from postroom.pipeline.services import run_when_unattended

            await run_when_unattended(
                self.services, lambda: self.background_jobs(serves=False), self._relay_only
            )

        async with _running(run()):
            yield begun.set

    @asynccontextmanager
    async def _relay_only(self) -> AsyncIterator[None]:
        from postroom.pipeline.services import heartbeat

        relays = self.outbox(only_relays=True).run()
        async with _running(relays), heartbeat(self.services, ["relay_only"]):
            yield

    @asynccontextmanager
    async def _run_background_jobs(self) -> AsyncIterator[None]:
        from postroom.pipeline.maintenance import background_tasks, run_maintenance
        from postroom.pipeline.sync import SyncScheduler
        from postroom.pipeline.webhooks import Webhooks

        async with _running(
            self._warn_without_index(),
            run_maintenance(background_tasks(self.services)),
            self.outbox().run(),
            Webhooks(self.services).run(),
            self.rule_jobs().run(),
            SyncScheduler(self.services).run(),
        ):
            yield

    async def _warn_without_index(self) -> None:
        from postroom.checks import check_index

        found = await check_index(self.services, self.settings)
        if found.fix:
            log.warning("search.no_index", extra={"detail": found.detail, "fix": found.fix})

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Deliver what is sent in the block before it ends, if the relay accepts it."""
        outbox = self.outbox()
        async with _running(outbox.run()):
            yield
            await outbox.finish(_LEAVE_S)

    def outbox(self, *, only_relays: bool = False) -> Outbox:
        """The outbox worker with the relay of the settings, and those of other cells."""
        from postroom.pipeline.outbox import Outbox
        from postroom.pipeline.routing import CellSenders

        cells = CellSenders(make_cell_relays(self.settings))
        return Outbox(
            self.services, make_sender(self.settings), cells=cells, only_relays=only_relays
        )

    def rule_jobs(self) -> RuleJobs:
        """The worker for forwards and replies of rules."""
        from postroom.pipeline.apply_rules import RuleJobs
        from postroom.sending.replies import caller_of, run_rule_job

        return RuleJobs(
            self.services, lambda e: run_rule_job(self.context(caller_of(e), "rule"), e)
        )

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
        from postroom.providers import oauth_client
        from postroom.providers.accounts import Accounts

        assert isinstance(self.services.providers, Accounts)
        client = self.services.providers.oauth_client(provider, scopes)
        if device:
            started = await oauth_client.start_device_sign_in(client)
            show(f"Open {started.url} and type {started.user_code}")
            return await oauth_client.finish_device_sign_in(client, started)
        if ask is None:
            return await oauth_client.sign_in_with_browser(client, lambda url: show(f"Open {url}"))
        pasted = oauth_client.start_sign_in(client, UNUSED_REDIRECT)
        show(f"Open {pasted.url}")
        code = oauth_client.code_of(pasted, ask())
        return await oauth_client.exchange(client, pasted, code)

    async def authenticate(self, secret: str | None, resource: str | None = None) -> Caller:
        """The caller with this key, or access token for the resource. Raises Unauthenticated."""
        return await authenticate(self.services, secret, resource)

    async def owner_key(self) -> str | None:
        """Make sure that an owner's key exists; return it if it was created now.

        `POSTROOM_API_KEY` is the owner's key if it is set.
        """
        if self.settings.api_key is not None:
            await self._keep_owner_key(self.settings.api_key)
            return None
        secret = new_secret(self.settings.cell)
        return secret if await self._keep_owner_key(secret, replaces=False) else None

    async def reset_owner_key(self) -> str:
        """Replace the owner's key and return the new one."""
        secret = new_secret(self.settings.cell)
        await self._keep_owner_key(secret)
        return secret

    async def _keep_owner_key(self, secret: str, *, replaces: bool = True) -> bool:
        now = self.services.clock().replace(microsecond=0)
        store = self.services.store.by(AuditRecord(OWNER_KEY_ID, "reset_key", now, via="cli"))
        key = Key(
            id=OWNER_KEY_ID,
            name="owner",
            scopes=tuple(sorted(ALL_SCOPES)),
            inboxes=EVERYTHING,
            namespaces=EVERYTHING,
            accounts=EVERYTHING,
            created_at=now,
            last_used_at=None,
        )
        return await store.add_key(key, hash_secret(secret), replaces=replaces)


@asynccontextmanager
async def _running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run tasks for as long as the block lasts."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse_without_database(settings: Settings, blobs: BlobStore) -> None:
    """Refuse a new database beside existing blobs. Raises Conflict."""
    try:
        if is_new(settings):
            await refuse_without_database(blobs)
    except Conflict:
        if is_new(settings):  # otherwise another process has just created the database
            raise


async def _if_it_answers(looking: Awaitable[None]) -> None:
    """Check which installation owns the blobs; a timeout is logged, and removal checks again."""
    try:
        async with asyncio.timeout(_LOOK_S):
            await looking
    except (OSError, StorageFull, Unavailable) as error:  # a timeout is an OSError, too
        log.warning("blobs.owner_check_failed", extra={"error": str(error) or "timed out"})


async def _check_all(settings: Settings, services: Services) -> Sequence[CheckResult]:
    """Check the installation as `postroom doctor` does."""
    from postroom.checks import check_all

    return await check_all(settings, services)


@asynccontextmanager
async def open_app(
    settings: Settings, counters: SharedCounters | None = None, *, uses_blobs: bool = True
) -> AsyncIterator[App]:
    """Open the store and the blobs of the settings, and close them at the end.

    Several processes of a server share *counters*. With *uses_blobs* false, the owner of the blobs
    is not checked.

    Raises:
        Conflict: they belong to another installation, or a migration is unfinished.
    """
    trust = read_trust(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    blobs = open_blobs(settings)
    if uses_blobs:
        await _if_it_answers(_refuse_without_database(settings, blobs))
    store = await open_store(settings)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(finish_threads)
        closing.push_async_callback(store.close)
        if uses_blobs:
            await _if_it_answers(claim_blob_store(store, blobs))
        secret, limits = await store.secret(), settings.limits
        services = replace(
            await _open_services(settings, store, blobs, closing),
            trust=trust,
            counts=Counts(counters),
            rule_key=mark_key(secret),
        )
        rates = RateLimits(per_second=limits.requests_per_second, burst=limits.requests_burst)
        yield App(settings, services, Cursors(secret), rates, RequestBodies(settings.data_dir))


async def _open_services(
    settings: Settings, store: Store, blobs: BlobStore, closing: AsyncExitStack
) -> Services:
    """The services of the settings; *closing* closes those that need it."""
    from postroom.providers.allowed_hosts import AddressGuard
    from postroom.providers.http_clients import HttpWebhookClient

    calls, parser = CallCounts(store.count_calls), Parser(settings.limits)
    closing.push_async_callback(calls.close)
    closing.push_async_callback(parser.close)
    if (embedder := make_embedder(settings)) is not None:
        closing.push_async_callback(embedder.close)
    providers = make_providers(settings)
    if (imap := make_live_imap(settings, await synced_imap(store, providers))) is not None:
        closing.push_async_callback(imap.close)
    return Services(
        store=store,
        blobs=blobs,
        imap=imap,
        limits=settings.limits,
        parser=parser,
        domains=settings.domains,
        cell=settings.cell,
        cell_domains=frozenset(domain for domain, _ in settings.cell_relays),
        catch_all=settings.catch_all,
        webhook_client=HttpWebhookClient(AddressGuard(settings.webhook_allow)),
        inbound=make_inbound(settings, store),
        has_relay=settings.relay_url is not None,
        embedder=embedder,
        lacks_model=lacks_model(settings),
        memory_search=settings.memory_search,
        providers=providers,
        calls=calls,
        checks=partial(_check_all, settings),
        data_dir=settings.data_dir,
        gate=Gate(
            Policy(settings.agent_approval),
            timedelta(seconds=settings.approval_expires_s),
            settings.approval_notify,
            f"{settings.server_url}/outgoing",
        ),
        oauth=make_oauth(settings),
    )
