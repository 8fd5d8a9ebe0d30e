"""The actions of one rule or of several, applied to a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from postroom.model.inbox import ARCHIVE, TRASH
from postroom.model.rule import Facts, State
from postroom.rules.definition import Action, Definition
from postroom.rules.matching import Why, why_it_matches

MAX_LABELS = 100


@dataclass(frozen=True, slots=True)
class Steps:
    """The actions that have an effect, and the state after them."""

    actions: tuple[Action, ...]
    state: State
    is_last: bool = False
    problems: tuple[str, ...] = ()


def apply_actions(actions: Sequence[Action], facts: Facts) -> Steps:
    """Apply actions in their order; those without an effect are left out."""
    state = facts.state
    taken: list[Action] = []
    problems: list[str] = []
    for action in actions:
        if action.type == "stop":
            return Steps(tuple(taken), state, is_last=True, problems=tuple(problems))
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
    return Steps(tuple(taken), state, problems=tuple(problems))


_EXTERNAL = ("forward", "reply", "webhook", "remember")


def _refusal(action: Action, facts: Facts) -> str:
    """Why an action could start a mail loop (RFC 3834), or empty."""
    head = facts.head
    if action.type not in ("forward", "reply") or head is None:
        return ""
    if head.is_ours or head.is_report or facts.direction == "outbound":
        return f"{action.type}: not done for forwards of rules, reports and our own mail"
    if action.type == "reply" and (head.is_automatic or not facts.sender):
        return "reply: not sent to automatic mail"
    return ""


def _with_label(state: State, label: str) -> State:
    if label.casefold() in {name.casefold() for name in state.labels}:
        return state
    return replace(state, labels=(*state.labels, label))


def _without_label(state: State, label: str) -> State:
    gone = label.casefold()
    return replace(state, labels=tuple(n for n in state.labels if n.casefold() != gone))


def _moved(state: State, mailbox: str) -> State:
    if [name.casefold() for name in state.mailboxes] == [mailbox.casefold()]:
        return state
    return replace(state, mailboxes=(mailbox,))


def _with_flag(state: State, flag: str) -> State:
    return state if flag in state.flags else replace(state, flags=(*state.flags, flag))


def _without_flag(state: State, flag: str) -> State:
    return replace(state, flags=tuple(name for name in state.flags if name != flag))


_CHANGES: dict[str, Callable[[State, str], State]] = {
    "apply_label": _with_label,
    "remove_label": _without_label,
    "move": _moved,
    "archive": lambda state, _: _moved(state, ARCHIVE),
    "delete": lambda state, _: _moved(state, TRASH),
    "mark_read": lambda state, _: _with_flag(state, "seen"),
    "mark_unread": lambda state, _: _without_flag(state, "seen"),
    "flag": lambda state, _: _with_flag(state, "flagged"),
    "unflag": lambda state, _: _without_flag(state, "flagged"),
}


@dataclass(frozen=True, slots=True)
class Link:
    """What one rule does with a message."""

    rule_id: str
    rule: Definition
    actions: tuple[Action, ...]
    why: Why
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """What all rules do, and the state of the message after them."""

    links: tuple[Link, ...]
    state: State


def run_chain(rules: Iterable[tuple[str, Definition]], facts: Facts, now: datetime) -> Chain:
    """Run rules in their order, each on the state that the ones before have left."""
    links: list[Link] = []
    for rule_id, rule in rules:
        try:
            why = why_it_matches(rule.when, facts, now)
            steps = None if why is None else apply_actions(rule.then, facts)
        except Exception as error:  # noqa: BLE001 - a failing rule does not stop the mail
            links.append(Link(rule_id, rule, (), (), (f"it failed: {type(error).__name__}",)))
            continue
        if why is None or steps is None:
            continue
        links.append(Link(rule_id, rule, steps.actions, why, steps.problems))
        facts = replace(facts, state=steps.state)
        if steps.is_last:
            break
    return Chain(tuple(links), facts.state)
