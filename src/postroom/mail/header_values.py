"""The values of header fields: Message-IDs, and dates in the forms that senders use."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from postroom.mail.text.fold import as_key

_BRACKETED = re.compile(r"<([^<>]{1,2000})>")
_SPACE = re.compile(r"\s+")
_MOST = 1_000


def parse_ids(value: str) -> list[str]:
    """The Message-IDs in a header value, in order, each once."""
    if not value:
        return []
    found = _BRACKETED.findall(value)
    if not found:
        found = [word.strip("<>,;\"'") for word in value.split() if "@" in word]
    ids = (_SPACE.sub("", found_id) if " " in found_id or "\t" in found_id else found_id
           for found_id in found[:_MOST])  # fmt: skip
    return list(dict.fromkeys(as_key(found_id) for found_id in ids if found_id))


def parse_references(values: list[str], *, bare: bool = True) -> list[str]:
    """The Message-IDs of the first References header that has any.

    Ids without brackets count if there are no others and `bare` says so.
    """
    found = (parse_ids(value) for value in values if bare or "<" in value)
    return next((ids for ids in found if ids), [])


def parse_message_id(value: str) -> str | None:
    """The one Message-ID of a Message-ID header, also if it lacks its brackets or its @."""
    ids = parse_ids(value)
    if ids:
        return ids[0]
    bare = _SPACE.sub("", value.strip("<> \t"))
    return as_key(bare) or None


def parse_in_reply_to(value: str, *, bare: bool = True) -> str | None:
    """The Message-ID answered; old programs put a sentence with an address before it."""
    ids = parse_ids(value) if bare or "<" in value else []
    if not ids:
        return None
    is_sentence = not value.lstrip().startswith("<")
    return ids[-1] if is_sentence else ids[0]


_MONTH_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAY_NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_MONTHS = {name.lower(): number for number, name in enumerate(_MONTH_NAMES, 1)}
_USUAL = re.compile(
    r"\s*(?:[A-Za-z]{3},)?\s{0,9}(\d{1,2})\s([A-Za-z]{3})\s(\d{4})\s"
    r"(\d\d):(\d\d)(?::(\d\d))?\s([+-])(\d\d):?(\d\d)\b"
)
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:(?:T|[ ]{1,9}(?:[A-Za-z]{3} )?)(\d\d):(\d\d)(?::(\d\d)"
    r"(?:[.,]\d{1,9})?)?)?"
    r"\s{0,9}(?:Z|([+-])(\d\d):?(\d\d))?"
)
_LOOSE = re.compile(
    r"\b(\d{1,2})[\s-]{1,3}([A-Za-z]{3,9})[\s,.-]{1,3}(\d{4}|\d\d)(?:[\s,]{1,3}(?:at )?"
    r"(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s{0,3}([+-])(\d\d):?(\d\d)\b)?)?"
)
_ZONE = re.compile(r"(?:GMT|UTC)?([+-]\d\d):?(\d\d)\b(?!:)", re.IGNORECASE)
"""Zones that the standard library ignores: with a colon, or after a name."""


def parse_date(value: str) -> datetime | None:
    """The time in UTC, or None if the header cannot be read."""
    usual = _USUAL.match(value)
    if usual:
        return _usual(usual)
    value = value.strip()[:200]
    iso = _ISO.match(value)
    found = _iso(iso) if iso else _lenient(value)
    loose = _LOOSE.search(value) if found is None else None
    return _usual(loose) if loose else found


def _usual(match: re.Match[str]) -> datetime | None:
    day, month, year, *time = match.groups()
    number = _MONTHS.get(month[:3].lower())
    if number is None:
        return None
    century = 0 if len(year) > 2 else 2000 if int(year) < 69 else 1900
    date = (int(year) + century, number, int(day))
    return _at(date, time)


def _iso(match: re.Match[str]) -> datetime | None:
    year, month, day, *time = match.groups()
    return _at((int(year), int(month), int(day)), time)


def _at(date: tuple[int, int, int], time: list[str | None]) -> datetime | None:
    hour, minute, second, sign, hours, minutes = time
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    return _instant(date, clock, -offset if sign == "-" else offset)


def _lenient(value: str) -> datetime | None:
    from email.utils import parsedate_tz  # a large import for a rare date

    try:
        parts = parsedate_tz(_ZONE.sub(r"\1\2", value))
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if parts is None:
        return None
    year, month, day, hour, minute, second = parts[:6]
    offset = timedelta(seconds=parts[9] or 0)
    return _instant((year, month, day), (hour, minute, second), offset)


def _instant(
    date: tuple[int, int, int], clock: tuple[int, int, int], offset: timedelta
) -> datetime | None:
    hour, minute, second = clock
    try:
        local = datetime(*date, hour, minute, min(second, 59), tzinfo=UTC)
        return local - offset if abs(offset) < timedelta(days=1) else local
    except (ValueError, OverflowError):
        return None


def format_date(date: datetime) -> str:
    """A Date header: RFC 5322 §3.3, in UTC."""
    utc = date.astimezone(UTC)
    day, month = _DAY_NAMES[utc.weekday()], _MONTH_NAMES[utc.month - 1]
    return f"{day}, {utc.day:02} {month} {utc.year:04} {utc:%H:%M:%S} +0000"
