"""Parses rules: every problem is reported with its line and column.

A reader of a part returns its value or raises Invalid. Lists and mappings continue with their
other parts, so that a caller sees all problems together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from postroom.errors import InvalidInput
from postroom.mail.text.fold import fold
from postroom.model.mail.message import FLAGS
from postroom.model.rule import Action
from postroom.rules.action_parser import parse_action
from postroom.rules.definition import (
    FIELDS,
    FLAT_KEYS,
    GROUPS,
    KEYS,
    MAX_PLANNED,
    OPERATORS,
    SAFETY_KEYS,
    Comparison,
    Condition,
    Definition,
    FieldType,
    Group,
    Kind,
    Safety,
    Value,
)
from postroom.rules.matching import compile_glob, compile_regex, read_moment
from postroom.rules.yaml_document import (
    Invalid,
    Mapping,
    Node,
    Problem,
    Problems,
    Scalar,
    Sequence,
    SourcePosition,
    read_documents,
)

UNTITLED = "Untitled rule"

_LENGTHS = {"name": 200, "description": 2000, "inbox": 254, "account": 64}
_FLAT = ("field", "operator", "value")
_NUMBERS = {"size_bytes": 2**53, "age_days": 100_000}
_MOMENTS = "`date: {after: 2026-01-31, before: 2026-02-28T12:00Z}`"
_HEADER = re.compile(r"header\.[!-9;-~]{1,76}", re.ASCII)
MAX_TESTS = 500
MAX_CHARS = 1000
MAX_ACTIONS = 20


def parse_rule(text: str, *, field: str = "rule_yaml") -> Definition:
    """Parse one rule. Raises InvalidInput with the place of every problem."""
    rules = parse_rules(text, field=field)
    if len(rules) != 1:
        problem = Problem(SourcePosition(1, 1), f"there are {len(rules)} documents", "one rule")
        raise _refused([problem], field)
    return rules[0]


def parse_rules(text: str, *, field: str = "rule_yaml") -> list[Definition]:
    """Parse several rules, one in each document. Raises InvalidInput."""
    try:
        documents = read_documents(text)
    except Invalid as invalid:
        raise _refused([invalid.problem], field) from None
    if not documents:
        raise _refused([Problem(SourcePosition(1, 1), "the document is empty", "a rule")], field)
    reader = _RuleReader()
    rules = [reader.problems.attempt(reader.rule, document) for document in documents]
    if reader.problems.found:
        raise _refused(reader.problems.found, field)
    return [rule for rule in rules if rule is not None]


def _refused(problems: list[Problem], field: str) -> InvalidInput:
    details = [
        {
            "field": field,
            "problem": str(problem),
            "line": problem.position.line,
            "column": problem.position.column,
            "expected": problem.expected,
            "suggestion": problem.suggestion,
        }
        for problem in problems
    ]
    return InvalidInput(f"{field}: " + "; ".join(map(str, problems)), problems=details)


_Member = tuple[str, tuple[SourcePosition, Node]]
"""A key of a mapping, with its place and its value."""


class _RuleReader:
    """Reads rules, and collects the problems of all their parts."""

    def __init__(self) -> None:
        self.problems = Problems()

    def rule(self, document: Node) -> Definition | None:
        """The rule in a document; None if it has problems."""
        if not isinstance(document, Mapping):
            raise Invalid(
                document.position, "a rule is a mapping", "`name: …`, `when: …`, `then: …`"
            )
        attempt = self.problems.attempt
        self._check_keys(document)
        when = attempt(self._conditions, document)
        then = attempt(self._actions, document)
        texts = {name: attempt(_text, document, name) for name in _LENGTHS}
        enabled = attempt(_boolean, document, "enabled", default=True)
        safety = attempt(self._safety, document)
        if when is None or then is None or enabled is None or safety is None:
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

    def _check_keys(self, document: Mapping) -> None:
        self._refuse_unknown(document, KEYS, FLAT_KEYS)
        version = document.get("version")
        if version is not None and not (isinstance(version, Scalar) and version.value == 1):
            self.problems.add(Invalid(version.position, "unknown version", "1"))
        for first, second in (("when", "conditions"), ("then", "actions"), ("inbox", "account")):
            if first in document.items and second in document.items:
                position = document.items[second][0]
                self.problems.add(Invalid(position, f"give `{first}` or `{second}`, not both"))

    def _refuse_unknown(
        self, node: Mapping, known: tuple[str, ...], more: tuple[str, ...] = ()
    ) -> None:
        for name, (position, _) in node.items.items():
            if name not in known and name not in more:
                self.problems.add(Invalid.unknown(position, "unknown key", name, known, more))

    def _safety(self, document: Mapping) -> Safety:
        node = document.get("safety")
        if node is None:
            return Safety()
        if not isinstance(node, Mapping):
            raise Invalid(node.position, "`safety` must be a mapping", "`max_messages: 1000`")
        self._refuse_unknown(node, SAFETY_KEYS)
        attempt = self.problems.attempt
        return Safety(
            max_messages=attempt(_max_messages, node) or 0,
            require_plan=attempt(_boolean, node, "require_plan", default=False) or False,
            undo=attempt(_boolean, node, "undo", default=True) or False,
        )

    def _conditions(self, document: Mapping) -> Group:
        """The conditions of a rule; a plain list means all of them."""
        is_flat = "when" not in document.items
        node = document.get("conditions" if is_flat else "when")
        if node is None:
            expected = "`when:` with a list of conditions"
            raise Invalid(document.position, "there is no condition", expected)
        if is_flat and not isinstance(node, Sequence):
            expected = "- {field, operator, value}"
            raise Invalid(node.position, "`conditions` must be a list", expected)
        if isinstance(node, Sequence):
            return self._group("all", node, self._flat if is_flat else self._condition)
        condition = self._condition(node)
        return condition if isinstance(condition, Group) else Group("all", (condition,))

    def _group(self, kind: Kind, node: Node, read: Callable[[Node], Condition]) -> Group:
        items = node.items if isinstance(node, Sequence) else [node]
        if not items:
            raise Invalid(node.position, "this list has no condition", "at least one condition")
        if len(items) > MAX_TESTS:
            raise Invalid(node.position, "too many conditions", f"{MAX_TESTS} at most")
        parts = [part for item in items if (part := self.problems.attempt(read, item)) is not None]
        # Conditions on headers come last: reading headers is slow, and mostly not needed.
        return Group(kind, tuple(sorted(parts, key=lambda part: part.needs_head)))

    def _all_of(self, node: Mapping, read: Callable[[_Member], Condition]) -> Condition:
        """The conditions of a mapping, all of which must hold."""
        found = (self.problems.attempt(read, member) for member in node.items.items())
        parts = [part for part in found if part is not None]
        if len(parts) == 1:
            return parts[0]
        return Group("all", tuple(sorted(parts, key=lambda part: part.needs_head)))

    def _condition(self, node: Node) -> Condition:
        if not isinstance(node, Mapping) or not node.items:
            raise Invalid(
                node.position, "a condition is a mapping", "`subject: {contains: invoice}`"
            )
        return self._all_of(node, self._condition_member)

    def _condition_member(self, member: _Member) -> Condition:
        name, (position, value) = member
        if name in ("all", "any", "none"):
            return self._group(cast(Kind, name), value, self._condition)
        if name == "not":
            return Group("none", (self._group("all", value, self._condition),))
        return self._comparison(_field(name, position), value)

    def _comparison(self, field: str, node: Node) -> Condition:
        if _type_of(field) == "moment" and not isinstance(node, Mapping):
            raise Invalid(node.position, f"`{field}` needs after or before", _MOMENTS)
        if isinstance(node, Scalar):
            return _test(field, "equals", node)
        if isinstance(node, Sequence):
            return _test(field, "in", node)
        if not node.items:
            raise Invalid(node.position, f"`{field}` has no operator", "an operator")
        return self._all_of(node, lambda member: self._operator(field, member[0], *member[1]))

    def _operator(self, field: str, name: str, position: SourcePosition, value: Node) -> Condition:
        if name == "not":
            return Group("none", (self._comparison(field, value),))
        known = OPERATORS[_type_of(field)]
        if name not in known:
            raise Invalid.unknown(position, f"`{field}` has no operator", name, (*known, "not"))
        return _test(field, name, value)

    def _flat(self, node: Node) -> Condition:
        """`{field: subject, operator: contains, value: invoice}`."""
        if not isinstance(node, Mapping):
            raise Invalid(node.position, "a condition is a mapping", "{field, operator, value}")
        self._refuse_unknown(node, _FLAT)
        field, operator, value = map(node.get, _FLAT)
        if not isinstance(field, Scalar) or not isinstance(operator, Scalar):
            raise Invalid(
                node.position, "a condition needs a field and an operator", "both as words"
            )
        name = operator.text.removeprefix("not_")
        if value is None and name == "exists":
            value = Scalar(node.position, "true", is_quoted=False)
        if value is None:
            raise Invalid(node.position, "a condition needs a value", "`value: …`")
        test = self._operator(_field(field.text, field.position), name, operator.position, value)
        return Group("none", (test,)) if operator.text.startswith("not_") else test

    def _actions(self, document: Mapping) -> tuple[Action, ...]:
        """The actions of a rule, in their order."""
        node = document.get("then" if "then" in document.items else "actions")
        if node is None:
            raise Invalid(document.position, "there is no action", "`then:` with a list of actions")
        if not isinstance(node, Sequence) or not 0 < len(node.items) <= MAX_ACTIONS:
            raise Invalid(node.position, "actions must be a list", f"1 to {MAX_ACTIONS} actions")
        read = (self.problems.attempt(parse_action, item) for item in node.items)
        found = [action for action in read if action is not None]
        for action, item in zip(found[:-1], node.items, strict=False):
            if action.type == "stop":
                message = "actions after `stop` have no effect"
                self.problems.add(Invalid(item.position, message, "`stop` at the end"))
        return tuple(found)


def _text(document: Mapping, name: str) -> str | None:
    node = document.get(name)
    if node is None:
        return None
    most = _LENGTHS[name]
    if not isinstance(node, Scalar) or node.value is None or not 0 < len(node.text) <= most:
        raise Invalid(node.position, f"`{name}` must be a text", f"1 to {most} characters")
    if name != "description" and not node.text.isprintable():
        raise Invalid(node.position, f"`{name}` must be in one line", "a text in one line")
    return node.text


def _boolean(document: Mapping, name: str, *, default: bool) -> bool:
    node = document.get(name)
    if node is None:
        return default
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    raise Invalid(node.position, f"`{name}` must be true or false", "true or false")


def _max_messages(node: Mapping) -> int:
    given = node.get("max_messages")
    if given is None:
        return Safety().max_messages
    if (number := _number(given, 1, MAX_PLANNED)) is None:
        raise Invalid(given.position, "`max_messages` must be a number", f"1 to {MAX_PLANNED}")
    return number


def _number(node: Node, least: int, most: int) -> int | None:
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    return None


def _field(name: str, position: SourcePosition) -> str:
    if _HEADER.fullmatch(name):
        return name.lower()
    if name in FIELDS and name != "header.X":
        return name
    raise Invalid.unknown(position, "unknown field", name, FIELDS, GROUPS)


def _type_of(field: str) -> FieldType:
    return FIELDS["header.X" if field.startswith("header.") else field]


def _test(field: str, operator: str, node: Node) -> Comparison:
    value = _value(field, operator, node)
    pattern = _pattern(operator, value, node.position)
    return Comparison(field, operator, value, pattern, node.position.line)


def _value(field: str, operator: str, node: Node) -> Value:
    if operator != "in":
        return _single(field, operator, node, node.position)
    if not isinstance(node, Sequence) or not 0 < len(node.items) <= MAX_TESTS:
        raise Invalid(node.position, "`in` must be a list", f"a list of 1 to {MAX_TESTS} values")
    return tuple(_single(field, "equals", item, node.position) for item in node.items)


def _single(field: str, operator: str, node: Node, position: SourcePosition) -> str | int | bool:
    if not isinstance(node, Scalar):
        raise Invalid(position, f"`{operator}` takes one value", "a single value")
    if operator == "exists" or _type_of(field) == "boolean":
        if isinstance(node.value, bool):
            return node.value
        raise Invalid(position, f"`{node.text[:50]}` is neither true nor false", "true or false")
    if _type_of(field) == "moment":
        return _moment(node, position)
    if _type_of(field) != "number":
        return _words(field, operator, node, position)
    most = _NUMBERS[field]
    if (number := _number(node, 0, most)) is None:
        raise Invalid(position, f"`{field}` is a number", f"a whole number from 0 to {most}")
    return number


def _moment(node: Scalar, position: SourcePosition) -> str:
    try:
        read_moment(node.text)
    except ValueError:
        raise Invalid(position, f"`{node.text[:50]}` is not a date", _MOMENTS) from None
    return node.text


def _words(field: str, operator: str, node: Scalar, position: SourcePosition) -> str:
    text = node.text
    if node.value is None or not 0 < len(text) <= MAX_CHARS:
        raise Invalid(position, f"`{operator}` needs a text", f"1 to {MAX_CHARS} characters")
    if operator != "regex" and not fold(text):
        raise Invalid(position, "this text contains only white space", "a text")
    if field == "flag" and operator == "equals" and text.lower() not in FLAGS:
        raise Invalid.unknown(position, "unknown flag", text, FLAGS)
    return text


def _pattern(operator: str, value: Value, position: SourcePosition) -> Callable[[str], bool] | None:
    if operator not in ("regex", "matches") or not isinstance(value, str):
        return None
    try:
        return compile_regex(value) if operator == "regex" else compile_glob(fold(value))
    except ValueError as error:
        raise Invalid(
            position, f"invalid regular expression: {error}", "the syntax of RE2"
        ) from None
