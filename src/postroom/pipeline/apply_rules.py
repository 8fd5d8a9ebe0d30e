"""Rules on arriving mail: changes are stored with the message, other actions become jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, no_such
from postroom.mail.message import ParsedMessage
from postroom.mail.rule_marks import is_own_forward
from postroom.model.inbox import HIDDEN_MAILBOXES
from postroom.model.key import NOBODY, Caller
from postroom.model.message import NamedAddress
from postroom.model.rule import Facts, Head, Rule, RuleEffect, State
from postroom.model.storage import FIELD_BORDER, NewMessage
from postroom.model.view import NOTHING, Everything
from postroom.pipeline.rule_jobs import callers_for_rules
from postroom.pipeline.services import Services
from postroom.rules.definition import Definition
from postroom.rules.planning import Chain, run_chain
from postroom.rules.rights import NO_AUTHORITY, authority_of_rule, permitted, refusal, rights_for


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """What rules need to know of an arriving mail beside its content."""

    message_id: str
    inbox_id: str
    date: datetime
    state: State
    searchable: str
    auth: tuple[str, ...] = ()


Callers = Mapping[str, Caller | None]
"""The caller that each rule acts for, by the id of the rule; None if its key was revoked."""


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
    pairs = list(zip(messages, parsed, strict=True))
    if not any(_is_arrival(message) for message in messages):
        return list(messages)
    rules = await services.store.all_rules()
    if not rules:
        return list(messages)
    callers = await callers_for_rules(services, rules)
    run = RuleRun(rules, callers, services.clock(), services.rule_key)
    return await in_thread(_run_on_all, run, pairs)


def _is_arrival(message: NewMessage) -> bool:
    if message.direction != "inbound" or message.is_imported:
        return False
    return any(name not in HIDDEN_MAILBOXES for name in message.mailboxes)


def _run_on_all(
    run: RuleRun, pairs: Sequence[tuple[NewMessage, ParsedMessage]]
) -> list[NewMessage]:
    return [_run_on(run, m, parsed) if _is_arrival(m) else m for m, parsed in pairs]


def _run_on(run: RuleRun, message: NewMessage, parsed: ParsedMessage) -> NewMessage:
    broken: list[RuleEffect] = []
    chosen: list[tuple[str, Definition]] = []
    refused: dict[str, tuple[str, ...]] = {}
    for rule in run.rules:
        if not rule.enabled or not rule.inboxes.sees(message.inbox_id):
            continue
        definition = definition_of(rule.yaml)
        if isinstance(definition, str):
            broken.append(RuleEffect(rule.id, rule.name, (), (definition,)))
        elif not definition.safety.require_plan:
            allowed, refused[rule.id] = permitted(
                definition, run.callers[rule.id], message.inbox_id
            )
            chosen.append((rule.id, allowed))
    arrival = ArrivalFacts(
        message.id,
        message.inbox_id,
        message.date,
        State(message.labels, message.flags, message.mailboxes),
        message.searchable,
        tuple(f"{name}={verdict}".lower() for name, verdict in message.auth.items()),
    )
    chain = run_chain(chosen, facts_of(parsed, arrival, run.rule_key), run.now)
    return replace(
        message,
        labels=chain.state.labels,
        flags=chain.state.flags,
        mailboxes=chain.state.mailboxes,
        effects=(*broken, *_effects(chain, refused, run.callers)),
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
    chain: Chain, refused: Mapping[str, tuple[str, ...]], callers: Callers
) -> list[RuleEffect]:
    """What each rule did; rules that changed nothing are left out."""
    found = []
    for link in chain.links:
        problems = (*link.problems, *refused[link.rule_id])
        if link.actions or problems:
            caller = callers[link.rule_id] or NOBODY
            acts = link.actions
            found.append(
                RuleEffect(link.rule_id, link.rule.name, acts, problems, caller, caller.key_id)
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
        head=head_of(parsed, rule_key),
    )


def _people(parsed: ParsedMessage, role: str) -> tuple[NamedAddress, ...]:
    return tuple(NamedAddress(a.name, a.address) for a in parsed.addresses if a.role == role)


def head_of(parsed: ParsedMessage, rule_key: bytes) -> Head:
    """The facts that come from the headers."""
    return Head(
        headers=parsed.headers,
        list_id=parsed.list_id,
        is_automatic=parsed.auto_submitted,
        is_report=parsed.report is not None,
        is_ours=is_own_forward(rule_key, parsed.headers),
    )


_ANY_INBOX = "inb_of_anybody"
"""An id that only a caller who sees every inbox may see."""

_NO_AUTHORITY = (
    "its key is not recorded, so it acts for its own inboxes only, with its own webhooks, and "
    "stores no memories"
)


async def rules_without_rights(services: Services) -> list[tuple[Rule, str]]:
    """The enabled rules whose key may no longer do all of their actions, and what it lacks."""
    rules = [rule for rule in await services.store.all_rules() if rule.enabled]
    callers = await callers_for_rules(services, rules)
    found = []
    for rule in rules:
        definition = definition_of(rule.yaml)
        if isinstance(definition, Definition):
            reason = await _refusal(services, rule, definition, callers[rule.id])
            found += [(rule, reason)] if reason else []
    return found


async def _refusal(
    services: Services, rule: Rule, definition: Definition, caller: Caller | None
) -> str:
    """Why a rule may not do one of its actions; empty if it may do all."""
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
