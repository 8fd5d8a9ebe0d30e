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

_OPERATOR = re.compile(
    r'(?<!\S)(?P<name>[A-Za-z_]{2,20}):(?:"(?P<phrase>[^"]*)"|(?P<value>[^\s"]+))(?!\S)'
)
_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_AGE = re.compile(r"(\d{1,4})([dwmy])")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}

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


def split_operators(text: str, now: datetime) -> tuple[str, Arguments]:
    """The text without its operators, and the arguments that these stand for."""
    found: Arguments = {}

    def take(match: re.Match[str]) -> str:
        value = match["phrase"] if match["value"] is None else match["value"]
        read = _OPERATORS.get(match["name"].lower())
        arguments = read(value, now) if read and value.strip() else None
        if arguments is None:
            return match[0]
        for name, new in arguments.items():
            found[name] = [*found.get(name, ()), *new] if isinstance(new, list) else new
        return " "

    rest = _OPERATOR.sub(take, text)
    return " ".join(rest.split()) if found else text, found


Read = Callable[[str, datetime], Arguments | None]
"""What the value of an operator means, given the time now; None if it makes no sense."""


def _as(name: str) -> Read:
    return lambda value, _: {name: value}


def _one_of(meanings: dict[str, Arguments]) -> Read:
    return lambda value, _: meanings.get(value.lower())


def _place(value: str, _: datetime) -> Arguments:
    return {"mailbox": _PLACES.get(value.lower(), value)}


def _date(name: str) -> Read:
    def read(value: str, now: datetime) -> Arguments | None:
        if value.lower() in ("today", "yesterday"):
            day = now.astimezone(UTC) - timedelta(days=value.lower() == "yesterday")
            return {name: f"{day:%Y-%m-%d}"}
        match = _DATE.fullmatch(value)
        try:
            return {name: str(date(*map(int, match.groups())))} if match else None
        except ValueError:
            return None

    return read


def _age(name: str) -> Read:
    def read(value: str, now: datetime) -> Arguments | None:
        match = _AGE.fullmatch(value.lower())
        if match is None:
            return None
        since = now.astimezone(UTC) - timedelta(days=int(match[1]) * _DAYS[match[2]])
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
    "after": _date("after_date"),
    "since": _date("after_date"),
    "before": _date("before_date"),
    "until": _date("before_date"),
    "newer_than": _age("after_date"),
    "older_than": _age("before_date"),
}
