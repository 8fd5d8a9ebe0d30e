"""Queries of the search index that find every message that a rule could match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.mail.text.fold import fold
from postroom.model.inbox import EVERY_MAILBOX, HIDDEN_MAILBOXES, Visible
from postroom.model.rule import Facts
from postroom.model.storage import MessageQuery
from postroom.rules.definition import Comparison, Condition, Definition, Group

MAX_QUERIES = 50
_MAX_TEXT_CHARS = 256
_SEARCHED = ("subject", "text", "attachment.name")
_HIDDEN = frozenset(name.casefold() for name in HIDDEN_MAILBOXES)


def queries_for(rule: Definition, visible: Visible, now: datetime) -> tuple[MessageQuery, ...]:
    """Queries whose results together contain every match, and perhaps more."""
    whole = MessageQuery(
        visible=visible, mailbox=EVERY_MAILBOX if named_hidden(rule.when) else None
    )
    return tuple(_narrow(whole, rule.when, now))


def named_hidden(condition: Condition) -> frozenset[str]:
    """The hidden mailboxes (Trash, Junk) that a condition names; others are not searched."""
    if isinstance(condition, Group):
        parts = () if condition.kind == "none" else condition.parts
        return frozenset[str]().union(*(named_hidden(part) for part in parts))
    names = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    if condition.field != "mailbox" or condition.operator not in ("equals", "in"):
        return frozenset()
    return _HIDDEN & {str(name).casefold() for name in names}


def is_left_out(facts: Facts, named: frozenset[str]) -> bool:
    """Whether a message is only in hidden mailboxes that no condition names."""
    return not {name.casefold() for name in facts.state.mailboxes} - (_HIDDEN - named)


def _narrow(query: MessageQuery, condition: Condition, now: datetime) -> list[MessageQuery]:
    if isinstance(condition, Comparison):
        return [_with_test(query, condition, now)]
    if condition.kind == "any":
        return _any(query, condition, now)
    if condition.kind == "all":
        return _all(query, condition, now)
    return [query]


def _all(query: MessageQuery, group: Group, now: datetime) -> list[MessageQuery]:
    """Every comparison narrows the query; of several `any` groups, the best one is used."""
    alternatives = []
    for part in _flattened(group):
        if isinstance(part, Comparison):
            query = _with_test(query, part, now)
        elif part.kind == "any":
            alternatives.append(part)
    found = [_any(query, part, now) for part in alternatives]
    useful = [queries for queries in found if query not in queries]
    return min(useful, key=len) if useful else [query]


def _flattened(group: Group) -> Iterable[Condition]:
    for part in group.parts:
        if isinstance(part, Group) and part.kind == "all":
            yield from _flattened(part)
        else:
            yield part


def _any(query: MessageQuery, group: Group, now: datetime) -> list[MessageQuery]:
    found: list[MessageQuery] = []
    for part in group.parts:
        found += _narrow(query, part, now)
    unique = list(dict.fromkeys(found))
    return [query] if query in unique or len(unique) > MAX_QUERIES else unique


def _with_test(query: MessageQuery, test: Comparison, now: datetime) -> MessageQuery:
    value = test.value
    if test.field == "has_attachment" and test.operator == "equals":
        return replace(query, has_attachment=bool(value))
    if test.field == "age_days":
        return _with_age(query, test, now)
    if not isinstance(value, str) or test.operator not in ("equals", "contains"):
        return query
    if test.field == "label" and test.operator == "equals" and len(query.labels) < 20:
        return replace(query, labels=(*query.labels, value))
    if test.field == "mailbox" and test.operator == "equals":
        return replace(query, mailbox=value)
    text = fold(value)
    if len(text) > _MAX_TEXT_CHARS:
        return query
    if test.field in _SEARCHED:
        # A match lies within one field, so a text of a field is a text of the message.
        return query if query.q and len(query.q) >= len(text) else replace(query, q=text)
    if test.field in ("from", "to", "cc") and _is_same_in_searches(test, text):
        if test.field == "from":
            return query if query.sender else replace(query, sender=text)
        return query if query.recipient else replace(query, recipient=text)
    return query


def _is_same_in_searches(test: Comparison, text: str) -> bool:
    """Whether the index filter finds no less than the test; it treats an @ specially."""
    return test.operator == "equals" or "@" not in text


def _with_age(query: MessageQuery, test: Comparison, now: datetime) -> MessageQuery:
    value = test.value
    if test.operator == "greater_than" and isinstance(value, int):
        before = now - timedelta(days=value) + timedelta(seconds=1)
        return replace(query, before=min(query.before or before, before))
    if test.operator == "less_than" and isinstance(value, int):
        after = now - timedelta(days=value)
        return replace(query, after=max(query.after or after, after))
    return query
