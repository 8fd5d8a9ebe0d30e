"""The services that requests and background tasks share, OAuth options, and heartbeats."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from postroom.errors import MailError, ProviderError
from postroom.mail.senders import Trust
from postroom.model.health import CheckResult
from postroom.model.key import ACCESS_LIFETIME_S, REFRESH_LIFETIME_S, OAuthClient
from postroom.model.limits import Limits
from postroom.model.mail.storage import Gate
from postroom.model.page import random_id
from postroom.model.values import dataclass
from postroom.pipeline.counters import CallCounts, Counts
from postroom.pipeline.event_watch import Watch
from postroom.pipeline.parse_worker import Parser, TextExtractor
from postroom.ports.blobs import BlobStore
from postroom.ports.imap import LiveImap
from postroom.ports.provider import Embedder, Fetcher, Inbound, Providers, WebhookClient
from postroom.store.transaction import Topic

if TYPE_CHECKING:
    from postroom.store.store import Store

_MAX_RECENT = 200
_RECENT_S = 300.0


class NoFetcher:
    """For an installation that fetches nothing."""

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        raise ProviderError("this process cannot download anything; use a server")


@dataclass(frozen=True, slots=True)
class RecentClients:
    """Clients by the URL of their metadata document, for a few minutes after it was read."""

    clock: Callable[[], float] = time.monotonic
    _read: OrderedDict[str, tuple[float, OAuthClient]] = field(default_factory=OrderedDict)

    def get(self, client_id: str) -> OAuthClient | None:
        at, client = self._read.get(client_id, (0.0, None))
        return client if self.clock() < at + _RECENT_S else None

    def put(self, client: OAuthClient) -> None:
        self._read[client.id] = self.clock(), client
        self._read.move_to_end(client.id)
        if len(self._read) > _MAX_RECENT:
            self._read.popitem(last=False)


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Whether clients may register, how long tokens last, and how documents are fetched."""

    registration: bool = True
    access_lifetime_s: int = ACCESS_LIFETIME_S
    refresh_lifetime_s: int = REFRESH_LIFETIME_S
    documents: Fetcher = field(default_factory=NoFetcher)
    recent: RecentClients = field(default_factory=RecentClients)


async def wait_for_notification(
    services: Services, topic: Topic, position: int, timeout_s: float
) -> int:
    """Wait for a notification of a topic, at most so long; returns the position after it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await services.store.notifier.wait(topic, position)
    return position


async def wait_for_work(
    services: Services,
    topic: Topic,
    position: int,
    tasks: Iterable[asyncio.Task[None]],
    timeout_s: float,
) -> None:
    """Wait for a notification of a topic or the end of one of the tasks, at most so long.

    Raises:
        CancelledError: the notifier was closed; to wait again would return at once.
    """
    notified = asyncio.ensure_future(services.store.notifier.wait(topic, position))
    try:
        await asyncio.wait(
            [notified, *tasks], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if notified.done():
            notified.result()
    finally:
        notified.cancel()


Checks = Callable[["Services"], Awaitable[Sequence[CheckResult]]]
"""Checks an installation as `postroom doctor` does."""


async def no_checks(_services: Services) -> Sequence[CheckResult]:
    """The default, where the settings are not known."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What `app` puts together; tests replace the clock and the ids.

    `cell_domains` are those of other cells, to whom mail goes directly. `rule_key` signs the mail
    that rules send. `lacks_model` says that there is no embedder because
    its packages are not installed.
    """

    store: Store
    blobs: BlobStore
    providers: Providers
    webhook_client: WebhookClient
    imap: LiveImap | None = None
    limits: Limits = field(default_factory=Limits)
    domains: tuple[str, ...] = ("postroom.localhost",)
    cell: str | None = None
    cell_domains: frozenset[str] = frozenset()
    trust: Trust = Trust()
    catch_all: str | None = None
    has_relay: bool = False
    embedder: Embedder | None = None
    lacks_model: bool = False
    memory_search: bool = True
    embedding_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    parser: Parser = field(default_factory=lambda: Parser(Limits()))
    text_extractor: TextExtractor = field(default_factory=TextExtractor)
    inbound: Mapping[str, Inbound] = field(default_factory=dict)
    gate: Gate = Gate()
    oauth: OAuthOptions = field(default_factory=OAuthOptions)
    rule_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    clock: Callable[[], datetime] = partial(datetime.now, UTC)
    new_id: Callable[[str], str] = random_id
    watch: Watch = field(default_factory=Watch)
    counts: Counts = field(default_factory=Counts)
    calls: CallCounts = field(default_factory=CallCounts)
    checks: Checks = no_checks
    data_dir: Path | None = None
    started_at: datetime = field(default_factory=partial(datetime.now, UTC))


log = logging.getLogger(__name__)

Role = Literal["serving", "relaying", "relay_only"]
"""A server or a worker; a process that has a relay; a process that only sends for the others."""

Coverage = Literal["all", "relay", "nothing"]
"""What a stdio server or a command does while it runs."""

LEASE = timedelta(seconds=30)
RENEW_S = 10.0

RELAY_REMEMBERED = timedelta(days=1)
"""How long a relay counts as present after its process stopped: it may restart."""

RELAY_SEEN = "relayed"
_RECENT = "lately"
"""Role and holder of the heartbeat that outlives such a process."""


@asynccontextmanager
async def heartbeat(services: Services, roles: Sequence[Role]) -> AsyncIterator[None]:
    """Announce the roles of this process until the block ends."""
    holder = services.new_id("proc")
    await _renew_heartbeats(services, roles, holder)
    renewing = asyncio.create_task(_renew(services, roles, holder))
    try:
        yield
    finally:
        renewing.cancel()
        for role in roles:
            with suppress(MailError):
                await services.store.end_heartbeat(role, holder)


async def _renew(services: Services, roles: Sequence[Role], holder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        await _renew_heartbeats(services, roles, holder)


async def _renew_heartbeats(services: Services, roles: Sequence[Role], holder: str) -> None:
    try:
        for role in roles:
            await services.store.add_heartbeat(role, holder, now=services.clock(), lifetime=LEASE)
        if not {"relaying", "relay_only"}.isdisjoint(roles):
            now = services.clock()
            await services.store.add_heartbeat(
                RELAY_SEEN, _RECENT, now=now, lifetime=RELAY_REMEMBERED
            )
    except MailError as error:
        log.warning("heartbeat.failed", extra={"error": str(error)})


async def run_when_unattended(
    services: Services,
    run_all: Callable[[], AbstractAsyncContextManager[None]],
    run_relay: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> None:
    """Run the pipeline while no server or worker does, or only our relay, until cancelled."""
    blocks = {"all": run_all, "relay": run_relay, "nothing": nullcontext}
    coverage = await _needed_coverage(services, before="all")
    while True:
        position = services.store.notifier.position("heartbeats")
        async with blocks[coverage]():
            while (next_coverage := await _needed_coverage(services, before=coverage)) == coverage:
                position = await wait_for_notification(services, "heartbeats", position, RENEW_S)
        coverage = next_coverage


async def _needed_coverage(services: Services, *, before: Coverage) -> Coverage:
    """Which background jobs no other process runs; *before* if the store is unavailable."""
    now = services.clock()
    try:
        if not await services.store.has_heartbeat("serving", now):
            return "all"
        if services.has_relay and not await services.store.has_heartbeat("relaying", now):
            return "relay"
    except MailError as error:
        log.warning("heartbeat.failed", extra={"error": str(error)})
        return before
    return "nothing"


async def check_ready(services: Services) -> None:
    """Check that database and blob store can be written. Raises MailError."""
    await services.store.ping()
    await services.blobs.check()
