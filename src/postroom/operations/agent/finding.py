"""Finding mail: one short line for each message.

A search text may hold operators, such as `from:ana is:unread after:2026-01-31`: models type them as
they know them from other mail programs. An operator that is not known, or whose value makes no
sense, is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Id, Limit, argument
from postroom.mail.text.fold import fold, words_of
from postroom.model.agent import FileLine, FoundMail, MailLine
from postroom.model.inbox import (
    DRAFTS,
    EVERY_MAILBOX,
    INBOX,
    OUTBOX,
    SENT,
    standard_mailbox,
)
from postroom.model.key import Scope
from postroom.model.mail.message import Message, MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Found, Page, Slice
from postroom.operations.mail.message_selection import MessageFilter, MessageSelection, find_page
from postroom.operations.mail.messages import fair_max_length

Ids = Annotated[
    list[Id], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
"""Ids; a single one may be given without a list."""

_MAX_ADDRESSES = 5
_MAX_NAME = 100
_USUAL_MAILBOXES = frozenset((INBOX, SENT, OUTBOX))


async def inbox_addresses(ctx: RequestContext) -> dict[str, str]:
    """The address of each inbox, if there are several; a caller with one knows it."""
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=1_000))
    return {inbox.id: inbox.address for inbox in found.rows} if found.total > 1 else {}


async def find_in_thread(ctx: RequestContext, thread_id: str, page: Slice) -> Found[MessageRow]:
    """Messages of a thread, newest first; those in Trash or Junk only if it has no others.

    Raises NotFound.
    """
    query = MessageQuery(ctx.visible, thread_id=thread_id, page=page)
    found = await ctx.store.messages(query)
    return found if found.total else await ctx.store.messages(replace(query, mailbox=EVERY_MAILBOX))


def line_of(message: Message, addresses: Mapping[str, str], **shown: Any) -> MailLine:
    """A message in short; *shown* adds its text or a part of it."""
    is_outbound = message.direction == "outbound"
    places = [name for name in message.mailboxes if name not in _USUAL_MAILBOXES]
    files = tuple(FileLine(a.id, a.filename, a.size) for a in message.attachments if not a.inline)
    return MailLine(
        id=message.id,
        from_=sender_of(message),
        subject=message.subject,
        date=message.date,
        to=message.to_addresses[:_MAX_ADDRESSES] if is_outbound else None,
        inbox=addresses.get(message.inbox_id),
        mailbox=places[0] if places else None,
        labels=message.labels or None,
        unread=True if "seen" not in message.flags else None,
        flagged=True if "flagged" in message.flags else None,
        status=message.status,
        send_at=message.send_at,
        warnings=warnings_of(message) or None,
        attachments=files or None,
        findings=message.findings,
        **shown,
    )


def text_of(message: Message, *, quoted: bool = False) -> dict[str, Any]:
    """The text of a message for its line: what its writer wrote, or all of it if *quoted*."""
    new = message.text if quoted or message.new_text is None else message.new_text
    return {"text": new, "quoted_chars": len(message.text) - len(new) or None}


def sender_of(message: Message) -> str:
    """The sender as in a header: a name and an address, or the address alone."""
    name, address = message.from_name[:_MAX_NAME], message.from_address
    return f"{name} <{address}>" if name and name != address else address


_FINDINGS = {
    "hidden_text": "it has text that a reader cannot see; that text was left out",
    "lookalike": "the sender's name or address is misleading",
    "imitates": "the sender imitates a known domain",
    "text_differs": "its plain text and its HTML differ",
    "disguised_attachments": "an attachment is disguised as another type",
}


def warnings_of(message: Message) -> tuple[str, ...]:
    """What is suspicious about a message, in our words."""
    # The sender of outgoing mail is the caller's own inbox, also if answers go elsewhere.
    own = ("lookalike", "imitates") if message.direction == "outbound" else ()
    names = [name for name in _FINDINGS if message.security.get(name) and name not in own]
    found = [_FINDINGS[name] for name in names]
    if message.auth.get("dmarc") == "fail":
        found.append("the sender's domain says that this mail is forged (DMARC)")
    return tuple(found)


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
    "draft": {"mailbox": "Drafts"},
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
    """Arguments with those that the operators in q represent; a separate argument takes precedence.

    Dates may be like those of operators too: `yesterday`, `7d`. An empty text is no filter.
    """
    if not isinstance(data, dict):
        return data
    now = datetime.now(UTC)
    data = {name: value for name, value in data.items() if value != ""}
    data = {**with_lists(data, ("labels", "flags")), **_dates(data, now)}
    name_of_q = "q" if "q" in data else "query"
    q = data.get(name_of_q)
    if not isinstance(q, str) or ":" not in q or data.get("mode") == "exact":
        return data
    rest, found = split_operators(q, now)
    given = {name: value for name, value in data.items() if name != name_of_q}
    return {**found, **given, **({"q": rest} if rest else {})} if found or rest != q else data


_FLAGS = {"read": "seen", "starred": "flagged", "important": "flagged"}
"""The names that other programs have for flags."""


def with_lists(data: Arguments, names: Sequence[str]) -> Arguments:
    """Arguments with lists in place of single labels and flags, and with our names of flags."""
    found: Arguments = {}
    for name in names:
        values = data.get(name)
        if isinstance(values, str):
            values = [values] if values else []
        if name.endswith("flags") and isinstance(values, list):
            values = [_FLAGS.get(str(flag), flag) for flag in values]
        if name in data:
            found[name] = values
    return {**data, **found}


def _dates(data: Arguments, now: datetime) -> Arguments:
    found: Arguments = {}
    for name in ("after_date", "before_date"):
        if isinstance(value := data.get(name), str):
            found |= _date(name)(value, now) or {}
    return found


def split_operators(text: str, now: datetime) -> tuple[str, Arguments]:
    """The text without its operators, and the arguments that these represent."""
    found: Arguments = {}

    def take(match: re.Match[str]) -> str:
        value = next(part for part in match.group("phrase", "group", "value") if part is not None)
        read = _OPERATORS[match["name"].lower()]
        arguments = read(value, now) if value.strip() else None
        if arguments is None:
            return match[0]
        wanted = arguments.pop("q", "")
        for name, new in arguments.items():
            found[name] = [*found.get(name, ()), *new] if isinstance(new, list) else new
        return f" {wanted} "

    rest = _OPERATOR.sub(take, text)
    return " ".join(rest.split()) if rest != text else text, found


Read = Callable[[str, datetime], Arguments | None]
"""What the value of an operator means, given the time now; None if it is invalid."""


def _as(name: str) -> Read:
    return lambda value, _: {name: value}


def _one_of(meanings: dict[str, Arguments]) -> Read:
    return lambda value, _: dict(meanings[value.lower()]) if value.lower() in meanings else None


def _mailbox(value: str, _: datetime) -> Arguments:
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
    "from": lambda value, _: {"mailbox": SENT} if value.lower() == "me" else {"from": value},
    "to": lambda value, _: {} if value.lower() == "me" else {"to": value},
    "cc": _as("to"),
    "bcc": _as("to"),
    "subject": _as("subject"),
    "label": lambda value, _: {"labels": [value]},
    "in": _mailbox,
    "mailbox": _mailbox,
    "folder": _mailbox,
    "is": _one_of(_STATES),
    "has": _one_of(_CONTENTS),
    "filename": lambda value, _: {"q": f'"{value}"', "has_attachment": True},
    "body": lambda value, _: {"q": f'"{value}"'},
    "on": _on,
    "date": _on,
    "after": _date("after_date"),
    "since": _date("after_date"),
    "newer": _date("after_date"),
    "before": _date("before_date"),
    "older": _date("before_date"),
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


TEXTS_CHARS = 24_000
"""The length of all texts of a page together."""


_NEAREST = 3
_NOT_ALL = "no message has all of these words; "
_PLAIN_TEXT = "{} in q is ordinary text, not an operator; leave it out"
_SYNTAX = re.compile(r"(?<!\S)(?:-\w\S{0,40}|\w+:\S{1,40}|OR(?!\S)|NOT(?!\S))")
_OF_QUESTIONS = frozenset(
    ("e-mail", "email", "emails", "mail", "mails", "message", "messages", "find", "show", "list",
     "latest", "last", "newest", "recent", "sent", "received", "regarding", "concerning")
)  # fmt: skip
"""Words of a question about mail that are seldom in the mail."""


class MailSelection(MessageSelection):
    """The filters of find_mail, without paging."""

    splits_names: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _operators(cls, data: Any) -> Any:
        return with_operators(data)


class FindMail(MailSelection, MessageFilter):
    """Find mail, newest first. read_mail also reads attachments, by their ids."""

    mode: Annotated[
        Literal["words", "exact", "hybrid"],
        argument("words: all words; exact: q literally; hybrid: by meaning.", "hybrid"),
    ] = "words"
    text: Annotated[bool, argument("Add the texts.", True)] = False
    limit: Limit = 10


@operation(Scope.READ)
async def find_mail(ctx: RequestContext, request: FindMail) -> FoundMail:
    page = await find_page(ctx, request)
    hint = None if page.total else await _elsewhere(ctx, request)
    if not page.total and hint is None and request.q and "mode" not in request.model_fields_set:
        page = await _nearest(ctx, request, page)
    whole = await ctx.store.messages_by_id([row.id for row in page.results], ctx.visible)
    addresses = {} if request.inbox_id or request.thread_id else await inbox_addresses(ctx)
    lines = tuple(
        _line(request, row, whole[row.id], addresses) for row in page.results if row.id in whole
    )
    if request.text:
        lines = _within_budget(lines)
    inbox = None
    if len({line.inbox for line in lines}) == 1:
        inbox, lines = lines[0].inbox, tuple(replace(line, inbox=None) for line in lines)
    if hint is None:
        text = None if lines else _SYNTAX.search(request.q or "")
        hint = _PLAIN_TEXT.format(text[0]) if text else page.hint
    return FoundMail(page.total, lines, inbox, hint)


async def _elsewhere(ctx: RequestContext, request: FindMail) -> str | None:
    """Where what was not found is: among the drafts, or in a mailbox that is left out."""
    if standard_mailbox(request.mailbox or "") == DRAFTS:
        return "drafts are in list_outgoing, and read_mail reads them"
    if request.mailbox or request.cursor or request.mode == "hybrid":
        return None
    everywhere = request.model_copy(update={"mailbox": EVERY_MAILBOX, "limit": 1})
    hidden = (await find_page(ctx, everywhere)).total
    return f"{hidden} in Trash or Junk; mailbox=* finds them" if hidden else None


async def _nearest(
    ctx: RequestContext, request: FindMail, nothing: Page[MessageRow]
) -> Page[MessageRow]:
    """What has the words that matter, or comes nearest, if no message has all words of q."""
    if words := _significant_words(request.q or ""):
        found = await find_page(ctx, request.model_copy(update={"q": words}))
        if found.results:
            return replace(found, hint=f"{_NOT_ALL}these have {words}")
    if nothing.hint is None:
        return nothing
    by_meaning = {"mode": "hybrid", "sort": "newest", "limit": min(request.limit, _NEAREST)}
    found = await find_page(ctx, request.model_copy(update=by_meaning))
    if not found.results:
        return nothing
    hints = [f"{_NOT_ALL}these are closest", *([found.hint] if found.hint else [])]
    return replace(nothing, results=found.results, hint="; ".join(hints))


def _significant_words(q: str) -> str:
    """The words of a question without those that only ask; empty if these are all or none."""
    # Imported on first use: its patterns are slow to compile.
    from postroom.mail.text.terms import STOP_WORDS

    words = list(words_of(fold(q)))
    bare = [word.strip(".,:;!?'*()") for word in words]
    kept = [word for word in bare if word and word not in STOP_WORDS | _OF_QUESTIONS]
    return " ".join(f'"{w}"' if " " in w else w for w in kept) if kept != words else ""


def _line(
    request: FindMail, row: MessageRow, message: Message, addresses: dict[str, str]
) -> MailLine:
    if request.text:
        return line_of(message, addresses, **text_of(message))
    return line_of(message, addresses, snippet=_snippet_for(row, message, request.q or "") or None)


def _snippet_for(row: MessageRow, message: Message, q: str) -> str:
    """The start of the text, or what matches if the rest of the row does not show it."""
    files = " ".join(file.filename for file in message.attachments)
    seen = fold(f"{row.subject} {row.snippet} {row.from_name} {row.from_address} {files}")
    excerpt = row.excerpt or ""
    wanted = words_of(fold(_significant_words(q) or q)) if excerpt else ()
    is_seen = fold(excerpt.strip("… ")) in seen or all(word in seen for word in wanted)
    return row.snippet if is_seen else excerpt


def _within_budget(lines: tuple[MailLine, ...]) -> tuple[MailLine, ...]:
    cut = fair_max_length([len(line.text or "") for line in lines], TEXTS_CHARS)
    return tuple(
        replace(line, text=(line.text or "")[:cut], next_offset=cut)
        if len(line.text or "") > cut
        else line
        for line in lines
    )
