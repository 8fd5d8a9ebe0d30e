"""Conditions that no mail can meet, or hardly any, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from postroom.mail.text.fold import fold, is_address_or_domain
from postroom.rules.definition import Comparison, Condition, Definition, Group
from postroom.rules.matching import plain, read_moment

_PEOPLE = ("from", "to", "cc")
_DOMAIN = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_IN_BRACKETS = re.compile(r"<([^<>\s]+@[^<>\s]+)>")
_SINGLE = ("subject", "text", "size_bytes")
"""Fields of which a message has one value; others may have several."""


Warned = tuple[int, str]
"""The line of a condition in the text of the rule, and what is wrong with it."""


def impossible_conditions(rule: Definition) -> Iterator[str]:
    """Each condition that cannot hold as it was meant, with advice."""
    return (text for _, text in impossible_lines(rule))


def impossible_lines(rule: Definition) -> Iterator[Warned]:
    """The same with the line of each condition."""
    for test in rule.tests():
        if advice := _advice(test):
            yield test.line, f"{plain(test)} {advice}"
    yield from _contradictions(rule.when)


def _advice(test: Comparison) -> str:
    """What is wrong with a comparison, and what to write instead; empty if nothing is."""
    if test.operator == "less_than" and test.value == 0:
        return "never matches; it is never below 0"
    if test.operator not in ("equals", "in"):
        return ""
    of_each = [_advice_for(test.field, fold(str(value))) for value in test.values]
    return of_each[0] if all(of_each) else ""


def _advice_for(field: str, value: str) -> str:
    if field == "attachment.type" and "/" not in value:
        return f'never matches; a type is like "application/pdf"; write {{contains: {value}}}'
    if field not in _PEOPLE or is_address_or_domain(value):
        return ""
    if found := _IN_BRACKETS.search(value):
        return f'never matches; write the address alone: "{found[1]}"'
    if "@" in value:
        return "never matches; write a whole address, @domain, or {contains: …}"
    if _DOMAIN.fullmatch(value):
        better = f'write "@{value}" for the domain, or {{contains: {value}}}'
        return f"never matches an address, only a name; {better}"
    return ""


def _contradictions(condition: Condition) -> Iterator[Warned]:
    """Conditions of which all must hold, but two exclude each other."""
    if isinstance(condition, Comparison):
        return
    if condition.kind == "all":
        tests = [part for part in _all_of(condition) if isinstance(part, Comparison)]
        for at, test in enumerate(tests):
            for other in tests[at + 1 :]:
                if _exclude(test, other):
                    yield other.line, f"{plain(test)} and {plain(other)} never hold together"
        yield from _denied(condition, tests)
    for part in condition.parts:
        if not (condition.kind == "all" and isinstance(part, Group) and part.kind == "all"):
            yield from _contradictions(part)


def _all_of(group: Group) -> Iterator[Condition]:
    for part in group.parts:
        if isinstance(part, Group) and part.kind == "all":
            yield from _all_of(part)
        else:
            yield part


def _denied(group: Group, tests: Sequence[Comparison]) -> Iterator[Warned]:
    for part in _all_of(group):
        if isinstance(part, Group) and part.kind == "none":
            for denied in part.parts:
                if isinstance(denied, Comparison) and denied in tests:
                    what = f"{plain(denied)} must hold and must not, so nothing matches"
                    yield denied.line, what


def _exclude(test: Comparison, other: Comparison) -> bool:
    if test.field != other.field:
        return False
    lower, upper = sorted((test, other), key=lambda one: one.operator in ("before", "less_than"))
    pair = (lower.operator, upper.operator)
    if pair == ("after", "before"):
        return read_moment(str(lower.value)) >= read_moment(str(upper.value))
    if isinstance(lower.value, int) and isinstance(upper.value, int):
        if pair == ("greater_than", "less_than"):
            return lower.value >= upper.value
        if test.operator in ("exists", "equals") and test.operator == other.operator:
            return test.value != other.value
    if pair != ("equals", "equals") or test.field not in _SINGLE:
        return False
    return fold(str(test.value)) != fold(str(other.value))
