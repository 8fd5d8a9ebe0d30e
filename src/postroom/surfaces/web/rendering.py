"""Templates (every word of mail is cleaned and escaped), keyboard shortcuts, compressed assets."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from postroom.mail.text.invisible import cleaned
from postroom.surfaces.web.page import Link

_SCRIPT = "text/javascript; charset=utf-8"
ASSETS = {
    "postroom.css": "text/css; charset=utf-8",
    "htmx.js": _SCRIPT,
    "postroom.js": _SCRIPT,
}
_KEPT = "public, max-age=31536000, immutable"
_SMALL_BYTES = 1_000
_PAGE_LEVEL, _ASSET_LEVEL = 4, 9


@cache
def asset(name: str) -> bytes:
    """The content of a file of the pages."""
    return files("postroom.surfaces.web").joinpath("assets", name).read_bytes()


@cache
def compressed_asset(name: str) -> bytes:
    """The same, compressed once for all requests."""
    return gzip.compress(asset(name), _ASSET_LEVEL, mtime=0)


@cache
def asset_url(name: str) -> str:
    """Its path, which changes with its content: a browser may keep it."""
    return f"/assets/{name}?{hashlib.sha256(asset(name)).hexdigest()[:12]}"


def asset_response(name: str, headers: Mapping[str, str], accepted: str) -> Response:
    """A file of the pages; `accepted` is the header Accept-Encoding."""
    kept = {**headers, "Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    if not accepts_gzip(accepted):
        return Response(asset(name), headers=kept, media_type=ASSETS[name])
    kept["Content-Encoding"] = "gzip"
    return Response(compressed_asset(name), headers=kept, media_type=ASSETS[name])


def accepts_gzip(accepted: str) -> bool:
    """Whether a header Accept-Encoding permits gzip (RFC 9110 §12.5.3)."""
    weights = {}
    for part in accepted.lower().split(","):
        coding, _, parameters = part.partition(";")
        weights[coding.strip()] = parameters.replace(" ", "")
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and not _is_zero(weight)


def _is_zero(weight: str) -> bool:
    try:
        return weight.startswith("q=") and float(weight[2:]) == 0
    except ValueError:
        return True


def compress(response: Response, accepted: str) -> Response:
    """Compress a page, unless it is short or the browser does not accept it.

    Tokens of forms are masked, so the length of a page says nothing about them: `cookies`.
    """
    response.headers["Vary"] = "Accept-Encoding"
    if len(response.body) < _SMALL_BYTES or not accepts_gzip(accepted):
        return response
    response.body = gzip.compress(response.body, _PAGE_LEVEL, mtime=0)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    return response


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Keys as a browser names them, what they do, and the name of that in the script.

    Keys with a space between them are pressed one after the other.
    """

    keys: tuple[str, ...]
    words: str
    action: str


SHORTCUTS: dict[str, tuple[Shortcut, ...]] = {
    "In the list": (
        Shortcut(("j", "ArrowDown"), "next message", "next"),
        Shortcut(("k", "ArrowUp"), "previous message", "previous"),
        Shortcut(("Enter",), "open the message", ""),
        Shortcut(("Escape",), "back to the list", "return"),
        Shortcut(("x",), "select the message", "select"),
        Shortcut(("/",), "search", "search"),
    ),
    "With the current or selected messages": (
        Shortcut(("e",), "archive", "archive"),
        Shortcut(("#",), "move to Trash", "trash"),
        Shortcut(("u",), "mark as read or unread", "toggle-read"),
        Shortcut(("s",), "add or remove the flag", "toggle-flag"),
        Shortcut(("r",), "reply", "reply"),
        Shortcut(("a",), "reply to all", "reply-all"),
        Shortcut(("f",), "forward", "forward"),
        Shortcut(("z",), "undo the last change", "undo"),
    ),
    "Anywhere": (
        Shortcut(("c",), "new message", "compose"),
        Shortcut(("?",), "show this help", "help"),
    ),
}

GO_TO = {
    "/": "v",
    "/mail": "i",
    "/outgoing": "o",
    "/drafts": "d",
    "/rules": "r",
    "/memories": "m",
    "/accounts": "a",
    "/keys": "k",
    "/webhooks": "w",
    "/events": "e",
    "/audit": "u",
    "/health": "h",
    "/connect": "c",
    "/sessions": "s",
}
"""The key that opens a page, after `g`."""

SHOWN = {"ArrowDown": "↓", "ArrowUp": "↑", "Escape": "Esc"}
"""Keys that are shown by another name."""


def shortcuts_for(links: Iterable[Link]) -> dict[str, tuple[Shortcut, ...]]:
    """The shortcuts by group, with those to the pages that a person may open."""
    return {**SHORTCUTS, "Go to": tuple(_go_to(links))}


def _go_to(links: Iterable[Link]) -> Iterator[Shortcut]:
    for link in links:
        if key := GO_TO.get(link.path):
            yield Shortcut((f"g {key}",), link.title, link.path)


_MESSAGE_ID = re.compile(r"\b(msg_[0-9a-z]{12,60})\b")
_UNITS = ("bytes", "KB", "MB", "GB")


def _finalize(value: Any) -> Any:
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
        finalize=_finalize,
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
