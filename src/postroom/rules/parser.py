"""Parses rules; every problem is reported with its line and column."""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.rules.action_parser import read_actions
from postroom.rules.condition_parser import read_conditions
from postroom.rules.definition import MAX_PLANNED, Action, Definition, Group, Safety
from postroom.rules.yaml_document import (
    BadDocument,
    Mapping,
    Node,
    Place,
    Problem,
    Problems,
    Scalar,
    read_documents,
)

UNTITLED = "Untitled rule"

_KEYS = (
    "version", "name", "description", "enabled", "inbox", "account", "when", "then", "safety",
    "conditions", "actions",
)  # fmt: skip
_LENGTHS = {"name": 200, "description": 2000, "inbox": 64, "account": 64}


def parse_rule(text: str, *, field: str = "rule_yaml") -> Definition:
    """Parse one rule. Raises InvalidInput with the place of every problem."""
    rules = parse_rules(text, field=field)
    if len(rules) != 1:
        problem = Problem(Place(1, 1), f"there are {len(rules)} documents", "one rule")
        raise _refused([problem], field)
    return rules[0]


def parse_rules(text: str, *, field: str = "rule_yaml") -> list[Definition]:
    """Parse several rules, one in each document. Raises InvalidInput."""
    problems = Problems()
    try:
        documents = read_documents(text)
    except BadDocument as error:
        raise _refused([error.problem], field) from None
    if not documents:
        raise _refused([Problem(Place(1, 1), "the document is empty", "a rule")], field)
    rules = [_read_rule(document, problems) for document in documents]
    if problems.found:
        raise _refused(problems.found, field)
    return [rule for rule in rules if rule is not None]


def _refused(problems: list[Problem], field: str) -> InvalidInput:
    details = [
        {
            "field": field,
            "problem": str(problem),
            "line": problem.place.line,
            "column": problem.place.column,
            "expected": problem.expected,
            "suggestion": problem.suggestion,
        }
        for problem in problems
    ]
    return InvalidInput(f"{field}: " + "; ".join(map(str, problems)), problems=details)


def _read_rule(document: Node, problems: Problems) -> Definition | None:
    if not isinstance(document, Mapping):
        problems.add(document.place, "a rule is a mapping", "`name: …`, `when: …`, `then: …`")
        return None
    before = len(problems.found)
    _check_keys(document, problems)
    when = _condition(document, problems)
    then = _actions(document, problems)
    texts = {name: _text(document, name, problems) for name in _LENGTHS}
    enabled = _truth(document, "enabled", problems, default=True)
    safety = _safety(document, problems)
    if when is None or len(problems.found) > before:
        return None
    return Definition(
        name=texts["name"] or UNTITLED,
        when=when,
        then=then,
        description=texts["description"] or "",
        enabled=enabled,
        inbox=texts["inbox"],
        account=texts["account"],
        safety=safety,
    )


def _check_keys(document: Mapping, problems: Problems) -> None:
    for name, (place, _) in document.items.items():
        if name not in _KEYS:
            problems.add_unknown(place, "unknown key", name, _KEYS[:9], _KEYS[9:])
    version = document.items.get("version")
    if version and not (isinstance(version[1], Scalar) and version[1].value == 1):
        problems.add(version[1].place, "unknown version", "1")
    for first, second in (("when", "conditions"), ("then", "actions"), ("inbox", "account")):
        if first in document.items and second in document.items:
            problems.add(document.items[second][0], f"give `{first}` or `{second}`, not both")


def _condition(document: Mapping, problems: Problems) -> Group | None:
    for name in ("when", "conditions"):
        if name in document.items:
            return read_conditions(document.items[name][1], problems, is_flat=name == "conditions")
    problems.add(document.place, "there is no condition", "`when:` with a list of conditions")
    return None


def _actions(document: Mapping, problems: Problems) -> tuple[Action, ...]:
    for name in ("then", "actions"):
        if name in document.items:
            return read_actions(document.items[name][1], problems)
    problems.add(document.place, "there is no action", "`then:` with a list of actions")
    return ()


def _text(document: Mapping, name: str, problems: Problems) -> str | None:
    if name not in document.items:
        return None
    node = document.items[name][1]
    max_chars = _LENGTHS[name]
    if not isinstance(node, Scalar) or node.value is None or not 0 < len(node.text) <= max_chars:
        problems.add(node.place, f"`{name}` must be a text", f"1 to {max_chars} characters")
        return None
    if name != "description" and not node.text.isprintable():
        problems.add(node.place, f"`{name}` must be in one line", "a text in one line")
        return None
    return node.text


def _truth(document: Mapping, name: str, problems: Problems, *, default: bool) -> bool:
    if name not in document.items:
        return default
    node = document.items[name][1]
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    problems.add(node.place, f"`{name}` must be true or false", "true or false")
    return default


_SAFETY = ("max_messages", "require_plan", "undo")


def _safety(document: Mapping, problems: Problems) -> Safety:
    if "safety" not in document.items:
        return Safety()
    node = document.items["safety"][1]
    if not isinstance(node, Mapping):
        problems.add(node.place, "`safety` must be a mapping", "`max_messages: 1000`")
        return Safety()
    for name, (place, _) in node.items.items():
        if name not in _SAFETY:
            problems.add_unknown(place, "unknown key", name, _SAFETY)
    return Safety(
        max_messages=_count(node, "max_messages", problems),
        require_plan=_truth(node, "require_plan", problems, default=False),
        undo=_truth(node, "undo", problems, default=True),
    )


def _count(node: Mapping, name: str, problems: Problems) -> int:
    if name not in node.items:
        return Safety().max_messages
    given = node.items[name][1]
    value = given.value if isinstance(given, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PLANNED:
        return value
    problems.add(given.place, f"`{name}` must be a number", f"1 to {MAX_PLANNED}")
    return Safety().max_messages
