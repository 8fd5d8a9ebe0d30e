"""Reading conditions: nested groups, comparisons, and the flat form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, cast

from postroom.mail.fold import fold
from postroom.model.message import FLAGS
from postroom.rules.definition import Comparison, Condition, Group, Kind, Value
from postroom.rules.document import Mapping, Node, Place, Scalar, Sequence
from postroom.rules.patterns import compile_glob, compile_regex
from postroom.rules.vocabulary import FIELDS, GROUPS, OPERATORS, Sort, closest

MOST_TESTS = 500
MOST_CHARS = 1000
_HEADER = re.compile(r"header\.[!-9;-~]{1,76}", re.ASCII)
_NUMBERS = {"size_bytes": 2**53, "age_days": 100_000}
_FLAT = ("field", "operator", "value")


class Notes(Protocol):
    """Whoever gathers problems."""

    def note(self, place: Place, message: str, expected: str = "", suggestion: str = "") -> None:
        """Keep one."""


def read_conditions(node: Node, problems: Notes, *, is_flat: bool) -> Group | None:
    """The conditions of a rule; a plain list means all of them."""
    if is_flat and not isinstance(node, Sequence):
        problems.note(node.place, "`conditions` must be a list", "- {field, operator, value}")
        return None
    read = _flat if is_flat else _condition
    if isinstance(node, Sequence):
        return _group("all", node, problems, read)
    condition = _condition(node, problems)
    if condition is None or isinstance(condition, Group):
        return condition
    return Group("all", (condition,))


def _group(
    kind: Kind, node: Node, problems: Notes, read: Callable[[Node, Notes], Condition | None]
) -> Group | None:
    items = node.items if isinstance(node, Sequence) else [node]
    if not items:
        problems.note(node.place, "there is no condition in this list", "at least one condition")
        return None
    if len(items) > MOST_TESTS:
        problems.note(node.place, "there are too many conditions", f"{MOST_TESTS} at most")
        return None
    parts = [part for item in items if (part := read(item, problems)) is not None]
    # What needs the headers of a message comes last: mostly it is not asked for at all.
    return Group(kind, tuple(sorted(parts, key=lambda part: part.needs_head)))


def _condition(node: Node, problems: Notes) -> Condition | None:
    if not isinstance(node, Mapping) or not node.items:
        problems.note(node.place, "a condition is a mapping", "`subject: {contains: invoice}`")
        return None
    parts = [
        part
        for name, (place, value) in node.items.items()
        if (part := _named(name, place, value, problems)) is not None
    ]
    if len(parts) == 1:
        return parts[0]
    return Group("all", tuple(sorted(parts, key=lambda part: part.needs_head)))


def _named(name: str, place: Place, value: Node, problems: Notes) -> Condition | None:
    if name in ("all", "any", "none"):
        return _group(cast(Kind, name), value, problems, _condition)
    if name == "not":
        inner = _group("all", value, problems, _condition)
        return Group("none", (inner,)) if inner else None
    known = _field(name, place, problems)
    return _comparison(known, value, problems) if known else None


def _field(name: str, place: Place, problems: Notes) -> str | None:
    if _HEADER.fullmatch(name):
        return name.lower()
    if name in FIELDS and name != "header.X":
        return name
    words = (*FIELDS, *GROUPS)
    problems.note(
        place, f"unknown field `{name[:50]}`", "one of " + ", ".join(FIELDS), closest(name, words)
    )
    return None


def sort_of(field: str) -> Sort:
    """Whether a field holds text, names, a number or a truth."""
    return FIELDS["header.X" if field.startswith("header.") else field]


def _comparison(field: str, node: Node, problems: Notes) -> Condition | None:
    if isinstance(node, Scalar):
        return _test(field, "equals", node, problems)
    if isinstance(node, Sequence):
        return _test(field, "in", node, problems)
    if not node.items:
        problems.note(node.place, f"`{field}` is compared with nothing", "an operator")
        return None
    parts = [
        part
        for name, (place, value) in node.items.items()
        if (part := _operator(field, name, place, value, problems)) is not None
    ]
    return parts[0] if len(parts) == 1 else Group("all", tuple(parts))


def _operator(
    field: str, name: str, place: Place, value: Node, problems: Notes
) -> Condition | None:
    if name == "not":
        inner = _comparison(field, value, problems)
        return Group("none", (inner,)) if inner else None
    known = OPERATORS[sort_of(field)]
    if name not in known:
        problems.note(
            place,
            f"`{field}` has no operator `{name[:50]}`",
            "one of " + ", ".join((*known, "not")),
            closest(name, known),
        )
        return None
    return _test(field, name, value, problems)


def _flat(node: Node, problems: Notes) -> Condition | None:
    """`{field: subject, operator: contains, value: invoice}`."""
    if not isinstance(node, Mapping):
        problems.note(node.place, "a condition is a mapping", "{field, operator, value}")
        return None
    for name, (place, _) in node.items.items():
        if name not in _FLAT:
            problems.note(
                place,
                f"unknown key `{name[:50]}`",
                "field, operator and value",
                closest(name, _FLAT),
            )
    field_node, operator, value = (node.items.get(name, (None, None))[1] for name in _FLAT)
    if not isinstance(field_node, Scalar) or not isinstance(operator, Scalar):
        problems.note(node.place, "a condition needs a field and an operator", "both as words")
        return None
    negated = operator.text.startswith("not_")
    name = operator.text.removeprefix("not_")
    if value is None and name == "exists":
        value = Scalar(node.place, "true", is_quoted=False)
    if value is None:
        problems.note(node.place, "a condition needs a value", "`value: …`")
        return None
    field = _field(field_node.text, field_node.place, problems)
    test = _operator(field, name, operator.place, value, problems) if field else None
    return Group("none", (test,)) if test and negated else test


def _test(field: str, operator: str, node: Node, problems: Notes) -> Comparison | None:
    try:
        value = _value(field, operator, node)
        finds = _pattern(operator, value)
    except _Wrong as wrong:
        problems.note(node.place, wrong.message, wrong.expected, wrong.suggestion)
        return None
    return Comparison(field, operator, value, finds)


class _Wrong(Exception):
    def __init__(self, message: str, expected: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.message, self.expected, self.suggestion = message, expected, suggestion


def _value(field: str, operator: str, node: Node) -> Value:
    if operator == "in":
        if not isinstance(node, Sequence) or not 0 < len(node.items) <= MOST_TESTS:
            raise _Wrong("`in` must be a list", f"a list of 1 to {MOST_TESTS} values")
        return tuple(_single(field, "equals", item) for item in node.items)
    return _single(field, operator, node)


def _single(field: str, operator: str, node: Node) -> str | int | bool:
    if not isinstance(node, Scalar):
        raise _Wrong(f"`{operator}` takes one value", "a single value")
    if operator == "exists" or sort_of(field) == "truth":
        return _truth(node)
    if sort_of(field) == "number":
        return _number(field, node)
    return _words(field, operator, node)


def _truth(node: Scalar) -> bool:
    if isinstance(node.value, bool):
        return node.value
    raise _Wrong(f"`{node.text[:50]}` is neither true nor false", "true or false")


def _number(field: str, node: Scalar) -> int:
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBERS[field]:
        return value
    raise _Wrong(f"`{field}` is a number", f"a whole number from 0 to {_NUMBERS[field]}")


def _words(field: str, operator: str, node: Scalar) -> str:
    text = node.text
    if node.value is None or not 0 < len(text) <= MOST_CHARS:
        raise _Wrong(f"`{operator}` needs a text", f"1 to {MOST_CHARS} characters")
    if operator != "regex" and not fold(text):
        raise _Wrong("there is nothing in this text but space", "a text")
    if field == "flag" and operator == "equals" and text.lower() not in FLAGS:
        raise _Wrong(
            f"there is no flag `{text[:50]}`", "one of " + ", ".join(FLAGS), closest(text, FLAGS)
        )
    return text


def _pattern(operator: str, value: Value) -> Callable[[str], bool] | None:
    if operator not in ("regex", "matches") or not isinstance(value, str):
        return None
    try:
        return compile_regex(value) if operator == "regex" else compile_glob(fold(value))
    except ValueError as error:
        raise _Wrong(
            f"this regular expression cannot be used: {error}", "the syntax of RE2"
        ) from None
