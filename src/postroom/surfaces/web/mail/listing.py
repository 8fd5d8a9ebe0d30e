"""The list of mail beside its inboxes, mailboxes and labels, and the filters of a search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any
from urllib.parse import quote

from postroom.errors import InvalidInput, NotFound
from postroom.model.inbox import INBOX, STANDARD_MAILBOXES, Inbox, Label, Mailbox
from postroom.model.mail.message import MessageRow
from postroom.model.page import Page
from postroom.operations.inboxes import list_inboxes
from postroom.operations.mail.message_changes import list_labels, list_mailboxes
from postroom.operations.mail.messages import search_messages
from postroom.surfaces.web.page import PageRequest, Values

FILTERS = {
    "inbox": "inbox_id",
    "mailbox": "mailbox",
    "label": "labels",
    "q": "q",
    "mode": "mode",
    "from": "from",
    "to": "to",
    "subject": "subject",
    "unread": "unread",
    "flags": "flags",
    "has_attachment": "has_attachment",
    "after_date": "after_date",
    "before_date": "before_date",
    "thread": "thread_id",
    "sort": "sort",
}
"""The filters in the query of a page, and the arguments of search_messages that they are."""

_LISTS = ("labels", "flags")
_HOW = ("mode", "sort")
_ROWS = 50
_SIDE_ROWS = 100
_FEW_INBOXES = 10
_UNDO = re.compile(r"pln_[0-9a-z]{1,60}")


def filters_of(query: Mapping[str, str]) -> dict[str, str]:
    """The filters that are given."""
    return {name: query[name] for name in FILTERS if query.get(name, "").strip()}


def place_of(request: PageRequest) -> dict[str, str]:
    """The list that is shown: its filters, and where its page begins."""
    return filters_of(request.query) | request.cursor


@lru_cache(maxsize=1_024)
def _quoted(value: str) -> str:
    return quote(value, safe="")


def mail_url(place: Mapping[str, str], message_id: str = "", **more: str) -> str:
    """The page of a list, or of one mail of it."""
    path = f"/mail/{_quoted(message_id)}" if message_id else "/mail"
    query = "&".join(f"{name}={_quoted(value)}" for name, value in {**place, **more}.items())
    return f"{path}?{query}" if query else path


def arguments_of(filters: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a search. Without a criterion it is the mail in the mailboxes Inbox."""
    given: dict[str, Any] = {FILTERS[name]: value for name, value in filters.items()}
    given |= {name: [given[name]] for name in _LISTS if name in given}
    if given.keys() <= set(_HOW):
        given["mailbox"] = INBOX
    return given


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter, and the page without it."""

    words: str
    without: str


def chips_of(filters: Mapping[str, str], inboxes: Mapping[str, Inbox]) -> list[Chip]:
    """The filters in words."""
    found = []
    for name, value in filters.items():
        known = inboxes.get(value) if name == "inbox" else None
        rest = {other: given for other, given in filters.items() if other != name}
        found.append(Chip(f"{name}: {known.address if known else value}", mail_url(rest)))
    return found


async def panes(request: PageRequest) -> Values:
    """What every page of mail shows: places on the left, and the list."""
    filters = filters_of(request.query)
    inboxes = await request.call(list_inboxes, limit=_SIDE_ROWS)
    by_id = {inbox.id: inbox for inbox in inboxes.results}
    mailboxes = await _mailboxes(request, inboxes, filters.get("inbox"))
    labels = await request.call(list_labels, limit=_SIDE_ROWS)
    undo = request.query.get("undo", "")
    return {
        **await _found(request, filters),
        "inboxes": inboxes,
        "by_id": by_id,
        "mailboxes": mailboxes,
        "unread": await _unread(request, inboxes, mailboxes),
        "has_many_inboxes": inboxes.total > _FEW_INBOXES,
        "labels": labels.results,
        "labels_total": labels.total,
        "filters": filters,
        "place": place_of(request),
        "chips": chips_of(filters, by_id),
        "heading": _heading(filters, by_id),
        "url": mail_url,
        "now": request.app.services.clock(),
        "is_all_selected": request.query.get("select") == "all",
        "undo": undo if _UNDO.fullmatch(undo) else "",
        "standard": STANDARD_MAILBOXES,
        "opened": None,
    }


async def _unread(
    request: PageRequest, inboxes: Page[Inbox], mailboxes: Mapping[str, list[Mailbox]]
) -> int:
    """How much mail in the mailboxes Inbox is unread."""
    if inboxes.total > _FEW_INBOXES:
        return (await request.call(search_messages, mailbox=INBOX, unread=True, limit=1)).total
    return sum(box.unread for boxes in mailboxes.values() for box in boxes if box.name == INBOX)


async def _found(request: PageRequest, filters: Mapping[str, str]) -> Values:
    """A page of the list, and how long it took; what is wrong with a filter is said above it."""
    arguments = {**arguments_of(filters), **request.cursor, "limit": _ROWS}
    started = perf_counter()
    try:
        page = await request.call(search_messages, **arguments)
    except (InvalidInput, NotFound) as error:
        nothing: Page[MessageRow] = Page((), 0, _ROWS, 0)
        return {"page": nothing, "took_ms": 0, "error": str(error)}
    return {"page": page, "took_ms": (perf_counter() - started) * 1_000}


async def _mailboxes(
    request: PageRequest, inboxes: Page[Inbox], chosen: str | None
) -> dict[str, list[Mailbox]]:
    """The mailboxes of each inbox; if there are many inboxes, of the chosen one."""
    if inboxes.total > _FEW_INBOXES and chosen is None:
        return {}
    only = {} if inboxes.total <= _FEW_INBOXES else {"inbox_id": chosen}
    try:
        found = (await request.call(list_mailboxes, limit=_SIDE_ROWS, **only)).results
    except (InvalidInput, NotFound):
        return {}
    by_inbox: dict[str, list[Mailbox]] = {}
    for box in sorted(found, key=_order):
        by_inbox.setdefault(box.inbox_id, []).append(box)
    return by_inbox


def _order(box: Mailbox) -> tuple[int, str]:
    names = STANDARD_MAILBOXES
    return (names.index(box.name) if box.name in names else len(names), box.name)


def _heading(filters: Mapping[str, str], inboxes: Mapping[str, Inbox]) -> str:
    if "q" in filters:
        return "Search"
    mailbox = filters.get("mailbox")
    place = "All mail" if mailbox == "*" else mailbox or filters.get("label")
    inbox = inboxes.get(filters.get("inbox", ""))
    name = place or ("Mail" if filters else INBOX)
    return f"{name} · {inbox.address}" if inbox else name


async def all_inboxes(request: PageRequest) -> Values:
    """Every inbox, page by page: the pane beside the list has the first ones only."""
    found = await request.call(list_inboxes, limit=_SIDE_ROWS, **request.cursor)
    rows = [(inbox.address, inbox.name, mail_url({"inbox": inbox.id})) for inbox in found.results]
    return {"rows": rows, "page": found, "heading": "Inboxes"}


async def all_labels(request: PageRequest) -> Values:
    """Every label, page by page."""
    found = await request.call(list_labels, limit=_SIDE_ROWS, **request.cursor)
    rows = [
        (label.name, _numbers(label), mail_url({"label": label.name})) for label in found.results
    ]
    return {"rows": rows, "page": found, "heading": "Labels"}


def _numbers(label: Label) -> str:
    unread = f", {label.unread:,} unread" if label.unread else ""
    return f"{label.message_count:,} {'mail' if label.message_count == 1 else 'mails'}{unread}"
