"""Sync of accounts: one process holds the lease of each, pushes local changes, then pulls."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from postroom.blocking import in_thread
from postroom.errors import (
    MailError,
    NotFound,
    ProviderAuthFailed,
    RateLimited,
    StorageFull,
    Unavailable,
    no_such,
)
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
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.blobs import discard_unused
from postroom.pipeline.pull import (
    AccountIngest,
    Pull,
    clean_name,
    fetch_batches,
    is_valid_identity,
    look_up,
)
from postroom.pipeline.services import Services, wait_for_notification, wait_for_work
from postroom.ports.provider import Provider, SupportsPush

log = logging.getLogger(__name__)

FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(hours=1)
MAX_ATTEMPTS = 20


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
        """Make the changes at the provider that were made here, in their order.

        They are read one by one, because a move changes the place of its message.
        """
        store, account_id = self.services.store, self.account.id
        while pushes := await store.due_pushes(account_id, self.services.clock(), 1):
            await self._push(pushes[0])

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

    async def _remove_gone(self) -> None:
        store, removed = self.services.store, 1
        while removed:
            removed, unused = await store.remove_remotely_deleted(self.account.id, SWEEP_AT_ONCE)
            if unused:
                await discard_unused(self.services, unused)


LEASE = timedelta(seconds=20)
RENEW_S = 5.0
MAX_WAIT_S = 60.0
RECHECK_S = 3_600.0
"""How often capabilities and identities of an account are read again."""

POLL_S = 30.0
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
UNATTENDED_S = 60.0
"""An account without a lease for this long has no process with its login."""

_MAX_ACCOUNTS = 1_000


def sync_lease(account_id: str) -> str:
    """The name of the lease for the sync of an account."""
    return f"sync:{account_id}"


def sign_in_advice(account: Account, problem: str) -> str:
    """What is wrong with the login of an account, and the command that replaces it."""
    return f"{problem}; run: postroom account login {account.id}"


@dataclass(eq=False)
class SyncScheduler:
    """Syncs every account that no other process syncs. `wait_s` is the first back-off."""

    services: Services
    poll_s: float = POLL_S
    wait_s: float = FIRST_WAIT_S
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                position = self.services.store.notifier.position("accounts")
                await self._update_tasks()
                await wait_for_notification(self.services, "accounts", position, MAX_WAIT_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _update_tasks(self) -> None:
        """Start tasks for new accounts, and end those of removed accounts."""
        try:
            found = await self.services.store.accounts(EVERYTHING, Slice(limit=_MAX_ACCOUNTS))
        except MailError as error:
            self._failed({"account": "all"}, error)
            return
        present = {account.id for account in found.rows}
        for account_id in present - set(self._tasks):
            self._tasks[account_id] = asyncio.create_task(self._sync_account(account_id))
        for account_id in set(self._tasks) - present:
            self._tasks.pop(account_id).cancel()

    async def _sync_account(self, account_id: str) -> None:
        holder = self.services.new_id("proc")
        loop = asyncio.get_running_loop()
        failures, left_since = 0, math.inf
        while True:
            position = self.services.store.notifier.position("accounts")
            wait_s = LEASE.total_seconds() / 2
            try:
                if not await in_thread(self.services.providers.has_secret, account_id):
                    left_since = await self._leave_to_others(account_id, holder, left_since)
                elif await _claim(self.services, account_id, holder):
                    began = loop.time()
                    wait_s = await self._run_with_lease(account_id, holder, failures)
                    failures = failures + 1 if loop.time() - began < MAX_WAIT_S else 0
            except NotFound:
                return
            except MailError as error:
                self._failed({"account": account_id}, error)
            if wait_s:
                await self._pause(account_id, position, wait_s)

    async def _leave_to_others(self, account_id: str, holder: str, since: float) -> float:
        """Leave an account to processes that have its login; since when no such process is seen."""
        store, account = self.services.store, await self._account(account_id)
        is_reported = account.state in ("failing", "needs_reauth")
        if is_reported or not await _claim(self.services, account_id, holder, timedelta()):
            return math.inf
        now = asyncio.get_running_loop().time()
        since = min(since, now)
        if now - since >= UNATTENDED_S:
            problem = f"{account_id}: no running process has a password or token for it"
            detail = sign_in_advice(account, problem)
            await store.set_account_state(account_id, "needs_reauth", detail)
        return since

    async def _account(self, account_id: str) -> Account:
        account = await self.services.store.account(account_id, EVERYTHING)
        if account is None:
            raise NotFound(no_such("account", account_id))
        return account

    async def _pause(self, account_id: str, position: int, wait_s: float) -> None:
        """Wait, or return earlier if a sync of this account is requested."""
        before = await self._request_state(account_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while await self._request_state(account_id) == before:
                    position = await self.services.store.notifier.wait("accounts", position)

    async def _request_state(self, account_id: str) -> tuple[int, bool]:
        account = await self.services.store.account(account_id, EVERYTHING)
        is_new = account is not None and account.state == "new"
        return await self.services.store.sync_requested_at(account_id), is_new

    async def _run_with_lease(self, account_id: str, holder: str, failures: int) -> float:
        """Sync an account until an error; how long to wait then."""
        work = asyncio.create_task(self._work(account_id, failures))
        renewing = asyncio.create_task(_renew(self.services, account_id, holder, work))
        try:
            return await work
        except asyncio.CancelledError:
            work.cancel()
            with suppress(asyncio.CancelledError, MailError):
                await work
            if not renewing.done():
                raise
            return RENEW_S
        finally:
            renewing.cancel()
            with suppress(MailError):
                await self.services.store.release(sync_lease(account_id), holder)

    async def _work(self, account_id: str, failures: int) -> float:
        store, account = self.services.store, await self._account(account_id)
        try:
            async with self.services.providers.open(account) as provider:
                await self._run_passes(account, provider)
        except ProviderAuthFailed as error:
            self._failed({"account": account_id}, error)
            detail = sign_in_advice(account, str(error))
            await store.set_account_state(account_id, "needs_reauth", detail)
            return LONGEST_WAIT_S
        except RateLimited as error:
            await store.set_account_state(account_id, "failing", str(error))
            return float(max(error.retry_after, 1))
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            self._failed({"account": account_id}, error)
            is_known = isinstance(error, MailError)
            detail = str(error) if is_known else "internal error; see the log"
            await store.set_account_state(account_id, "failing", detail)
        return min(self.wait_s * (1 << min(failures, 12)), LONGEST_WAIT_S)

    def _failed(self, context: dict[str, object], error: Exception) -> None:
        """Count and log a failure; known errors need no traceback."""
        is_known = isinstance(error, MailError)
        context |= {"error": str(error)} if is_known else {}
        self.services.counts.failed("sync_failed", context, cause=None if is_known else error)

    async def _run_passes(self, account: Account, provider: Provider) -> None:
        """Run one pass after the other, each as soon as something changed."""
        one = SyncPass(self.services, account, provider)
        if account.state != "ready":
            await self.services.store.set_account_state(account.id, "syncing")
        asked, begun = -1, -math.inf
        clock = asyncio.get_running_loop().time
        while True:
            before, asked = asked, await self.services.store.sync_requested_at(account.id)
            if before != asked or clock() - begun >= RECHECK_S:
                await one.begin()
                begun = clock()
            # A provider that does not report changes is polled.
            listening = asyncio.create_task(
                provider.wait()
                if isinstance(provider, SupportsPush)
                else asyncio.sleep(self.poll_s)
            )
            try:
                await self._run_pass(one, is_requested=before != asked)
                await self._push_until_changed(one, listening, asked)
            finally:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    async def _run_pass(self, one: SyncPass, *, is_requested: bool) -> None:
        """Run a pass; a requested sync reads all, not only what the provider reported."""
        is_complete = await one.run(is_requested=is_requested)
        while is_requested and not is_complete:
            is_complete = await one.run()
        if is_complete:
            await self.services.store.set_account_state(
                one.account.id, "ready", synced_at=self.services.clock()
            )

    async def _push_until_changed(
        self, one: SyncPass, listening: asyncio.Task[None], asked: int
    ) -> None:
        """Push local changes while we wait for remote changes."""
        store = self.services.store
        while not listening.done():
            position = store.notifier.position("accounts")
            await one.push()
            if await store.sync_requested_at(one.account.id) != asked:
                return
            next_at, wait_s = await store.next_push_at(one.account.id), MAX_WAIT_S
            if next_at is not None:
                wait_s = min(max((next_at - self.services.clock()).total_seconds(), 0.2), wait_s)
            await wait_for_work(self.services, "accounts", position, [listening], wait_s)
        await listening


async def sync_once(services: Services, account: Account) -> bool:
    """Run one pass in this process; False if another process holds the lease."""
    holder = services.new_id("proc")
    if not await _claim(services, account.id, holder):
        return False
    renewing = asyncio.create_task(_renew(services, account.id, holder, None))
    try:
        async with services.providers.open(account) as provider:
            one = SyncPass(services, account, provider)
            await one.begin()
            await one.run(is_requested=True)
        await services.store.set_account_state(account.id, "ready", synced_at=services.clock())
    except ProviderAuthFailed as error:
        if services.providers.has_secret(account.id):
            detail = sign_in_advice(account, str(error))
            await services.store.set_account_state(account.id, "needs_reauth", detail)
        raise
    finally:
        renewing.cancel()
        await services.store.release(sync_lease(account.id), holder)
    return True


async def _claim(
    services: Services, account_id: str, holder: str, lifetime: timedelta | None = None
) -> bool:
    name, lifetime = sync_lease(account_id), LEASE if lifetime is None else lifetime
    return await services.store.claim(name, holder, now=services.clock(), lifetime=lifetime)


async def _renew(
    services: Services, account_id: str, holder: str, work: asyncio.Task[float] | None
) -> None:
    """Renew the lease until cancelled; if it is lost, cancel *work*."""
    while True:
        await asyncio.sleep(RENEW_S)
        with suppress(MailError):
            if not await _claim(services, account_id, holder) and work is not None:
                work.cancel()
                return
