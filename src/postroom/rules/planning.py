"""Planning: what a rule would do with which messages, and why; without effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from postroom.mail.addresses import without_tag
from postroom.mail.text.fold import as_key, fold
from postroom.model.inbox import (
    ARCHIVE,
    EVERY_MAILBOX,
    HIDDEN_MAILBOXES,
    OUTBOX,
    TRASH,
    Visible,
    standard_mailbox,
)
from postroom.model.mail.message import FLAGS, MessageState
from postroom.model.mail.storage import MessageQuery
from postroom.model.rule import Action, Facts, PlanItem
from postroom.rules.definition import (
    MAX_PLANNED,
    Comparison,
    Condition,
    Definition,
    Group,
    required_parts,
)
from postroom.rules.matching import (
    HeadersNeeded,
    Why,
    folded_names,
    impossible_conditions,
    read_moment,
    why_it_matches,
)

MAX_QUERIES = 50
_MAX_TEXT_CHARS = 256
_SEARCHED = ("text", "attachment.name")
_HIDDEN = frozenset(name.casefold() for name in (*HIDDEN_MAILBOXES, OUTBOX))
"""Mail that rules leave alone: discarded, or about to be sent."""


def queries_for(rule: Definition, visible: Visible, now: datetime) -> tuple[MessageQuery, ...]:
    """Queries whose results together contain every match, and perhaps more."""
    whole = MessageQuery(
        visible=visible, mailbox=EVERY_MAILBOX if named_hidden(rule.when) else None
    )
    return tuple(_narrow(whole, rule.when, now))


def named_hidden(condition: Condition) -> frozenset[str]:
    """The hidden mailboxes (Trash, Junk, Outbox) that a condition names; others are left out."""
    if isinstance(condition, Group):
        parts = () if condition.kind == "none" else condition.parts
        return frozenset[str]().union(*(named_hidden(part) for part in parts))
    if condition.field != "mailbox" or condition.operator not in ("equals", "in"):
        return frozenset()
    return _HIDDEN & folded_names(condition)


def is_left_out(facts: Facts, named: frozenset[str]) -> bool:
    """Whether a message is only in hidden mailboxes that no condition names."""
    return not {name.casefold() for name in facts.state.mailboxes} - (_HIDDEN - named)


def _narrow(query: MessageQuery, condition: Condition, now: datetime) -> list[MessageQuery]:
    if isinstance(condition, Comparison):
        return [_with_test(query, condition, now)]
    if condition.kind == "any":
        return _any(query, condition, now)
    if condition.kind == "all":
        return _all(query, condition, now)
    return [query]


def _all(query: MessageQuery, group: Group, now: datetime) -> list[MessageQuery]:
    """Every comparison narrows the query; of several `any` groups, the best one is used."""
    alternatives = []
    for part in required_parts(group):
        if isinstance(part, Comparison):
            query = _with_test(query, part, now)
        elif part.kind == "any":
            alternatives.append(part)
    found = [_any(query, part, now) for part in alternatives]
    useful = [queries for queries in found if query not in queries]
    return min(useful, key=len) if useful else [query]


def _any(query: MessageQuery, group: Group, now: datetime) -> list[MessageQuery]:
    found = (_narrow(query, part, now) for part in group.parts)
    unique = list(dict.fromkeys(narrowed for queries in found for narrowed in queries))
    return [query] if query in unique or len(unique) > MAX_QUERIES else unique


def _with_test(query: MessageQuery, test: Comparison, now: datetime) -> MessageQuery:
    value = test.value
    if test.field == "has_attachment" and test.operator == "equals":
        return replace(query, has_attachment=bool(value))
    if test.field == "age_days":
        return _with_age(query, test, now)
    if test.field == "date":
        return _with_date(query, test)
    if not isinstance(value, str) or test.operator not in ("equals", "contains"):
        return query
    if test.field == "label" and test.operator == "equals" and len(query.labels) < 20:
        return replace(query, labels=(*query.labels, value))
    if test.field == "flag" and test.operator == "equals" and value.lower() in FLAGS:
        return replace(query, flags=(*query.flags, value.lower()))
    if test.field == "mailbox" and test.operator == "equals":
        return query if len(folded_names(test)) > 1 else replace(query, mailbox=value)
    text = fold(value)
    if len(text) > _MAX_TEXT_CHARS:
        return query
    if test.field == "subject":
        return query if len(query.subject or "") >= len(text) else replace(query, subject=text)
    if test.field in _SEARCHED:
        # A match lies within one field, so a text of a field is a text of the message.
        return query if query.q and len(query.q) >= len(text) else replace(query, q=text)
    # The filter of the index treats an @ specially, and then finds less than `contains`.
    if test.field in ("from", "to", "cc") and (test.operator == "equals" or "@" not in text):
        if test.field == "from":
            return query if query.sender else replace(query, sender=text)
        return query if query.recipient else replace(query, recipient=text)
    return query


def _with_age(query: MessageQuery, test: Comparison, now: datetime) -> MessageQuery:
    value = test.value
    if test.operator == "greater_than" and isinstance(value, int):
        before = now - timedelta(days=value) + timedelta(seconds=1)
        return replace(query, before=min(query.before or before, before))
    if test.operator == "less_than" and isinstance(value, int):
        after = now - timedelta(days=value)
        return replace(query, after=max(query.after or after, after))
    return query


def _with_date(query: MessageQuery, test: Comparison) -> MessageQuery:
    moment = read_moment(str(test.value))
    if test.operator == "after":
        return replace(query, after=max(query.after or moment, moment))
    return replace(query, before=min(query.before or moment, moment))


MAX_LABELS = 100


@dataclass(frozen=True, slots=True)
class AppliedActions:
    """The actions that have an effect, and the state after them."""

    actions: tuple[Action, ...]
    state: MessageState
    is_last: bool = False
    problems: tuple[str, ...] = ()


def apply_actions(actions: Sequence[Action], facts: Facts) -> AppliedActions:
    """Apply actions in their order; those without an effect are left out."""
    state = facts.state
    taken: list[Action] = []
    problems: list[str] = []
    for action in actions:
        if action.type == "stop":
            return AppliedActions(tuple(taken), state, is_last=True, problems=tuple(problems))
        if action.type in _EXTERNAL:
            if refusal := _refusal(action, facts):
                problems.append(refusal)
            else:
                taken.append(action)
            continue
        after = _CHANGES[action.type](state, action.value)
        if len(after.labels) > MAX_LABELS:
            problems.append(f"a message can carry {MAX_LABELS} labels at most")
        elif after != state:
            state = after
            taken.append(action)
    return AppliedActions(tuple(taken), state, problems=tuple(problems))


_EXTERNAL = ("forward", "reply", "webhook", "remember")


def _refusal(action: Action, facts: Facts) -> str:
    """Why an action could start a mail loop (RFC 3834), or empty."""
    head = facts.header_facts
    if action.type not in ("forward", "reply") or head is None:
        return ""
    if head.is_ours or head.is_report or facts.direction == "outbound":
        return (
            f"{action.type}: not done for forwards by rules, reports and mail of this installation"
        )
    if action.type == "reply" and (head.is_automatic or not facts.sender):
        return "reply: not sent to automatic mail"
    return ""


def _with_label(state: MessageState, label: str) -> MessageState:
    if label.casefold() in {name.casefold() for name in state.labels}:
        return state
    return replace(state, labels=(*state.labels, label))


def _without_label(state: MessageState, label: str) -> MessageState:
    gone = label.casefold()
    return replace(state, labels=tuple(n for n in state.labels if n.casefold() != gone))


def _moved(state: MessageState, mailbox: str) -> MessageState:
    meant = {name.casefold() for name in (mailbox, standard_mailbox(mailbox)) if name}
    if len(state.mailboxes) == 1 and state.mailboxes[0].casefold() in meant:
        return state
    return replace(state, mailboxes=(mailbox,))


def _with_flag(state: MessageState, flag: str) -> MessageState:
    return state if flag in state.flags else replace(state, flags=(*state.flags, flag))


def _without_flag(state: MessageState, flag: str) -> MessageState:
    return replace(state, flags=tuple(name for name in state.flags if name != flag))


_CHANGES: dict[str, Callable[[MessageState, str], MessageState]] = {
    "apply_label": _with_label,
    "remove_label": _without_label,
    "move": _moved,
    "archive": lambda state, _: _moved(state, ARCHIVE),
    "delete": lambda state, _: _moved(state, TRASH),
    "mark_read": lambda state, _: _with_flag(state, "seen"),
    "mark_unread": lambda state, _: _without_flag(state, "seen"),
    "flag": lambda state, _: _with_flag(state, "flagged"),
    "unflag": lambda state, _: _without_flag(state, "flagged"),
    "add_flag": _with_flag,
    "remove_flag": _without_flag,
}


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What one rule does with a message."""

    rule_id: str
    rule: Definition
    actions: tuple[Action, ...]
    why: Why
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleOutcomes:
    """What all rules do, and the state of the message after them."""

    outcomes: tuple[RuleOutcome, ...]
    state: MessageState


def outcomes_of(
    rules: Iterable[tuple[str, Definition]], facts: Facts, now: datetime
) -> RuleOutcomes:
    """Run rules in their order, each on the state that the ones before have left."""
    outcomes: list[RuleOutcome] = []
    for rule_id, rule in rules:
        try:
            why = why_it_matches(rule.when, facts, now)
            steps = None if why is None else apply_actions(rule.then, facts)
        except Exception as error:  # noqa: BLE001 - a failing rule does not stop the mail
            outcomes.append(
                RuleOutcome(rule_id, rule, (), (), (f"it failed: {type(error).__name__}",))
            )
            continue
        if why is None or steps is None:
            continue
        outcomes.append(RuleOutcome(rule_id, rule, steps.actions, why, steps.problems))
        facts = replace(facts, state=steps.state)
        if steps.is_last:
            break
    return RuleOutcomes(tuple(outcomes), facts.state)


_ONCE = "reply: a sender gets one automatic reply per thread, and a few per day from an inbox"


@dataclass(slots=True)
class PlanDraft:
    """A plan that is being made: items up to a limit, counts of all."""

    items: list[PlanItem] = field(default_factory=list)
    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _problems: Counter[str] = field(default_factory=Counter)
    _unchanged: int = 0
    replies_per_inbox: int = 1
    _answered: set[tuple[str, str]] = field(default_factory=set)
    replies: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Automatic replies within a day, sent or planned, by inbox and address."""

    def add(self, facts: Facts, why: Why, steps: AppliedActions) -> None:
        actions = tuple(a for a in steps.actions if self._may(a, facts))
        self.total += 1
        self.counts.update(action.type for action in actions)
        self._problems.update(steps.problems)
        self._unchanged += not actions
        if len(self.items) < MAX_PLANNED:
            self.items.append(
                PlanItem(
                    message_id=facts.message_id,
                    inbox_id=facts.inbox_id,
                    subject=facts.subject,
                    sender=facts.sender,
                    date=facts.date,
                    before=facts.state,
                    after=steps.state,
                    actions=actions,
                    why=why,
                )
            )

    def _may(self, action: Action, facts: Facts) -> bool:
        if action.type != "reply":
            return True
        pair = (facts.thread_id, facts.sender.lower())
        # As the limit counts them: by the addresses that a reply would go to.
        to = {as_key(without_tag(address)) for address in facts.reply_to or (facts.sender,)}
        counted = [(facts.inbox_id, address) for address in to]
        is_over = any(self.replies[pair] >= self.replies_per_inbox for pair in counted)
        if is_over or pair in self._answered:
            self._problems[_ONCE] += 1
            return False
        self._answered.add(pair)
        self.replies.update(counted)
        return True

    def warnings(self, rule: Definition) -> Iterator[str]:
        """Warnings for the person who applies the plan of a rule."""
        yield from impossible_conditions(rule)
        limit = rule.safety.max_messages
        if self.total > limit:
            yield (
                f"{self.total} messages match, but safety.max_messages is {limit}; "
                "narrow the rule or raise it, or this plan cannot be applied"
            )
        yield from self.limitations()
        if rule.uses("delete"):
            yield "delete moves messages to Trash"

    def limitations(self) -> Iterator[str]:
        """What a plan does not do, or cannot undo."""
        if self._unchanged:
            yield f"{_messages(self._unchanged)} would not change: the actions have no effect"
        if left := sum(n for kind, n in self.counts.items() if kind in _IRREVERSIBLE):
            yield f"{left} actions (forward, reply, webhook) cannot be undone"
        for problem, count in sorted(self._problems.items()):
            yield f"{_messages(count)}: {problem}"


_IRREVERSIBLE = ("forward", "reply", "webhook")


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


def add_matches(
    rule: Definition, batch: Iterable[Facts], now: datetime, draft: PlanDraft
) -> list[Facts]:
    """Add the messages of a batch that match; returns those whose headers must be read first."""
    named, unread = named_hidden(rule.when), []
    for facts in batch:
        if is_left_out(facts, named):
            continue
        try:
            why = why_it_matches(rule.when, facts, now)
        except HeadersNeeded:
            unread.append(facts)
            continue
        if why is not None and rule.sends_mail and facts.header_facts is None:
            unread.append(facts)
        elif why is not None:
            draft.add(facts, why, apply_actions(rule.then, facts))
    return unread
