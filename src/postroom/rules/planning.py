"""Planning: what a rule would do with which messages, and why; without effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from postroom.mail.addresses import without_tag
from postroom.model.rule import Act, Facts, PlanItem
from postroom.rules.actions import Steps, apply_actions
from postroom.rules.candidate_queries import is_left_out, named_hidden
from postroom.rules.definition import MAX_PLANNED, Action, Definition
from postroom.rules.matching import HeadNeeded, Why, why_it_matches

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
    _replies: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, facts: Facts, why: Why, steps: Steps) -> None:
        """Add a message that matches."""
        actions = tuple(a for a in steps.actions if self._may(a, facts))
        self.total += 1
        self.counts.update(action.type for action in actions)
        self._problems.update(steps.problems)
        self._unchanged += not actions
        if len(self.items) < MAX_PLANNED:
            self.items.append(_item(facts, why, steps, actions))

    def _may(self, action: Action, facts: Facts) -> bool:
        if action.type != "reply":
            return True
        pair = (facts.thread_id, facts.sender.lower())
        counted = (facts.inbox_id, without_tag(facts.sender))
        if pair in self._answered or self._replies[counted] >= self.replies_per_inbox:
            self._problems[_ONCE] += 1
            return False
        self._answered.add(pair)
        self._replies[counted] += 1
        return True

    def warnings(self, rule: Definition) -> Iterator[str]:
        """Warnings for whoever applies the plan."""
        limit = rule.safety.max_messages
        if self.total > limit:
            yield (
                f"{self.total} messages match, but safety.max_messages is {limit}; "
                "narrow the rule or raise it, or this plan cannot be applied"
            )
        if self._unchanged:
            yield f"{_messages(self._unchanged)} would not change: the actions have no effect"
        if left := sum(n for kind, n in self.counts.items() if kind in _IRREVERSIBLE):
            yield f"{left} actions (forward, reply, webhook) cannot be undone"
        for problem, count in sorted(self._problems.items()):
            yield f"{_messages(count)}: {problem}"
        if rule.uses("delete"):
            yield "delete moves messages to Trash"


_IRREVERSIBLE = ("forward", "reply", "webhook")


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


def _item(facts: Facts, why: Why, steps: Steps, actions: tuple[Action, ...]) -> PlanItem:
    return PlanItem(
        message_id=facts.message_id,
        inbox_id=facts.inbox_id,
        subject=facts.subject,
        sender=facts.sender,
        date=facts.date,
        before=facts.state,
        after=steps.state,
        actions=as_acts(actions),
        why=why,
    )


def as_acts(actions: Iterable[Action]) -> tuple[Act, ...]:
    """Actions as values to store."""
    return tuple(Act(action.type, action.value, action.key) for action in actions)


def consider(
    rule: Definition, batch: Iterable[Facts], now: datetime, draft: PlanDraft
) -> list[Facts]:
    """Add the messages of a batch that match; returns those whose headers must be read first."""
    named, unread = named_hidden(rule.when), []
    for facts in batch:
        if is_left_out(facts, named):
            continue
        try:
            why = why_it_matches(rule.when, facts, now)
        except HeadNeeded:
            unread.append(facts)
            continue
        if why is not None and rule.sends_mail and facts.head is None:
            unread.append(facts)
        elif why is not None:
            draft.add(facts, why, apply_actions(rule.then, facts))
    return unread
