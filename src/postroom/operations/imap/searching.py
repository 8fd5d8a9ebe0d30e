"""Searching a live mailbox, page by page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.errors import InvalidInput
from postroom.model.imap import ImapCriteria, ImapFound, ImapLocator, ImapSummary
from postroom.model.key import Scope
from postroom.model.live import LiveRow, LiveSearch
from postroom.operations.context import Context
from postroom.operations.imap.accounts import AccountId, account_of
from postroom.operations.imap.cursors import MOST_CHARS, Place, open_place, seal_place
from postroom.operations.imap.fields import LiveMailbox, without_controls
from postroom.operations.imap.rows import live_row, rows_that_fit
from postroom.operations.issues import Issues
from postroom.operations.operation import operation
from postroom.operations.request import Request
from postroom.ports.imap import ImapSession

MOST_MATCHES = 20_000
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CRITERIA = (
    "query", "from_", "to", "subject", "unread_only", "last_days", "start_date", "end_date",
)  # fmt: skip


def _date(text: str) -> str:
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a day, written as 2026-01-31") from None
    return text


_Words = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(without_controls)]
_Day = Annotated[str, AfterValidator(_date)]


class SearchLiveMessages(Request):
    """Search a mailbox of a live account, newest first; without criteria, list it.
    Text is matched by the server. More than 20,000 matches are refused: narrow the search."""

    account_id: AccountId = "default"
    mailbox: Annotated[LiveMailbox, Field(description="The mailbox.", examples=["INBOX"])]
    cursor: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=MOST_CHARS,
            description="next_cursor of the page before, instead of criteria.",
            examples=["eNqLVk..."],
        ),
    ] = None
    query: Annotated[
        _Words | None, Field(description="Text anywhere in the mail.", examples=["invoice"])
    ] = None
    from_: Annotated[
        _Words | None, Field(alias="from", description="In From.", examples=["ana@example.com"])
    ] = None
    to: Annotated[_Words | None, Field(description="In To.", examples=["bo@example.com"])] = None
    subject: Annotated[_Words | None, Field(description="In the subject.", examples=["Report"])] = (
        None
    )
    unread_only: Annotated[
        bool | None, Field(description="Only unread messages.", examples=[True])
    ] = None
    last_days: Annotated[
        int | None,
        Field(ge=1, le=365, description="Arrived within so many days.", examples=[7]),
    ] = None
    start_date: Annotated[
        _Day | None, Field(description="Arrived on this day or later.", examples=["2026-01-01"])
    ] = None
    end_date: Annotated[
        _Day | None, Field(description="Arrived on this day or earlier.", examples=["2026-01-31"])
    ] = None
    limit: Annotated[int, Field(ge=1, le=50, description="Results at most.", examples=[10])] = 10
    include_snippet: Annotated[
        bool, Field(description="Show the beginning of each text.", examples=[True])
    ] = False
    snippet_max_chars: Annotated[
        int | None,
        Field(
            ge=50,
            le=500,
            description="Length of snippets; only with include_snippet. Default 200.",
            examples=[200],
        ),
    ] = None

    @model_validator(mode="after")
    def _is_of_one_mind(self) -> Self:
        given = [n.removesuffix("_") for n in _CRITERIA if getattr(self, n) is not None]
        if self.cursor is not None and given:
            raise ValueError(
                f"cursor cannot be combined with {', '.join(given)}: it carries its own criteria"
            )
        if self.last_days is not None and (self.start_date or self.end_date):
            raise ValueError("last_days cannot be combined with start_date or end_date; drop one")
        if self.start_date and self.end_date and self.start_date > self.end_date:
            raise ValueError("start_date must not be after end_date")
        if self.snippet_max_chars is not None and not self.include_snippet:
            raise ValueError("snippet_max_chars needs include_snippet=true")
        return self

    def criteria(self, now: datetime) -> ImapCriteria:
        """What the server is asked; days count from now, so that every page means the same."""
        since = date.fromisoformat(self.start_date) if self.start_date else None
        if self.last_days is not None:
            since = now.date() - timedelta(days=self.last_days)
        return ImapCriteria(
            self.query,
            self.from_,
            self.to,
            self.subject,
            bool(self.unread_only),
            since,
            _day_after(self.end_date) if self.end_date else None,
        )

    @property
    def snippet_chars(self) -> int | None:
        return (self.snippet_max_chars or 200) if self.include_snippet else None


def _day_after(day: str) -> date | None:
    """The first day that is too late; after the last day there is none."""
    try:
        return date.fromisoformat(day) + timedelta(days=1)
    except OverflowError:
        return None


@dataclass(slots=True)
class _Search:
    """One page; a second attempt goes on where the first one was cut off."""

    request: SearchLiveMessages
    criteria: ImapCriteria
    place: Place | None
    issues: Issues
    found: ImapFound | None = None
    rows: dict[int, ImapSummary] = field(default_factory=dict)

    async def run(self, session: ImapSession) -> None:
        mailbox = self.request.mailbox
        if self.found is None:
            self.issues.stage = "search"
            found = await session.find(
                mailbox,
                self.criteria,
                limit=self.request.limit,
                most=MOST_MATCHES,
                uidvalidity=self.place.uidvalidity if self.place else None,
                below=self.place.below if self.place else None,
            )
            _check_total(found.total)
            self.found = found
        self.issues.stage = "fetch"
        missing = [uid for uid in self.found.uids if uid not in self.rows]
        if missing:
            await session.summaries(
                mailbox,
                self.found.uidvalidity,
                missing,
                snippet_chars=self.request.snippet_chars,
                into=self.rows,
            )


def _check_total(total: int) -> None:
    if total > MOST_MATCHES:
        raise InvalidInput(
            f"{total} messages match, more than the {MOST_MATCHES} allowed; narrow the search "
            "with from, to, subject, query or a date and try again",
            total=total,
            most=MOST_MATCHES,
        )


@operation(Scope.READ)
async def search_live_messages(ctx: Context, request: SearchLiveMessages) -> LiveSearch:
    live, account = account_of(ctx, request.account_id)
    place = _place(ctx, request)
    criteria = place.criteria if place else request.criteria(ctx.clock())
    search = _Search(request, criteria, place, Issues())
    with search.issues.collect():
        await live.read(account.account_id, search.run)
    return _page(ctx, search)


def _place(ctx: Context, request: SearchLiveMessages) -> Place | None:
    if request.cursor is None:
        return None
    return open_place(
        ctx.cursors, request.cursor, account_id=request.account_id, mailbox=request.mailbox
    )


def _page(ctx: Context, search: _Search) -> LiveSearch:
    found = search.found or ImapFound(0, 0)
    uids = found.uids
    rows = rows_that_fit([_row(search, uid) for uid in uids if uid in search.rows])
    if rows and len(rows) < len(search.rows):
        # A page too long for its reader ends early; the next one begins there.
        uids = tuple(uid for uid in uids if uid >= rows[-1].uid)
    _note_losses(search, uids)
    has_more = found.total > len(uids)
    return LiveSearch(
        search.issues.status(has_result=bool(rows) or (search.found is not None and not uids)),
        search.issues.all,
        search.request.account_id,
        search.request.mailbox,
        search.place.total if search.place else found.total,
        len(uids),
        len(rows),
        len(uids) - len(rows),
        tuple(rows),
        has_more and bool(uids),
        _next(ctx, search, uids[-1]) if has_more and uids else None,
    )


def _row(search: _Search, uid: int) -> LiveRow:
    assert search.found is not None
    request = search.request
    at = ImapLocator(request.account_id, request.mailbox, search.found.uidvalidity, uid)
    return live_row(at, search.rows[uid], request.snippet_chars)


def _note_losses(search: _Search, uids: tuple[int, ...]) -> None:
    """Say what was odd about the search, and which of the page could not be got."""
    for note in search.found.notes if search.found else ():
        search.issues.add(note.code, note.message, stage="search")
    if any(issue.stage == "fetch" for issue in search.issues.found):
        return
    for uid in uids:
        if uid not in search.rows:
            message = "the message was removed after the search had found it"
            search.issues.add("not_found", message, stage="fetch", uid=uid)


def _next(ctx: Context, search: _Search, last: int) -> str:
    assert search.found is not None
    total = search.place.total if search.place else search.found.total
    request = search.request
    return seal_place(
        ctx.cursors,
        Place(
            request.account_id,
            request.mailbox,
            search.criteria,
            search.found.uidvalidity,
            last,
            total,
        ),
    )
