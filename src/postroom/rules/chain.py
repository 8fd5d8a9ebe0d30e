"""Several rules on one message, in their order, until one says stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from postroom.model.facts import Facts, State
from postroom.rules.definition import Action, Definition
from postroom.rules.matching import Why, why_it_matches
from postroom.rules.steps import take_steps


@dataclass(frozen=True, slots=True)
class Link:
    """What one rule of the chain does with a message."""

    rule_id: str
    rule: Definition
    actions: tuple[Action, ...]
    why: Why
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """What all of them do, and how the message is afterwards."""

    links: tuple[Link, ...]
    state: State


def run_chain(rules: Iterable[tuple[str, Definition]], facts: Facts, now: datetime) -> Chain:
    """Let each rule see the message as the ones before have left it."""
    links: list[Link] = []
    for rule_id, rule in rules:
        try:
            why = why_it_matches(rule.when, facts, now)
            steps = None if why is None else take_steps(rule.then, facts)
        except Exception as error:  # noqa: BLE001, whatever a rule does, the mail gets in
            links.append(Link(rule_id, rule, (), (), (f"it failed: {type(error).__name__}",)))
            continue
        if why is None or steps is None:
            continue
        links.append(Link(rule_id, rule, steps.actions, why, steps.problems))
        facts = replace(facts, state=steps.state)
        if steps.is_last:
            break
    return Chain(tuple(links), facts.state)
