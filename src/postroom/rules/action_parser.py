"""Parses the actions of a rule: `apply_label: Work`, `mark_read`, or the flat form."""

from __future__ import annotations

import re

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address
from postroom.mail.text.fold import fold
from postroom.model.rule import Action
from postroom.rules.definition import ACTIONS
from postroom.rules.yaml_document import Invalid, Mapping, Node, Scalar, SourcePosition

_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")
_WEBHOOK = re.compile(r"whk_[0-9a-z]{1,60}|https?://[!-~]{1,1990}", re.ASCII)
_KEY = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
MAX_REPLY = 10_000


def parse_action(node: Node) -> Action:
    """`apply_label: X`, `mark_read`, or the flat form."""
    if isinstance(node, Scalar):
        return _named_action(node.text, node.position, None)
    if isinstance(node, Mapping) and "type" in node.items:
        return _flat_action(node)
    if not isinstance(node, Mapping) or len(node.items) != 1:
        message = "an action is one word or a mapping with one key"
        raise Invalid(node.position, message, "`apply_label: Work`")
    ((name, (position, value)),) = node.items.items()
    return _named_action(name, position, value)


def _named_action(name: str, position: SourcePosition, value: Node | None) -> Action:
    if name not in ACTIONS:
        raise Invalid.unknown(position, "unknown action", name, ACTIONS)
    takes = ACTIONS[name].takes
    if not takes:
        if value is not None and not (isinstance(value, Scalar) and value.value in (None, True)):
            raise Invalid(value.position, f"`{name}` takes no value", f"`{name}` alone")
        return Action(name)
    if value is None:
        raise Invalid(position, f"`{name}` needs a value", f"`{name}: …` with {takes}")
    return _remember(value) if name == "remember" else Action(name, _checked(name, value))


def _flat_action(node: Mapping) -> Action:
    """`{type: apply_label, label: Work}`."""
    kind = node.items["type"][1]
    if not isinstance(kind, Scalar):
        raise Invalid(kind.position, "`type` must be a word", "the name of an action")
    if kind.text not in ACTIONS:
        raise Invalid.unknown(kind.position, "unknown action", kind.text, ACTIONS)
    names = (*ACTIONS[kind.text].names, "value")
    given = {name: pair for name, pair in node.items.items() if name != "type"}
    for name, (position, _) in given.items():
        if name not in names or not ACTIONS[kind.text].takes:
            expected = ", ".join(names[:-1]) or "nothing else"
            raise Invalid(position, f"`{kind.text}` takes no `{name[:50]}`", expected)
    if kind.text == "remember" and "value" not in given:
        return _remember(Mapping(node.position, given))
    if len(given) > 1:
        raise Invalid(node.position, f"`{kind.text}` takes one value", names[0])
    return _named_action(kind.text, kind.position, next((v for _, v in given.values()), None))


def _checked(name: str, node: Node) -> str:
    if not isinstance(node, Scalar) or node.value is None or not fold(node.text):
        raise Invalid(node.position, f"`{name}` needs a value", ACTIONS[name].takes)
    text = node.text
    if name in ("apply_label", "remove_label", "move"):
        most, what = (256, "a mailbox") if name == "move" else (128, "a label")
        if len(text) > most or not _LINE.fullmatch(text):
            raise Invalid(
                node.position, f"this is not {what}", f"1 to {most} characters on one line"
            )
    if name == "move" and text == "*":
        raise Invalid(node.position, "* means every mailbox", "one mailbox")
    if name == "webhook" and not _WEBHOOK.fullmatch(text):
        raise Invalid(node.position, "this is not a webhook", "whk_… or https://…")
    if name == "reply" and (len(text) > MAX_REPLY or "\x00" in text):
        raise Invalid(node.position, "this text is too long", f"{MAX_REPLY} characters at most")
    if name != "forward":
        return text
    try:
        return parse_address(text)[1]
    except InvalidInput:
        expected = "an address like a@b.org"
        raise Invalid(node.position, "this is not an address", expected) from None


def _remember(node: Node) -> Action:
    names = ACTIONS["remember"].names
    if not isinstance(node, Mapping) or set(node.items) != set(names):
        raise Invalid(node.position, "`remember` needs a key and a text", "{key: …, text: …}")
    key, text = (node.items[name][1] for name in names)
    if not isinstance(key, Scalar) or not _KEY.fullmatch(key.text):
        raise Invalid(key.position, "this is not a key", "1 to 256 characters on one line")
    if not isinstance(text, Scalar) or not 0 < len(text.text) <= MAX_REPLY:
        raise Invalid(text.position, "this is not a text", f"1 to {MAX_REPLY} characters")
    return Action("remember", text.text, key.text)
