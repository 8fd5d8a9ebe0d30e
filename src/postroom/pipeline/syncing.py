"""Accounts are kept in step: each by one process at a time, and another takes over if it dies."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.blocking import in_thread
from postroom.errors import MailError, NotFound, ProviderAuthFailed, RateLimited, no_such
from postroom.model.account import Account
from postroom.model.page import Slice
from postroom.pipeline.house import House
from postroom.pipeline.sync import Pass
from postroom.ports.provider import Provider, WaitsForChanges

LEASE = timedelta(seconds=20)
RENEW_S = 5.0
LOOK_AGAIN_S = 60.0
BEGIN_AGAIN_S = 3_600.0
"""How often an account is asked again what it can do and whom it may send as."""

POLL_S = 30.0
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
NOBODY_S = 60.0
"""An account that nobody keeps in step for so long is one whose login nobody has."""

_MOST_ACCOUNTS = 1_000


def lease_of(account_id: str) -> str:
    """The name of the lease under which an account is kept in step."""
    return f"sync:{account_id}"


def how_to_sign_in(account: Account, said: str) -> str:
    """What to do about a login that does not work any more."""
    return f"{said}; run: postroom account login {account.id}"


@dataclass(eq=False)
class Syncing:
    """Keeps every account in step that nobody else does. `wait_s` is the first back-off."""

    house: House
    poll_s: float = POLL_S
    wait_s: float = FIRST_WAIT_S
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                rung = self.house.store.bell.rung("accounts")
                await self._look()
                await self._rings(rung, LOOK_AGAIN_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _rings(self, rung: int, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.house.store.bell.wait("accounts", rung)

    async def _look(self) -> None:
        """Begin with accounts that are new, end with those that were removed."""
        try:
            found = await self.house.store.accounts(None, Slice(limit=_MOST_ACCOUNTS))
        except MailError as error:
            self._failed({"account": "all"}, error)
            return
        wanted = {account.id for account in found.rows}
        for account_id in wanted - set(self._tasks):
            self._tasks[account_id] = asyncio.create_task(self._keep_in_step(account_id))
        for account_id in set(self._tasks) - wanted:
            self._tasks.pop(account_id).cancel()

    async def _keep_in_step(self, account_id: str) -> None:
        holder = self.house.new_id("proc")
        loop = asyncio.get_running_loop()
        failures, left_since = 0, math.inf
        while True:
            rung = self.house.store.bell.rung("accounts")
            wait_s = LEASE.total_seconds() / 2
            try:
                if not await in_thread(self.house.providers.has_secret, account_id):
                    left_since = await self._leave(account_id, holder, left_since)
                elif await self._claim(account_id, holder):
                    began = loop.time()
                    wait_s = await self._while_claimed(account_id, holder, failures)
                    failures = failures + 1 if loop.time() - began < LOOK_AGAIN_S else 0
            except NotFound:
                return
            except MailError as error:
                self._failed({"account": account_id}, error)
            if wait_s:
                await self._pause(account_id, rung, wait_s)

    async def _leave(self, account_id: str, holder: str, since: float) -> float:
        """Leave an account to those who have its login; since when none of them was seen."""
        store = self.house.store
        account = await store.account(account_id, None)
        if account is None:
            raise NotFound(no_such("account", account_id))
        is_told = account.state in ("failing", "needs_reauth")
        if is_told or not await self._claim(account_id, holder, lasting=timedelta()):
            return math.inf
        since = min(since, asyncio.get_running_loop().time())
        if asyncio.get_running_loop().time() - since >= NOBODY_S:
            said = f"{account_id}: no machine that is at work has a password or token for it"
            detail = how_to_sign_in(account, said)
            await store.set_account_state(account_id, "needs_reauth", detail)
        return since

    async def _pause(self, account_id: str, rung: int, wait_s: float) -> None:
        """Wait, but not if somebody asks for this account meanwhile."""
        before = await self._asked(account_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while await self._asked(account_id) == before:
                    rung = await self.house.store.bell.wait("accounts", rung)

    async def _asked(self, account_id: str) -> tuple[int, bool]:
        account = await self.house.store.account(account_id, None)
        is_new = account is not None and account.state == "new"
        return await self.house.store.asked_at(account_id), is_new

    async def _claim(self, account_id: str, holder: str, lasting: timedelta | None = None) -> bool:
        name, now = lease_of(account_id), self.house.clock()
        lasting = LEASE if lasting is None else lasting
        return await self.house.store.claim(name, holder, now=now, lasting=lasting)

    async def _while_claimed(self, account_id: str, holder: str, failures: int) -> float:
        """Keep an account in step until something goes wrong; how long to wait then."""
        work = asyncio.create_task(self._work(account_id, failures))
        renewing = asyncio.create_task(self._renew(account_id, holder, work))
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
                await self.house.store.release(lease_of(account_id), holder)

    async def _renew(self, account_id: str, holder: str, work: asyncio.Task[float]) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(MailError):
                if not await self._claim(account_id, holder):
                    work.cancel()
                    return

    async def _work(self, account_id: str, failures: int) -> float:
        store = self.house.store
        account = await store.account(account_id, None)
        if account is None:
            raise NotFound(no_such("account", account_id))
        backing_off = min(self.wait_s * (1 << min(failures, 12)), LONGEST_WAIT_S)
        try:
            async with self.house.providers.open(account) as provider:
                await self._stay(account, provider)
        except ProviderAuthFailed as error:
            self._failed({"account": account_id}, error)
            detail = how_to_sign_in(account, str(error))
            await store.set_account_state(account_id, "needs_reauth", detail)
            return LONGEST_WAIT_S
        except RateLimited as error:
            await store.set_account_state(account_id, "failing", str(error))
            return float(max(error.retry_after, 1))
        except MailError as error:
            self._failed({"account": account_id}, error)
            await store.set_account_state(account_id, "failing", str(error))
        except Exception as error:  # noqa: BLE001 - it is tried again, and the log says why
            self._failed({"account": account_id}, error)
            await store.set_account_state(account_id, "failing", "an error of ours; see the log")
        return backing_off

    def _failed(self, about: dict[str, object], error: Exception) -> None:
        """Count it, with a line in the log; what is no fault of ours needs no traceback."""
        is_known = isinstance(error, MailError)
        about |= {"error": str(error)} if is_known else {}
        self.house.counts.failed("sync_failed", about, cause=None if is_known else error)

    async def _stay(self, account: Account, provider: Provider) -> None:
        """Pass after pass, each as soon as there is news."""
        one = Pass(self.house, account, provider)
        if account.state != "ready":
            await self.house.store.set_account_state(account.id, "syncing")
        asked, begun = -1, -math.inf
        clock = asyncio.get_running_loop().time
        while True:
            before, asked = asked, await self.house.store.asked_at(account.id)
            if before != asked or clock() - begun >= BEGIN_AGAIN_S:
                await one.begin()
                begun = clock()
            listening = asyncio.create_task(self._listen(provider))
            try:
                await self._look_at(one, is_asked=before != asked)
                await self._push_until_news(one, listening, asked)
            finally:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    async def _look_at(self, one: Pass, *, is_asked: bool) -> None:
        """One pass; who asks wants all of it, not only what the provider has told of."""
        is_whole = await one.run(is_asked=is_asked)
        while is_asked and not is_whole:
            is_whole = await one.run()
        if is_whole:
            await self.house.store.set_account_state(
                one.account.id, "ready", synced_at=self.house.clock()
            )

    async def _listen(self, provider: Provider) -> None:
        """Return when the provider has news; one that cannot say so is asked now and then."""
        if isinstance(provider, WaitsForChanges):
            await provider.wait()
        else:
            await asyncio.sleep(self.poll_s)

    async def _push_until_news(self, one: Pass, listening: asyncio.Task[None], asked: int) -> None:
        """Tell the provider what is done here while we wait for what is done there."""
        store = self.house.store
        while not listening.done():
            rung = store.bell.rung("accounts")
            await one.push()
            if await store.asked_at(one.account.id) != asked:
                return
            bell = asyncio.ensure_future(store.bell.wait("accounts", rung))
            try:
                await asyncio.wait(
                    [bell, listening],
                    timeout=await self._until_next_push(one.account.id),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                bell.cancel()
        await listening

    async def _until_next_push(self, account_id: str) -> float:
        next_at = await self.house.store.next_push_at(account_id)
        if next_at is None:
            return LOOK_AGAIN_S
        ahead = (next_at - self.house.clock()).total_seconds()
        return min(max(ahead, 0.2), LOOK_AGAIN_S)


async def sync_once(house: House, account: Account) -> bool:
    """One pass now, in this process; False if another process keeps the account in step."""
    holder = house.new_id("proc")
    name = lease_of(account.id)
    if not await house.store.claim(name, holder, now=house.clock(), lasting=LEASE):
        return False
    renewing = asyncio.create_task(_renew_lease(house, name, holder))
    try:
        async with house.providers.open(account) as provider:
            one = Pass(house, account, provider)
            await one.begin()
            await one.run(is_asked=True)
        await house.store.set_account_state(account.id, "ready", synced_at=house.clock())
    except ProviderAuthFailed as error:
        if house.providers.has_secret(account.id):
            detail = how_to_sign_in(account, str(error))
            await house.store.set_account_state(account.id, "needs_reauth", detail)
        raise
    finally:
        renewing.cancel()
        await house.store.release(name, holder)
    return True


async def _renew_lease(house: House, name: str, holder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with suppress(MailError):
            await house.store.claim(name, holder, now=house.clock(), lasting=LEASE)
