"""Back-test: what a set of rules would do with old mail, compared with another set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from postroom.model.rule import Action, Facts, public_action
from postroom.rules.definition import Definition
from postroom.rules.planning import outcomes_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What rules would do with one mail."""

    place: str
    subject: str
    sender: str
    rules: tuple[str, ...]
    actions: tuple[Action, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """A mail for which two sets of rules differ."""

    before: Outcome
    after: Outcome


@dataclass(slots=True)
class BackTest:
    """A set of rules run on old mail, perhaps compared with another set."""

    rules: Sequence[Definition]
    against: Sequence[Definition] | None = None
    mails: int = 0
    matches: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)

    def run_on(self, place: str, facts: Facts, now: datetime) -> None:
        """Run the enabled rules on one mail."""
        self.mails += 1
        outcome = _run(self.rules, place, facts, now)
        self.matches.update(outcome.rules)
        self.counts.update(action.type for action in outcome.actions)
        if outcome.rules:
            self.outcomes.append(outcome)
        if self.against is None:
            return
        before = _run(self.against, place, facts, now)
        if before.actions != outcome.actions:
            self.changed.append(Changed(before, outcome))


def _run(rules: Sequence[Definition], place: str, facts: Facts, now: datetime) -> Outcome:
    outcomes = outcomes_of(
        [(rule.name, rule) for rule in rules if rule.enabled], facts, now
    ).outcomes
    return Outcome(
        place=place,
        subject=facts.subject,
        sender=facts.sender,
        rules=tuple(outcome.rule.name for outcome in outcomes),
        actions=tuple(action for outcome in outcomes for action in outcome.actions),
        why=tuple(reason for outcome in outcomes for reason in outcome.why),
    )


def outcome_as_json(outcome: Outcome) -> dict[str, object]:
    """An outcome as JSON."""
    return {
        "place": outcome.place,
        "subject": outcome.subject,
        "from": outcome.sender,
        "rules": list(outcome.rules),
        "actions": [public_action(action) for action in outcome.actions],
        "why": list(outcome.why),
    }


def back_test_as_json(test: BackTest) -> dict[str, object]:
    """The result of a test as JSON."""
    shown: dict[str, object] = {
        "mails": test.mails,
        "matched": len(test.outcomes),
        "matches_by_rule": dict(test.matches),
        "actions_by_type": dict(test.counts),
        "messages": [outcome_as_json(outcome) for outcome in test.outcomes],
    }
    if test.against is None:
        return shown
    diff = [
        {
            "place": one.after.place,
            "subject": one.after.subject,
            "before": [public_action(action) for action in one.before.actions],
            "after": [public_action(action) for action in one.after.actions],
        }
        for one in test.changed
    ]
    return {**shown, "changed": len(diff), "diff": diff}
