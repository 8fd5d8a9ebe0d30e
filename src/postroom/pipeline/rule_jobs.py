"""Rule jobs: forwards and replies of rules, run with the rights of the key of the rule."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import Conflict, Forbidden, InvalidInput, MailError, NotFound, TooLarge
from postroom.model.inbox import Visible
from postroom.model.key import AGENT, OWNER, Caller, Key, Scope
from postroom.model.rule import Rule, RuleJob
from postroom.model.view import NOTHING, Everything, Only, View, only
from postroom.pipeline.services import Services, wait_for_notification
from postroom.rules.rights import NO_AUTHORITY, authority_of_rule, standing_caller


async def caller_of_key(services: Services, key: Key) -> Caller:
    """The caller with this key, and what the key allows now."""
    return Caller(
        key_id=key.id,
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        inboxes=await _inboxes_of(services, key),
        accounts=_accounts_of(key),
        namespaces=key.namespaces,
        is_owner=key.id == OWNER.key_id,
    )


async def _inboxes_of(services: Services, key: Key) -> Visible:
    """The inboxes that exist for a key: those it names, and those of the accounts it names."""
    gone = frozenset(key.former_inboxes)
    named = () if isinstance(key.inboxes, Everything) else key.inboxes.named
    if isinstance(key.accounts, Everything):
        return key.inboxes if isinstance(key.inboxes, Everything) else Only(named, gone)
    if key.accounts.is_empty:
        return Only(named, gone)
    return Only((*named, *await services.store.inboxes_of_accounts(key.accounts.named)), gone)


def _accounts_of(key: Key) -> View:
    """The live accounts that exist for a key; one that is limited to inboxes alone sees none."""
    is_limited = not isinstance(key.inboxes, Everything)
    return NOTHING if is_limited and isinstance(key.accounts, Everything) else key.accounts


async def callers_for_rules(services: Services, rules: Iterable[Rule]) -> dict[str, Caller | None]:
    """The caller that each rule acts for, by the id of the rule; None if its key was revoked."""
    authorities = {rule.id: (authority_of_rule(rule), rule.inboxes) for rule in rules}
    callers = await _callers(services, (authority for authority, _ in authorities.values()))
    return {
        rule_id: standing_caller(authority, inboxes, callers)
        for rule_id, (authority, inboxes) in authorities.items()
    }


async def caller_for_rule_job(services: Services, job: RuleJob) -> Caller | None:
    """The caller that a job is run for; None if its key was revoked."""
    callers = await _callers(services, [job.authority])
    return standing_caller(job.authority, only(job.inbox_id), callers)


async def _callers(services: Services, authorities: Iterable[str]) -> dict[str, Caller]:
    """The callers of the keys that still exist; owner and agent need no query."""
    callers = {AGENT.key_id: AGENT}
    key_ids = set(authorities) - {OWNER.key_id, AGENT.key_id, NO_AUTHORITY}
    if not key_ids:
        return callers
    found = await services.store.keys_by_id(sorted(key_ids))
    return callers | {key.id: await caller_of_key(services, key) for key in found}


log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
MAX_WAIT_S = 60.0
MAX_ATTEMPTS = 12
_AT_ONCE = 20
_PERMANENT = (Conflict, Forbidden, InvalidInput, NotFound, TooLarge)
"""Errors that a retry would not change."""


@dataclass(eq=False)
class RuleJobs:
    """The worker. Only the process with the lease runs jobs, so that no sender gets two replies."""

    services: Services
    run_job: Callable[[RuleJob], Awaitable[None]]

    async def run(self) -> None:
        """Run jobs until cancelled; an interrupted job is run once by the next worker."""
        holder = self.services.new_id("proc")
        try:
            while True:
                position = self.services.store.notifier.position("rule_jobs")
                try:
                    await self.run_due(holder)
                    wait_s = await self._until_next()
                except MailError as error:
                    log.warning("rule_jobs.failed", extra={"error": str(error)})
                    wait_s = MAX_WAIT_S
                await wait_for_notification(self.services, "rule_jobs", position, wait_s)
        finally:
            await self.services.store.release("rule_jobs", holder)

    async def run_due(self, holder: str) -> int:
        """Run all jobs that are due; returns how many."""
        store, done = self.services.store, 0
        while await store.next_rule_job_at() is not None:
            now = self.services.clock()
            if not await store.claim("rule_jobs", holder, now=now, lasting=LEASE):
                return done
            rule_jobs = await store.claim_rule_jobs(
                holder, now=now, until=now + LEASE, limit=_AT_ONCE
            )
            for job in rule_jobs:
                await self._run_job(job)
            done += len(rule_jobs)
            if not rule_jobs:
                return done
        return done

    async def _until_next(self) -> float:
        next_at = await self.services.store.next_rule_job_at()
        if next_at is None:
            return MAX_WAIT_S
        return min(max((next_at - self.services.clock()).total_seconds(), 0.5), MAX_WAIT_S)

    async def _run_job(self, job: RuleJob) -> None:
        failed, next_at = None, None
        try:
            await self.run_job(job)
        except MailError as error:
            failed = f"{job.act.type}: {error}"
            if not isinstance(error, _PERMANENT) and job.attempts < MAX_ATTEMPTS:
                next_at = self.services.clock() + timedelta(seconds=10 * 2**job.attempts)
        except Exception as error:
            log.exception("rule_jobs.failed", extra={"rule_job": job.id})
            failed = f"{job.act.type}: internal error ({type(error).__name__}); see the log"
        now = self.services.clock()
        await self.services.store.settle_rule_job(job, now=now, failed=failed, next_at=next_at)
