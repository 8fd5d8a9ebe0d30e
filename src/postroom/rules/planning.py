"""A plan: what a rule would do with which messages, and why. Pure; nothing happens here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from postroom.model.facts import Facts
from postroom.model.rule import Act, PlanItem
from postroom.rules.definition import MOST_PLANNED, Action, Definition
from postroom.rules.matching import HeadNeeded, Why, why_it_matches
from postroom.rules.narrowing import is_left_out, named_hidden
from postroom.rules.steps import Steps, take_steps

_ONCE = "reply: a sender gets one automatic answer in a thread"


@dataclass(slots=True)
class PlanDraft:
    """A plan in the making: items up to a bound, counts of all."""

    items: list[PlanItem] = field(default_factory=list)
    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _problems: Counter[str] = field(default_factory=Counter)
    _unchanged: int = 0
    _answered: set[tuple[str, str]] = field(default_factory=set)

    def add(self, facts: Facts, why: Why, steps: Steps) -> None:
        """Take up a message that matches."""
        actions = tuple(a for a in steps.actions if self._may(a, facts))
        self.total += 1
        self.counts.update(action.type for action in actions)
        self._problems.update(steps.problems)
        self._unchanged += not actions
        if len(self.items) < MOST_PLANNED:
            self.items.append(_item(facts, why, steps, actions))

    def _may(self, action: Action, facts: Facts) -> bool:
        if action.type != "reply":
            return True
        pair = (facts.thread_id, facts.sender.lower())
        if pair in self._answered:
            self._problems[_ONCE] += 1
            return False
        self._answered.add(pair)
        return True

    def warnings(self, rule: Definition) -> Iterator[str]:
        """What somebody should know before they apply it."""
        most = rule.safety.max_messages
        if self.total > most:
            yield (
                f"{self.total} messages match, but safety.max_messages is {most}; "
                "narrow the rule or raise it, or this plan cannot be applied"
            )
        if self._unchanged:
            yield f"{_messages(self._unchanged)} would not change: they are as the rule wants them"
        if left := sum(n for kind, n in self.counts.items() if kind in _GONE):
            yield f"{left} actions leave the house (forward, reply, webhook) and cannot be undone"
        for problem, count in sorted(self._problems.items()):
            yield f"{_messages(count)}: {problem}"
        if rule.uses("delete"):
            yield "delete moves messages to Trash"


_GONE = ("forward", "reply", "webhook")


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
    """Actions as values that can be stored."""
    return tuple(Act(action.type, action.value, action.key) for action in actions)


def consider(
    rule: Definition, batch: Iterable[Facts], now: datetime, draft: PlanDraft
) -> list[Facts]:
    """Take up the messages of a batch that match; return those whose headers must be read first."""
    named, unread = named_hidden(rule.when), []
    for facts in batch:
        if is_left_out(facts, named):
            continue
        try:
            why = why_it_matches(rule.when, facts, now)
        except HeadNeeded:
            unread.append(facts)
            continue
        if why is not None and rule.leaves_the_house and facts.head is None:
            unread.append(facts)
        elif why is not None:
            draft.add(facts, why, take_steps(rule.then, facts))
    return unread
