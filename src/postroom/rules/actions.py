"""Reading actions: `apply_label: X`, `mark_read`, and the flat form."""

from __future__ import annotations

import re

from postroom.errors import InvalidInput
from postroom.mail.compose import parse_address
from postroom.mail.fold import fold
from postroom.rules.conditions import Notes
from postroom.rules.definition import Action
from postroom.rules.document import Mapping, Node, Place, Scalar, Sequence
from postroom.rules.vocabulary import ACTIONS, closest

MOST_ACTIONS = 20
MOST_REPLY = 10_000
_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")
_WEBHOOK = re.compile(r"whk_[0-9a-z]{1,60}|https?://[!-~]{1,1990}", re.ASCII)
_KEY = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


class _Wrong(Exception):
    def __init__(self, place: Place, message: str, expected: str) -> None:
        super().__init__(message)
        self.place, self.message, self.expected = place, message, expected


def read_actions(node: Node, problems: Notes) -> tuple[Action, ...]:
    """The actions of a rule, in their order."""
    if not isinstance(node, Sequence) or not 0 < len(node.items) <= MOST_ACTIONS:
        problems.note(node.place, "actions must be a list", f"1 to {MOST_ACTIONS} actions")
        return ()
    found: list[Action] = []
    for item in node.items:
        try:
            action = _action(item, problems)
        except _Wrong as wrong:
            problems.note(wrong.place, wrong.message, wrong.expected)
            continue
        if action is not None:
            found.append(action)
    for action, item in zip(found[:-1], node.items, strict=False):
        if action.type == "stop":
            problems.note(item.place, "nothing after `stop` would happen", "`stop` at the end")
    return tuple(found)


def _action(node: Node, problems: Notes) -> Action | None:
    if isinstance(node, Scalar):
        return _named(node.text, node.place, None, problems)
    if isinstance(node, Mapping) and "type" in node.items:
        return _flat(node, problems)
    if not isinstance(node, Mapping) or len(node.items) != 1:
        raise _Wrong(node.place, "an action is one word or one key", "`apply_label: Work`")
    ((name, (place, value)),) = node.items.items()
    return _named(name, place, value, problems)


def _known(name: str, place: Place, problems: Notes) -> bool:
    if name in ACTIONS:
        return True
    problems.note(
        place,
        f"unknown action `{name[:50]}`",
        "one of " + ", ".join(ACTIONS),
        closest(name, ACTIONS),
    )
    return False


def _named(name: str, place: Place, value: Node | None, problems: Notes) -> Action | None:
    if not _known(name, place, problems):
        return None
    deed = ACTIONS[name]
    if not deed.takes:
        if value is not None and not (isinstance(value, Scalar) and value.value in (None, True)):
            raise _Wrong(value.place, f"`{name}` takes no value", f"`{name}` alone")
        return Action(name)
    if value is None:
        raise _Wrong(place, f"`{name}` needs a value", f"`{name}: …` with {deed.takes}")
    if name == "remember":
        return _remember(value)
    return Action(name, _checked(name, value))


def _flat(node: Mapping, problems: Notes) -> Action | None:
    """`{type: apply_label, label: Work}`."""
    kind = node.items["type"][1]
    if not isinstance(kind, Scalar):
        raise _Wrong(kind.place, "`type` must be a word", "the name of an action")
    if not _known(kind.text, kind.place, problems):
        return None
    names = (*ACTIONS[kind.text].names, "value")
    given = {name: pair for name, pair in node.items.items() if name != "type"}
    for name, (place, _) in given.items():
        if name not in names or not ACTIONS[kind.text].takes:
            wanted = ", ".join(names[:-1]) or "nothing else"
            problems.note(place, f"`{kind.text}` takes no `{name[:50]}`", wanted)
            return None
    if kind.text == "remember" and "value" not in given:
        return _remember(Mapping(node.place, given))
    if len(given) > 1:
        raise _Wrong(node.place, f"`{kind.text}` takes one value", names[0])
    value = next((pair[1] for pair in given.values()), None)
    return _named(kind.text, kind.place, value, problems)


def _checked(name: str, node: Node) -> str:
    if not isinstance(node, Scalar) or node.value is None or not fold(node.text):
        raise _Wrong(node.place, f"`{name}` needs a value", ACTIONS[name].takes)
    text = node.text
    if name in ("apply_label", "remove_label"):
        _check_line(node, 128, "a label")
    elif name == "move":
        _check_line(node, 256, "a mailbox")
        if text == "*":
            raise _Wrong(node.place, "* means every mailbox", "one mailbox")
    elif name == "forward":
        return _address(node)
    elif name == "webhook" and not _WEBHOOK.fullmatch(text):
        raise _Wrong(node.place, "this is no webhook", "whk_… or https://…")
    elif name == "reply" and (len(text) > MOST_REPLY or "\x00" in text):
        raise _Wrong(node.place, "this text is too long", f"{MOST_REPLY} characters at most")
    return text


def _check_line(node: Scalar, most: int, what: str) -> None:
    if len(node.text) > most or not _LINE.fullmatch(node.text):
        raise _Wrong(node.place, f"this is not {what}", f"1 to {most} characters on one line")


def _address(node: Scalar) -> str:
    try:
        return parse_address(node.text)[1]
    except InvalidInput:
        raise _Wrong(node.place, "this is not an address", "an address like a@b.org") from None


def _remember(node: Node) -> Action:
    names = ACTIONS["remember"].names
    if not isinstance(node, Mapping) or set(node.items) != set(names):
        raise _Wrong(node.place, "`remember` needs a key and a text", "{key: …, text: …}")
    key, text = (node.items[name][1] for name in names)
    if not isinstance(key, Scalar) or not _KEY.fullmatch(key.text):
        raise _Wrong(key.place, "this is not a key", "1 to 256 characters on one line")
    if not isinstance(text, Scalar) or not 0 < len(text.text) <= MOST_REPLY:
        raise _Wrong(text.place, "this is not a text", f"1 to {MOST_REPLY} characters")
    return Action("remember", text.text, key.text)
