"""Parses actions: `apply_label: X`, `mark_read`, and the flat form."""

from __future__ import annotations

import re

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address
from postroom.mail.text.fold import fold
from postroom.rules.definition import ACTIONS, Action
from postroom.rules.yaml_document import Invalid, Mapping, Node, Place, Problems, Scalar, Sequence

MAX_ACTIONS = 20
MAX_REPLY = 10_000
_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")
_WEBHOOK = re.compile(r"whk_[0-9a-z]{1,60}|https?://[!-~]{1,1990}", re.ASCII)
_KEY = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


def read_actions(node: Node, problems: Problems) -> tuple[Action, ...]:
    """The actions of a rule, in their order."""
    if not isinstance(node, Sequence) or not 0 < len(node.items) <= MAX_ACTIONS:
        problems.add(node.place, "actions must be a list", f"1 to {MAX_ACTIONS} actions")
        return ()
    found: list[Action] = []
    for item in node.items:
        try:
            action = _action(item, problems)
        except Invalid as invalid:
            problems.add(invalid.place or item.place, invalid.message, invalid.expected)
            continue
        if action is not None:
            found.append(action)
    for action, item in zip(found[:-1], node.items, strict=False):
        if action.type == "stop":
            problems.add(item.place, "actions after `stop` have no effect", "`stop` at the end")
    return tuple(found)


def _action(node: Node, problems: Problems) -> Action | None:
    if isinstance(node, Scalar):
        return _named(node.text, node.place, None, problems)
    if isinstance(node, Mapping) and "type" in node.items:
        return _flat(node, problems)
    if not isinstance(node, Mapping) or len(node.items) != 1:
        raise Invalid(
            "an action is one word or a mapping with one key",
            "`apply_label: Work`",
            place=node.place,
        )
    ((name, (place, value)),) = node.items.items()
    return _named(name, place, value, problems)


def _known(name: str, place: Place, problems: Problems) -> bool:
    if name in ACTIONS:
        return True
    problems.add_unknown(place, "unknown action", name, ACTIONS)
    return False


def _named(name: str, place: Place, value: Node | None, problems: Problems) -> Action | None:
    if not _known(name, place, problems):
        return None
    action_type = ACTIONS[name]
    if not action_type.takes:
        if value is not None and not (isinstance(value, Scalar) and value.value in (None, True)):
            raise Invalid(f"`{name}` takes no value", f"`{name}` alone", place=value.place)
        return Action(name)
    if value is None:
        raise Invalid(
            f"`{name}` needs a value", f"`{name}: …` with {action_type.takes}", place=place
        )
    if name == "remember":
        return _remember(value)
    return Action(name, _checked(name, value))


def _flat(node: Mapping, problems: Problems) -> Action | None:
    """`{type: apply_label, label: Work}`."""
    kind = node.items["type"][1]
    if not isinstance(kind, Scalar):
        raise Invalid("`type` must be a word", "the name of an action", place=kind.place)
    if not _known(kind.text, kind.place, problems):
        return None
    names = (*ACTIONS[kind.text].names, "value")
    given = {name: pair for name, pair in node.items.items() if name != "type"}
    for name, (place, _) in given.items():
        if name not in names or not ACTIONS[kind.text].takes:
            expected = ", ".join(names[:-1]) or "nothing else"
            problems.add(place, f"`{kind.text}` takes no `{name[:50]}`", expected)
            return None
    if kind.text == "remember" and "value" not in given:
        return _remember(Mapping(node.place, given))
    if len(given) > 1:
        raise Invalid(f"`{kind.text}` takes one value", names[0], place=node.place)
    value = next((pair[1] for pair in given.values()), None)
    return _named(kind.text, kind.place, value, problems)


def _checked(name: str, node: Node) -> str:
    if not isinstance(node, Scalar) or node.value is None or not fold(node.text):
        raise Invalid(f"`{name}` needs a value", ACTIONS[name].takes, place=node.place)
    text = node.text
    if name in ("apply_label", "remove_label"):
        _check_line(node, 128, "a label")
    elif name == "move":
        _check_line(node, 256, "a mailbox")
        if text == "*":
            raise Invalid("* means every mailbox", "one mailbox", place=node.place)
    elif name == "forward":
        return _address(node)
    elif name == "webhook" and not _WEBHOOK.fullmatch(text):
        raise Invalid("this is not a webhook", "whk_… or https://…", place=node.place)
    elif name == "reply" and (len(text) > MAX_REPLY or "\x00" in text):
        raise Invalid("this text is too long", f"{MAX_REPLY} characters at most", place=node.place)
    return text


def _check_line(node: Scalar, max_chars: int, what: str) -> None:
    if len(node.text) > max_chars or not _LINE.fullmatch(node.text):
        expected = f"1 to {max_chars} characters on one line"
        raise Invalid(f"this is not {what}", expected, place=node.place)


def _address(node: Scalar) -> str:
    try:
        return parse_address(node.text)[1]
    except InvalidInput:
        raise Invalid(
            "this is not an address", "an address like a@b.org", place=node.place
        ) from None


def _remember(node: Node) -> Action:
    names = ACTIONS["remember"].names
    if not isinstance(node, Mapping) or set(node.items) != set(names):
        raise Invalid("`remember` needs a key and a text", "{key: …, text: …}", place=node.place)
    key, text = (node.items[name][1] for name in names)
    if not isinstance(key, Scalar) or not _KEY.fullmatch(key.text):
        raise Invalid("this is not a key", "1 to 256 characters on one line", place=key.place)
    if not isinstance(text, Scalar) or not 0 < len(text.text) <= MAX_REPLY:
        raise Invalid("this is not a text", f"1 to {MAX_REPLY} characters", place=text.place)
    return Action("remember", text.text, key.text)
