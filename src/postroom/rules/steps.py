"""What actions make of a message: which of them do something, and how it is afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from postroom.model.facts import Facts, State
from postroom.model.inbox import ARCHIVE, TRASH
from postroom.rules.definition import Action

MOST_LABELS = 100


@dataclass(frozen=True, slots=True)
class Steps:
    """The actions that change something or reach somebody, and the state they lead to."""

    actions: tuple[Action, ...]
    state: State
    is_last: bool = False
    problems: tuple[str, ...] = ()


def take_steps(actions: Sequence[Action], facts: Facts) -> Steps:
    """Take each action in its turn; one that changes nothing is left out."""
    state = facts.state
    taken: list[Action] = []
    problems: list[str] = []
    for action in actions:
        if action.type == "stop":
            return Steps(tuple(taken), state, is_last=True, problems=tuple(problems))
        if action.type in _REACH:
            if refusal := _refusal(action, facts):
                problems.append(refusal)
            else:
                taken.append(action)
            continue
        after = _CHANGES[action.type](state, action.value)
        if len(after.labels) > MOST_LABELS:
            problems.append(f"a message can carry {MOST_LABELS} labels at most")
        elif after != state:
            state = after
            taken.append(action)
    return Steps(tuple(taken), state, problems=tuple(problems))


_REACH = ("forward", "reply", "webhook", "remember")


def _refusal(action: Action, facts: Facts) -> str:
    """Why an action would begin a loop (RFC 3834), or empty."""
    head = facts.head
    if action.type not in ("forward", "reply") or head is None:
        return ""
    if head.is_ours or head.is_report or facts.direction == "outbound":
        return f"{action.type}: mail of rules, reports and mail of our own are left alone"
    if action.type == "reply" and (head.is_automatic or not facts.sender):
        return "reply: mail that a machine sent is not answered"
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
