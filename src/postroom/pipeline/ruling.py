"""Rules on mail that arrives: what they change is stored with it, the rest is noted to be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from postroom.blocking import in_thread
from postroom.errors import InvalidInput
from postroom.mail.message import ParsedMessage
from postroom.model.facts import Facts, Head, Named, State
from postroom.model.inbox import HIDDEN_MAILBOXES
from postroom.model.rule import OWN_MARK, Rule, RuleEffect
from postroom.model.stored import FIELD_BORDER, NewMessage
from postroom.pipeline.house import House
from postroom.rules.chain import Chain, run_chain
from postroom.rules.definition import Definition
from postroom.rules.planning import as_acts


@dataclass(frozen=True, slots=True)
class Arriving:
    """What a mail at the door does not say itself."""

    message_id: str
    inbox_id: str
    date: datetime
    state: State
    searchable: str
    auth: tuple[str, ...] = ()


async def run_rules(
    house: House, messages: Sequence[NewMessage], parsed: Sequence[ParsedMessage]
) -> list[NewMessage]:
    """The messages as rules leave them. Sent, imported and hidden mail is no arrival."""
    pairs = list(zip(messages, parsed, strict=True))
    if not any(_arrives(message) for message in messages):
        return list(messages)
    rules = await house.store.every_rule()
    if not rules:
        return list(messages)
    return await in_thread(_run_all, rules, pairs, house.clock())


def _arrives(message: NewMessage) -> bool:
    if message.direction != "inbound" or message.is_imported:
        return False
    return any(name not in HIDDEN_MAILBOXES for name in message.mailboxes)


def _run_all(
    rules: Sequence[Rule], pairs: Sequence[tuple[NewMessage, ParsedMessage]], now: datetime
) -> list[NewMessage]:
    return [_run(rules, m, parsed, now) if _arrives(m) else m for m, parsed in pairs]


def _run(
    rules: Sequence[Rule], message: NewMessage, parsed: ParsedMessage, now: datetime
) -> NewMessage:
    broken: list[RuleEffect] = []
    chosen: list[tuple[str, Definition]] = []
    for rule in rules:
        if not rule.enabled or message.inbox_id not in (rule.inboxes or (message.inbox_id,)):
            continue
        definition = definition_of(rule.yaml)
        if isinstance(definition, str):
            broken.append(RuleEffect(rule.id, rule.name, (), (definition,)))
        elif not definition.safety.require_plan:
            chosen.append((rule.id, definition))
    arrival = Arriving(
        message.id,
        message.inbox_id,
        message.date,
        State(message.labels, message.flags, message.mailboxes),
        message.searchable,
        tuple(f"{name}={verdict}".lower() for name, verdict in message.auth.items()),
    )
    chain = run_chain(chosen, facts_of(parsed, arrival), now)
    return replace(
        message,
        labels=chain.state.labels,
        flags=chain.state.flags,
        mailboxes=chain.state.mailboxes,
        effects=(*broken, *_effects(chain)),
    )


@lru_cache(maxsize=2048)
def definition_of(yaml: str) -> Definition | str:
    """A kept rule, read again; or why it cannot be, if it was kept by another version of us."""
    # The parsers of YAML and patterns are loaded by who has a rule.
    from postroom.rules.reading import parse_rule

    try:
        return parse_rule(yaml)
    except InvalidInput as error:
        return f"it cannot be read any more: {error}"


def _effects(chain: Chain) -> list[RuleEffect]:
    """What each rule did; one whose message was already as it wants did nothing."""
    return [
        RuleEffect(link.rule_id, link.rule.name, as_acts(link.actions), link.problems)
        for link in chain.links
        if link.actions or link.problems
    ]


def facts_of(parsed: ParsedMessage, arrival: Arriving) -> Facts:
    """What rules see of a mail that is not stored yet."""
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
        head=head_of(parsed),
    )


def _people(parsed: ParsedMessage, role: str) -> tuple[Named, ...]:
    return tuple(Named(a.name, a.address) for a in parsed.addresses if a.role == role)


def head_of(parsed: ParsedMessage) -> Head:
    """The headers of a mail that was parsed."""
    return Head(
        headers=parsed.headers,
        list_id=parsed.list_id,
        is_automatic=parsed.auto_submitted,
        is_report=parsed.report is not None,
        is_ours=parsed.header(OWN_MARK) is not None,
    )
