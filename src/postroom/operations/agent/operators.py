"""Operators in a search text, such as `from:ana is:unread after:2026-01-31`.

Models type them as they know them from other mail programs. An operator that is not known, or whose
value makes no sense, is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

Arguments = dict[str, Any]

_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_AGE = re.compile(r"(\d{1,4})([hdwmy])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}

_STATES: dict[str, Arguments] = {
    "unread": {"unread": True},
    "read": {"unread": False},
    "starred": {"flags": ["flagged"]},
    "flagged": {"flags": ["flagged"]},
    "important": {"flags": ["flagged"]},
    "answered": {"flags": ["answered"]},
    "sent": {"mailbox": "Sent"},
    "inbox": {"mailbox": "Inbox"},
    "trash": {"mailbox": "Trash"},
    "spam": {"mailbox": "Junk"},
}
_CONTENTS: dict[str, Arguments] = {
    "attachment": {"has_attachment": True},
    "attachments": {"has_attachment": True},
    "file": {"has_attachment": True},
}
_PLACES = {"anywhere": "*", "all": "*", "spam": "Junk", "bin": "Trash", "drafts": "Drafts"}


def with_operators(data: Any) -> Any:
    """Arguments with those that the operators in q stand for; an argument of its own wins.

    Dates may be like those of operators too: `yesterday`, `7d`.
    """
    if not isinstance(data, dict):
        return data
    now = datetime.now(UTC)
    data = {**data, **_dates(data, now)}
    name_of_q = "q" if "q" in data else "query"
    q = data.get(name_of_q)
    if not isinstance(q, str) or ":" not in q or data.get("mode") == "exact":
        return data
    rest, found = split_operators(q, now)
    given = {name: value for name, value in data.items() if name != name_of_q}
    return {**found, **given, **({"q": rest} if rest else {})} if found or rest != q else data


def _dates(data: Arguments, now: datetime) -> Arguments:
    found: Arguments = {}
    for name in ("after_date", "before_date"):
        if isinstance(value := data.get(name), str):
            found |= _date(name)(value, now) or {}
    return found


def split_operators(text: str, now: datetime) -> tuple[str, Arguments]:
    """The text without its operators, and the arguments that these stand for."""
    found: Arguments = {}

    def take(match: re.Match[str]) -> str:
        value = next(part for part in match.group("phrase", "group", "value") if part is not None)
        read = _OPERATORS[match["name"].lower()]
        arguments = read(value, now) if value.strip() else None
        if arguments is None:
            return match[0]
        sought = arguments.pop("q", "")
        for name, new in arguments.items():
            found[name] = [*found.get(name, ()), *new] if isinstance(new, list) else new
        return f" {sought} "

    rest = _OPERATOR.sub(take, text)
    return " ".join(rest.split()) if rest != text else text, found


Read = Callable[[str, datetime], Arguments | None]
"""What the value of an operator means, given the time now; None if it makes no sense."""


def _as(name: str) -> Read:
    return lambda value, _: {name: value}


def _one_of(meanings: dict[str, Arguments]) -> Read:
    return lambda value, _: dict(meanings[value.lower()]) if value.lower() in meanings else None


def _place(value: str, _: datetime) -> Arguments:
    return {"mailbox": _PLACES.get(value.lower(), value)}


def _date(name: str) -> Read:
    def read(value: str, now: datetime) -> Arguments | None:
        if value.lower() in ("today", "yesterday"):
            day = now.astimezone(UTC) - timedelta(days=value.lower() == "yesterday")
            return {name: f"{day:%Y-%m-%d}"}
        found = _day(value)
        return _age(name)(value, now) if found is None else {name: str(found)}

    return read


def _day(value: str) -> date | None:
    match = _DATE.fullmatch(value)
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _on(value: str, _: datetime) -> Arguments | None:
    day = _day(value)
    if day is None or day == date.max:
        return None
    return {"after_date": str(day), "before_date": str(day + timedelta(days=1))}


def _age(name: str) -> Read:
    def read(value: str, now: datetime) -> Arguments | None:
        match = _AGE.fullmatch(value.lower())
        if match is None:
            return None
        since = now.astimezone(UTC) - timedelta(hours=int(match[1]) * _HOURS[match[2]])
        return {name: f"{since:%Y-%m-%dT%H:%M:%SZ}"}

    return read


_OPERATORS: dict[str, Read] = {
    "from": _as("from"),
    "to": _as("to"),
    "cc": _as("to"),
    "bcc": _as("to"),
    "subject": _as("subject"),
    "label": lambda value, _: {"labels": [value]},
    "in": _place,
    "mailbox": _place,
    "folder": _place,
    "is": _one_of(_STATES),
    "has": _one_of(_CONTENTS),
    "filename": lambda value, _: {"q": f'"{value}"', "has_attachment": True},
    "body": lambda value, _: {"q": f'"{value}"'},
    "on": _on,
    "date": _on,
    "after": _date("after_date"),
    "since": _date("after_date"),
    "before": _date("before_date"),
    "until": _date("before_date"),
    "newer_than": _age("after_date"),
    "older_than": _age("before_date"),
}

_OPERATOR = re.compile(
    rf"(?<!\S)(?P<name>{'|'.join(_OPERATORS)}):(?: (?!\w+:))?"
    r'(?:"(?P<phrase>[^"]*)"|\((?P<group>[^()]*)\)|(?P<value>[^\s"()]+))(?!\S)',
    re.IGNORECASE,
)
"""A known name and its value: a word, or several in quotes or parentheses."""
