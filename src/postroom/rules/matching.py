"""Compares conditions with a message; conditions that no mail meets, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import lru_cache

import re2  # type: ignore[import-untyped]

from postroom.mail.text.fold import fold, is_address_or_domain, is_at
from postroom.model.inbox import standard_mailbox
from postroom.model.mail.message import NamedAddress
from postroom.model.rule import Facts, HeaderFacts
from postroom.rules.definition import Comparison, Condition, Definition, Group, required_parts

_MAX_BYTES = 4 << 20
"""The memory limit of a compiled pattern."""


def compile_regex(pattern: str) -> Callable[[str], bool]:
    """A search for a regular expression in a text. Raises ValueError."""
    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.log_errors = False
    try:
        search = re2.compile(pattern, options).search
    except (re2.error, UnicodeError) as error:
        raise ValueError(_reason(error)) from None
    return lambda text: search(_without_surrogates(text)) is not None


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A comparison of a folded text with a pattern of * (any text) and ? (any character)."""
    words = {"*": ".*", "?": "."}
    return compile_regex("(?s)^" + "".join(words.get(c) or re2.escape(c) for c in pattern) + "$")


def _without_surrogates(text: str) -> str:
    """Replace surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _reason(error: Exception) -> str:
    message = error.args[0] if error.args else ""
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)


Why = tuple[str, ...]
_DAY_S = 86_400
_SHOWN = 80


class HeadersNeeded(Exception):
    """The result depends on the headers, which were not read yet."""


def why_it_matches(condition: Condition, facts: Facts, now: datetime) -> Why | None:
    """The reasons why a condition holds; None if it does not. Raises HeadNeeded."""
    if isinstance(condition, Comparison):
        found = _found(condition, facts, now)
        return None if found is None else (_reason_for(condition, found),)
    found_parts = (why_it_matches(part, facts, now) for part in condition.parts)
    if condition.kind == "any":
        return next((why for why in found_parts if why is not None), None)
    if condition.kind == "none":
        is_any = any(why is not None for why in found_parts)
        return None if is_any else tuple(f"not {plain(part)}" for part in condition.parts)
    reasons: list[str] = []
    for why in found_parts:
        if why is None:
            return None
        reasons += why
    return tuple(reasons)


def plain(condition: Condition) -> str:
    """A condition as text."""
    if isinstance(condition, Comparison):
        return f"{condition.field} {condition.operator} {_value_text(condition.value)}"
    words = [plain(part) for part in condition.parts]
    if condition.kind == "none":
        return "not " + " or ".join(words)
    joined = (" and " if condition.kind == "all" else " or ").join(words)
    return joined if len(words) == 1 else f"({joined})"


def _reason_for(test: Comparison, found: str) -> str:
    words = plain(test)
    is_shown = found and found != str(test.value) and test.field not in ("text", "subject")
    return f"{words} ({_cut(found)})" if is_shown else words


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        items = [_value_text(item) for item in value[:5]] + (["…"] if len(value) > 5 else [])
        return f"[{', '.join(items)}]"
    return str(value) if isinstance(value, int) else f'"{_cut(str(value))}"'


def _cut(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"


@lru_cache(maxsize=4096)
def read_moment(text: str) -> datetime:
    """A date (00:00) or a time of a condition; without an offset it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.microsecond and moment.year < MAXYEAR:
        # Rounded up, because dates of messages are whole seconds.
        moment = moment.replace(microsecond=0) + timedelta(seconds=1)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _found(test: Comparison, facts: Facts, now: datetime) -> str | None:
    """The value for which a comparison holds; None if there is none."""
    if test.field == "date":
        is_after = facts.date >= read_moment(str(test.value))
        return "" if is_after is (test.operator == "after") else None
    if test.field in _NUMBERS:
        age = max((now - facts.date).total_seconds() / _DAY_S, 0.0)
        number = age if test.field == "age_days" else facts.size_bytes
        return str(int(number)) if _compares(test, number) else None
    if test.field == "has_attachment":
        is_so = test.operator == "exists" or facts.has_attachment
        return "" if is_so is test.value else None
    if test.operator == "exists":
        has_one = any(_values(test.field, facts))
        return "" if has_one is test.value else None
    if test.field in ("subject", "text"):
        return _found_in_text(test, facts)
    if test.field in ("from", "to", "cc") and test.operator in ("equals", "in"):
        return _found_person(test, facts)
    return next((text for text in _values(test.field, facts) if _holds(test, text)), None)


_NUMBERS = ("age_days", "size_bytes")
_STATE_FIELDS = {"label": "labels", "flag": "flags", "mailbox": "mailboxes"}


def _compares(test: Comparison, number: float) -> bool:
    value = test.value
    if isinstance(value, tuple):
        return int(number) in value
    if test.operator == "exists":
        return bool(value)
    assert isinstance(value, int)
    if test.operator == "greater_than":
        return number > value
    return number < value if test.operator == "less_than" else int(number) == value


def _values(field: str, facts: Facts) -> Iterator[str]:
    if field in ("from", "to", "cc"):
        for person in _people(field, facts):
            yield person.address
            if person.name:
                yield person.name
    elif field in _STATE_FIELDS:
        yield from getattr(facts.state, _STATE_FIELDS[field])
    elif field == "attachment.name":
        yield from (name for name, _ in facts.files if name)
    elif field == "attachment.type":
        yield from (kind for _, kind in facts.files)
    elif field == "auth":
        yield from facts.auth
    elif field in ("subject", "text"):
        text = facts.subject if field == "subject" else facts.text
        yield from (text,) if text else ()
    elif field == "list_id":
        yield from (_header_facts(facts).list_id or "",) if _header_facts(facts).list_id else ()
    else:
        expected = field.removeprefix("header.")
        yield from (
            value for name, value in _header_facts(facts).headers if name.lower() == expected
        )


def _people(field: str, facts: Facts) -> tuple[NamedAddress, ...]:
    return {"from": facts.senders, "to": facts.to, "cc": facts.cc}[field]


def _header_facts(facts: Facts) -> HeaderFacts:
    if facts.header_facts is None:
        raise HeadersNeeded
    return facts.header_facts


def _found_in_text(test: Comparison, facts: Facts) -> str | None:
    """Compare subject or text, which are stored folded."""
    is_subject = test.field == "subject"
    if test.operator == "regex":
        assert test.finds is not None
        text = facts.subject if is_subject else facts.text
        return "" if test.finds(text) else None
    folded = facts.folded_subject if is_subject else facts.folded_text
    return "" if _holds_folded(test, folded) else None


def _holds(test: Comparison, text: str) -> bool:
    if test.operator == "regex":
        assert test.finds is not None
        return test.finds(text)
    if test.field in _STATE_FIELDS and test.operator in ("equals", "in"):
        return text.casefold() in folded_names(test)
    return _holds_folded(test, fold(text))


def folded_names(test: Comparison) -> frozenset[str]:
    """The names of a condition for comparison; of a mailbox also the standard one that it means."""
    names = [str(name) for name in test.values]
    meant = [standard_mailbox(name) for name in names] if test.field == "mailbox" else []
    return frozenset(name.casefold() for name in (*names, *meant) if name)


def _holds_folded(test: Comparison, folded: str) -> bool:
    if test.finds is not None:
        return test.finds(folded)
    if test.operator == "contains":
        return _folded(str(test.value)) in folded
    return any(folded == _folded(str(value)) for value in test.values)


_folded = lru_cache(maxsize=4096)(fold)


def _is_from(person: NamedAddress, expected: str) -> str | None:
    """Compare with an address, a domain (`@supplier.example`), or a name, as in searches.

    A name never matches an address, since a sender can choose any name.
    """
    if is_address_or_domain(expected):
        return person.address if is_at(person.address, expected) else None
    if "@" in expected:
        return person.address if fold(person.address) == expected else None
    return person.name if person.name and fold(person.name) == expected else None


def _found_person(test: Comparison, facts: Facts) -> str | None:
    expected = [_folded(str(value)) for value in test.values]
    people = _people(test.field, facts)
    return next((f for p in people for w in expected if (f := _is_from(p, w)) is not None), None)


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
        tests = [part for part in required_parts(condition) if isinstance(part, Comparison)]
        for at, test in enumerate(tests):
            for other in tests[at + 1 :]:
                if _exclude(test, other):
                    yield other.line, f"{plain(test)} and {plain(other)} exclude each other"
        yield from _denied(condition, tests)
    for part in condition.parts:
        if not (condition.kind == "all" and isinstance(part, Group) and part.kind == "all"):
            yield from _contradictions(part)


def _denied(group: Group, tests: Sequence[Comparison]) -> Iterator[Warned]:
    for part in required_parts(group):
        if isinstance(part, Group) and part.kind == "none":
            for denied in part.parts:
                if isinstance(denied, Comparison) and denied in tests:
                    what = f"{plain(denied)} is both required and excluded, so nothing matches"
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
