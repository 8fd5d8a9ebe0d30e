"""Parses conditions: nested groups, comparisons, and the flat form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from postroom.mail.text.fold import fold
from postroom.model.message import FLAGS
from postroom.rules.definition import (
    FIELDS,
    GROUPS,
    OPERATORS,
    Comparison,
    Condition,
    Group,
    Kind,
    Sort,
    Value,
    closest,
)
from postroom.rules.matching import compile_glob, compile_regex
from postroom.rules.yaml_document import Invalid, Mapping, Node, Place, Problems, Scalar, Sequence

MAX_TESTS = 500
MAX_CHARS = 1000
_HEADER = re.compile(r"header\.[!-9;-~]{1,76}", re.ASCII)
_NUMBERS = {"size_bytes": 2**53, "age_days": 100_000}
_FLAT = ("field", "operator", "value")


def read_conditions(node: Node, problems: Problems, *, is_flat: bool) -> Group | None:
    """The conditions of a rule; a plain list means all of them."""
    if is_flat and not isinstance(node, Sequence):
        problems.add(node.place, "`conditions` must be a list", "- {field, operator, value}")
        return None
    read = _flat if is_flat else _condition
    if isinstance(node, Sequence):
        return _group("all", node, problems, read)
    condition = _condition(node, problems)
    if condition is None or isinstance(condition, Group):
        return condition
    return Group("all", (condition,))


def _group(
    kind: Kind, node: Node, problems: Problems, read: Callable[[Node, Problems], Condition | None]
) -> Group | None:
    items = node.items if isinstance(node, Sequence) else [node]
    if not items:
        problems.add(node.place, "this list has no condition", "at least one condition")
        return None
    if len(items) > MAX_TESTS:
        problems.add(node.place, "too many conditions", f"{MAX_TESTS} at most")
        return None
    parts = [part for item in items if (part := read(item, problems)) is not None]
    # Conditions on headers come last: reading headers is slow, and mostly not needed.
    return Group(kind, tuple(sorted(parts, key=lambda part: part.needs_head)))


def _condition(node: Node, problems: Problems) -> Condition | None:
    if not isinstance(node, Mapping) or not node.items:
        problems.add(node.place, "a condition is a mapping", "`subject: {contains: invoice}`")
        return None
    parts = [
        part
        for name, (place, value) in node.items.items()
        if (part := _named(name, place, value, problems)) is not None
    ]
    if len(parts) == 1:
        return parts[0]
    return Group("all", tuple(sorted(parts, key=lambda part: part.needs_head)))


def _named(name: str, place: Place, value: Node, problems: Problems) -> Condition | None:
    if name in ("all", "any", "none"):
        return _group(cast(Kind, name), value, problems, _condition)
    if name == "not":
        inner = _group("all", value, problems, _condition)
        return Group("none", (inner,)) if inner else None
    known = _field(name, place, problems)
    return _comparison(known, value, problems) if known else None


def _field(name: str, place: Place, problems: Problems) -> str | None:
    if _HEADER.fullmatch(name):
        return name.lower()
    if name in FIELDS and name != "header.X":
        return name
    problems.add_unknown(place, "unknown field", name, FIELDS, GROUPS)
    return None


def sort_of(field: str) -> Sort:
    """The type of a field: text, names, number or truth."""
    return FIELDS["header.X" if field.startswith("header.") else field]


def _comparison(field: str, node: Node, problems: Problems) -> Condition | None:
    if isinstance(node, Scalar):
        return _test(field, "equals", node, problems)
    if isinstance(node, Sequence):
        return _test(field, "in", node, problems)
    if not node.items:
        problems.add(node.place, f"`{field}` has no operator", "an operator")
        return None
    parts = [
        part
        for name, (place, value) in node.items.items()
        if (part := _operator(field, name, place, value, problems)) is not None
    ]
    return parts[0] if len(parts) == 1 else Group("all", tuple(parts))


def _operator(
    field: str, name: str, place: Place, value: Node, problems: Problems
) -> Condition | None:
    if name == "not":
        inner = _comparison(field, value, problems)
        return Group("none", (inner,)) if inner else None
    known = OPERATORS[sort_of(field)]
    if name not in known:
        problems.add_unknown(place, f"`{field}` has no operator", name, (*known, "not"))
        return None
    return _test(field, name, value, problems)


def _flat(node: Node, problems: Problems) -> Condition | None:
    """`{field: subject, operator: contains, value: invoice}`."""
    if not isinstance(node, Mapping):
        problems.add(node.place, "a condition is a mapping", "{field, operator, value}")
        return None
    for name, (place, _) in node.items.items():
        if name not in _FLAT:
            problems.add_unknown(place, "unknown key", name, _FLAT)
    field_node, operator, value = (node.items.get(name, (None, None))[1] for name in _FLAT)
    if not isinstance(field_node, Scalar) or not isinstance(operator, Scalar):
        problems.add(node.place, "a condition needs a field and an operator", "both as words")
        return None
    negated = operator.text.startswith("not_")
    name = operator.text.removeprefix("not_")
    if value is None and name == "exists":
        value = Scalar(node.place, "true", is_quoted=False)
    if value is None:
        problems.add(node.place, "a condition needs a value", "`value: …`")
        return None
    field = _field(field_node.text, field_node.place, problems)
    test = _operator(field, name, operator.place, value, problems) if field else None
    return Group("none", (test,)) if test and negated else test


def _test(field: str, operator: str, node: Node, problems: Problems) -> Comparison | None:
    try:
        value = _value(field, operator, node)
        finds = _pattern(operator, value)
    except Invalid as invalid:
        problems.add(node.place, invalid.message, invalid.expected, invalid.suggestion)
        return None
    return Comparison(field, operator, value, finds)


def _value(field: str, operator: str, node: Node) -> Value:
    if operator == "in":
        if not isinstance(node, Sequence) or not 0 < len(node.items) <= MAX_TESTS:
            raise Invalid("`in` must be a list", f"a list of 1 to {MAX_TESTS} values")
        return tuple(_single(field, "equals", item) for item in node.items)
    return _single(field, operator, node)


def _single(field: str, operator: str, node: Node) -> str | int | bool:
    if not isinstance(node, Scalar):
        raise Invalid(f"`{operator}` takes one value", "a single value")
    if operator == "exists" or sort_of(field) == "truth":
        return _truth(node)
    if sort_of(field) == "number":
        return _number(field, node)
    return _words(field, operator, node)


def _truth(node: Scalar) -> bool:
    if isinstance(node.value, bool):
        return node.value
    raise Invalid(f"`{node.text[:50]}` is neither true nor false", "true or false")


def _number(field: str, node: Scalar) -> int:
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBERS[field]:
        return value
    raise Invalid(f"`{field}` is a number", f"a whole number from 0 to {_NUMBERS[field]}")


def _words(field: str, operator: str, node: Scalar) -> str:
    text = node.text
    if node.value is None or not 0 < len(text) <= MAX_CHARS:
        raise Invalid(f"`{operator}` needs a text", f"1 to {MAX_CHARS} characters")
    if operator != "regex" and not fold(text):
        raise Invalid("this text contains only white space", "a text")
    if field == "flag" and operator == "equals" and text.lower() not in FLAGS:
        raise Invalid(
            f"unknown flag `{text[:50]}`",
            "one of " + ", ".join(FLAGS),
            suggestion=closest(text, FLAGS),
        )
    return text


def _pattern(operator: str, value: Value) -> Callable[[str], bool] | None:
    if operator not in ("regex", "matches") or not isinstance(value, str):
        return None
    try:
        return compile_regex(value) if operator == "regex" else compile_glob(fold(value))
    except ValueError as error:
        raise Invalid(f"invalid regular expression: {error}", "the syntax of RE2") from None
