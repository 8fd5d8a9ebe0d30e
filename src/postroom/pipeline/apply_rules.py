"""Rules on arriving mail: changes are stored with the message, other actions become jobs.

Rules, webhooks and scheduled mail end with the key that made them: when it was revoked, has
expired, or has lost a right since.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from postroom.blocking import in_thread
from postroom.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MailError,
    NotFound,
    TooLarge,
    no_such,
)
from postroom.mail.message import ParsedMessage
from postroom.mail.senders import is_own_forward
from postroom.model.event import Webhook
from postroom.model.inbox import HIDDEN_MAILBOXES, Visible
from postroom.model.key import AGENT, NOBODY, OWNER, Caller, Key, Scope
from postroom.model.mail.message import MessageState, NamedAddress
from postroom.model.mail.storage import FIELD_BORDER, NewMessage
from postroom.model.rule import Facts, HeaderFacts, Rule, RuleEffect, RuleJob
from postroom.model.view import EVERYTHING, NOTHING, Everything, Only, View, only
from postroom.pipeline.services import Services, wait_for_notification
from postroom.rules.definition import (
    NO_AUTHORITY,
    Definition,
    authority_of_rule,
    permitted_actions,
    refusal,
    rights_for,
    rule_caller,
)
from postroom.rules.planning import RuleOutcomes, outcomes_of


async def caller_of_key(services: Services, key: Key) -> Caller:
    """The caller with this key, and what the key allows now."""
    is_limited = not isinstance(key.inboxes, Everything)
    return Caller(
        key_id=key.id,
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        inboxes=await _inboxes_of(services, key),
        # A key that is limited to inboxes alone sees no live account.
        accounts=NOTHING if is_limited and key.accounts == EVERYTHING else key.accounts,
        namespaces=key.namespaces,
        is_owner=key.id == OWNER.key_id,
        policy=key.policy,
        expires_at=key.expires_at,
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


async def callers_for_rules(services: Services, rules: Iterable[Rule]) -> dict[str, Caller | None]:
    """The caller that each rule acts for, by the id of the rule; None if its key has ended."""
    authorities = {rule.id: (authority_of_rule(rule), rule.inboxes) for rule in rules}
    callers = await current_callers(services, (authority for authority, _ in authorities.values()))
    return {
        rule_id: rule_caller(authority, inboxes, callers)
        for rule_id, (authority, inboxes) in authorities.items()
    }


async def caller_for_rule_job(services: Services, job: RuleJob) -> Caller | None:
    """The caller that a job is run for; None if its key has ended."""
    callers = await current_callers(services, [job.authority])
    return rule_caller(job.authority, only(job.inbox_id), callers)


async def current_callers(services: Services, authorities: Iterable[str]) -> dict[str, Caller]:
    """The callers of the keys that exist and have not expired; owner and agent need no query."""
    callers = {AGENT.key_id: replace(AGENT, policy=services.gate.agent)}
    key_ids = set(authorities) - {OWNER.key_id, AGENT.key_id, NO_AUTHORITY}
    if not key_ids:
        return callers
    found = await services.store.keys_by_id(sorted(key_ids))
    now = services.clock()
    usable = [key for key in found if not key.has_expired(now)]
    return callers | {key.id: await caller_of_key(services, key) for key in usable}


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
            if not await store.claim("rule_jobs", holder, now=now, lifetime=LEASE):
                break
            jobs = await store.claim_rule_jobs(holder, now=now, until=now + LEASE, limit=_AT_ONCE)
            for job in jobs:
                await self._run_job(job)
            done += len(jobs)
            if not jobs:
                break
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
            failed = f"{job.action.type}: {error}"
            if not isinstance(error, _PERMANENT) and job.attempts < MAX_ATTEMPTS:
                next_at = self.services.clock() + timedelta(seconds=10 * 2**job.attempts)
        except Exception as error:
            log.exception("rule_jobs.failed", extra={"rule_job": job.id})
            failed = f"{job.action.type}: internal error ({type(error).__name__}); see the log"
        now = self.services.clock()
        await self.services.store.settle_rule_job(job, now=now, failed=failed, next_at=next_at)


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """What rules need to know of an arriving mail beside its content."""

    message_id: str
    inbox_id: str
    date: datetime
    state: MessageState
    searchable: str
    auth: tuple[str, ...] = ()


Callers = Mapping[str, Caller | None]
"""The caller that each rule acts for, by the id of the rule; None if its key has ended."""


@dataclass(frozen=True, slots=True)
class RuleRun:
    """The rules that run on a batch of mail, and their callers."""

    rules: Sequence[Rule]
    callers: Callers
    now: datetime
    rule_key: bytes


async def run_rules(
    services: Services, messages: Sequence[NewMessage], parsed: Sequence[ParsedMessage]
) -> list[NewMessage]:
    """The messages after the rules ran. Sent, imported and hidden mail is left unchanged."""
    inboxes = {message.inbox_id for message in messages if _is_arrival(message)}
    rules = await services.store.rules_for(inboxes) if inboxes else ()
    if not rules:
        return list(messages)
    callers = await callers_for_rules(services, rules)
    run = RuleRun(rules, callers, services.clock(), services.rule_key)
    pairs = zip(messages, parsed, strict=True)
    return await in_thread(lambda: [_run_on(run, m, p) if _is_arrival(m) else m for m, p in pairs])


def _is_arrival(message: NewMessage) -> bool:
    if message.direction != "inbound" or message.is_imported:
        return False
    return any(name not in HIDDEN_MAILBOXES for name in message.mailboxes)


def _run_on(run: RuleRun, message: NewMessage, parsed: ParsedMessage) -> NewMessage:
    broken: list[RuleEffect] = []
    chosen: list[tuple[str, Definition]] = []
    refused: dict[str, tuple[str, ...]] = {}
    for rule in run.rules:
        if not rule.enabled or not rule.inboxes.sees(message.inbox_id):
            continue
        definition = definition_of(rule.yaml)
        if isinstance(definition, str):
            broken.append(
                RuleEffect(
                    rule.id, rule.name, (), (definition,), visible_inboxes=rule.visible_inboxes
                )
            )
        elif not definition.safety.require_plan:
            allowed, refused[rule.id] = permitted_actions(
                definition, run.callers[rule.id], message.inbox_id
            )
            chosen.append((rule.id, allowed))
    arrival = ArrivalFacts(
        message.id,
        message.inbox_id,
        message.date,
        MessageState(labels=message.labels, flags=message.flags, mailboxes=message.mailboxes),
        message.searchable,
        tuple(f"{name}={verdict}".lower() for name, verdict in message.auth.items()),
    )
    outcomes = outcomes_of(chosen, facts_of(parsed, arrival, run.rule_key), run.now)
    return replace(
        message,
        labels=outcomes.state.labels,
        flags=outcomes.state.flags,
        mailboxes=outcomes.state.mailboxes,
        effects=(*broken, *_effects(outcomes, refused, run, message.submitted_by)),
    )


@lru_cache(maxsize=2048)
def definition_of(yaml: str) -> Definition | str:
    """A stored rule, parsed; or the reason why not, if another version has stored it."""
    # Imported here because the parsers of YAML and patterns are slow to load.
    from postroom.rules.parser import parse_rule

    try:
        return parse_rule(yaml)
    except InvalidInput as error:
        return f"the rule cannot be parsed: {error}"


def _effects(
    outcomes: RuleOutcomes,
    refused: Mapping[str, tuple[str, ...]],
    run: RuleRun,
    submitted_by: tuple[str, ...],
) -> list[RuleEffect]:
    """What each rule did; rules that changed nothing are left out."""
    found = []
    rules = {rule.id: rule for rule in run.rules} if outcomes.outcomes else {}
    for outcome in outcomes.outcomes:
        problems = (*outcome.problems, *refused[outcome.rule_id])
        if outcome.actions or problems:
            rule, caller = rules[outcome.rule_id], run.callers[outcome.rule_id] or NOBODY
            found.append(
                RuleEffect(
                    rule.id,
                    outcome.rule.name,
                    outcome.actions,
                    problems,
                    caller,
                    caller.key_id,
                    (*((rule.made_by,) if rule.made_by else ()), *submitted_by),
                    rule.visible_inboxes,
                )
            )
    return found


def facts_of(parsed: ParsedMessage, arrival: ArrivalFacts, rule_key: bytes = b"") -> Facts:
    """The facts of a mail that is not stored yet."""
    folded = arrival.searchable.split(FIELD_BORDER, 2)
    return Facts(
        message_id=arrival.message_id,
        inbox_id=arrival.inbox_id,
        thread_id="",
        direction="inbound",
        subject=parsed.subject,
        folded_subject=folded[0],
        senders=_people(parsed, "from"),
        to=_people(parsed, "to"),
        cc=_people(parsed, "cc"),
        date=arrival.date,
        size_bytes=parsed.size_bytes,
        state=arrival.state,
        text=parsed.text,
        folded_text=folded[1],
        files=tuple((a.filename, a.content_type) for a in parsed.attachments),
        has_attachment=any(not a.inline for a in parsed.attachments),
        auth=arrival.auth,
        header_facts=HeaderFacts(
            headers=parsed.headers,
            list_id=parsed.list_id,
            is_automatic=parsed.auto_submitted,
            is_report=parsed.report is not None,
            is_ours=is_own_forward(rule_key, parsed.headers),
        ),
    )


def _people(parsed: ParsedMessage, role: str) -> tuple[NamedAddress, ...]:
    return tuple(NamedAddress(a.name, a.address) for a in parsed.addresses if a.role == role)


_ANY_INBOX = "inb_of_anybody"
"""An id that only a caller who sees every inbox may see."""

_NO_AUTHORITY = (
    "its key is not recorded, so it acts for its own inboxes only, with its own webhooks, and "
    "stores no memories"
)


async def rules_without_rights(services: Services) -> list[tuple[Rule, str]]:
    """The enabled rules whose key may no longer do all of their actions, and what it lacks."""
    rules = [rule for rule in await services.store.all_rules() if rule.enabled]
    reasons = await missing_rights(services, rules)
    return [(rule, reasons[rule.id]) for rule in rules if rule.id in reasons]


async def missing_rights(services: Services, rules: Sequence[Rule]) -> dict[str, str]:
    """What the keys of rules lack for their actions, by the id of each such rule."""
    callers = await callers_for_rules(services, rules)
    refusals = [(rule.id, await _refusal(services, rule, callers[rule.id])) for rule in rules]
    return {rule_id: reason for rule_id, reason in refusals if reason}


async def _refusal(services: Services, rule: Rule, caller: Caller | None) -> str:
    """Why a rule may not do one of its actions; empty if it may do all, or cannot be parsed."""
    definition = definition_of(rule.yaml)
    if isinstance(definition, str):
        return ""
    inboxes = (_ANY_INBOX,) if isinstance(rule.inboxes, Everything) else rule.inboxes.named
    for inbox_id in inboxes:
        for action in definition.then:
            if reason := refusal(caller, action, inbox_id):
                return reason
    for action in definition.then:
        webhook = rights_for(action).webhook
        visible = NOTHING if caller is None else caller.inboxes
        if webhook and not await services.store.has_webhook(webhook, visible):
            return no_such("webhook", webhook)
    return _NO_AUTHORITY if authority_of_rule(rule) == NO_AUTHORITY else ""


_WEBHOOK_SCOPES = (Scope.ADMIN, Scope.READ)
_RENEW_ADVICE = "renewing its secret with another key makes it a webhook of that key"


async def webhook_refusal(services: Services, made_by: str | None, inboxes: View) -> str:
    """Why a webhook no longer receives events of these inboxes; empty if it does."""
    if not made_by or made_by == OWNER.key_id:
        return ""
    callers = await current_callers(services, [made_by])
    why = _missing_right(callers.get(made_by), _WEBHOOK_SCOPES, inboxes)
    return why and f"the key that created this webhook {why}; {_RENEW_ADVICE}"


async def stopped_webhooks(services: Services, webhooks: Iterable[Webhook]) -> dict[str, str]:
    """The webhooks that no longer receive events, by id, with the reason."""
    reasons = {
        webhook.id: await webhook_refusal(services, webhook.made_by, webhook.inboxes)
        for webhook in webhooks
    }
    return {webhook_id: why for webhook_id, why in reasons.items() if why}


async def send_refusal(services: Services, sent_by: str | None, inbox: View) -> str:
    """Why a scheduled mail is not sent; empty if it is."""
    if not sent_by or sent_by == OWNER.key_id:
        return ""
    callers = await current_callers(services, [sent_by])
    why = _missing_right(callers.get(sent_by), (Scope.SEND,), inbox)
    return why and f"not sent: the key that scheduled it {why}; retry it to send it now"


def _missing_right(caller: Caller | None, scopes: Iterable[Scope], inboxes: View) -> str:
    if caller is None:
        return "was revoked or has expired"
    missing = [scope for scope in scopes if scope not in caller.scopes]
    if missing:
        return f"lacks the scope {missing[0]}"
    seen = caller.inboxes
    if isinstance(seen, Everything):
        return ""
    # The webhook of a rule names no inbox itself.
    is_seen = not isinstance(inboxes, Everything) and inboxes.ids - seen.gone <= seen.ids
    return "" if is_seen else "may no longer see its inboxes"
