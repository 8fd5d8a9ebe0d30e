"""Templates: every word of mail is cleaned of invisible characters and escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from postroom.mail.text.invisible import cleaned
from postroom.surfaces.web.delivery import asset_url
from postroom.surfaces.web.keyboard import SHOWN, shortcuts_for

_MESSAGE_ID = re.compile(r"\b(msg_[0-9a-z]{12,60})\b")
_UNITS = ("bytes", "KB", "MB", "GB")


def _shown(value: Any) -> Any:
    """What a template prints, before it is escaped."""
    return cleaned(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%-d %b %Y, %H:%M UTC")


def _short_moment(value: datetime, now: datetime) -> str:
    """A moment for a list: the time today, the day this year."""
    then, today = value.astimezone(UTC), now.astimezone(UTC)
    if then.date() == today.date():
        return then.strftime("%H:%M")
    return then.strftime("%-d %b" if then.year == today.year else "%-d %b %Y")


def _size(value: int) -> str:
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _with_links(text: str, subjects: Mapping[str, str]) -> Markup:
    """A sentence in which each message id is a link to the message, with its subject if known."""
    pieces = _MESSAGE_ID.split(cleaned(text))
    link = Markup('<a href="/mail/{}">{}</a>')
    words = (link.format(p, subjects.get(p, p)) if n % 2 else p for n, p in enumerate(pieces))
    return Markup("").join(words)


def _without_ids(text: str) -> str:
    """A sentence without ids of messages, for a list."""
    return _MESSAGE_ID.sub("a message", text)


def message_ids(text: str) -> list[str]:
    """The ids of messages in a sentence."""
    return _MESSAGE_ID.findall(text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("postroom.surfaces.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(moment=_moment, short_moment=_short_moment, size=_size)
    environment.filters.update(with_links=_with_links, without_ids=_without_ids)
    environment.globals.update(asset_url=asset_url, shortcuts_for=shortcuts_for, shown_keys=SHOWN)
    return environment


def render(template: str, **values: Any) -> bytes:
    """A page as HTML."""
    return _environment().get_template(template).render(values).encode("utf-8", "replace")
