"""Live search of an IMAP mailbox, page by page."""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.calls.context import Cursors, RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.errors import InvalidInput
from postroom.model.imap import ImapCriteria, ImapFound, ImapLocator, ImapSummary, LiveSearch
from postroom.model.key import Scope
from postroom.operations.imap.accounts import (
    AccountId,
    Issues,
    LiveMailbox,
    account_of,
    without_controls,
)
from postroom.operations.imap.reading import live_row, rows_that_fit
from postroom.ports.imap import ImapSession

_QUESTION = b"live search 2"
_NUMBERS = struct.Struct(">QQQ")
MAX_CHARS = 8_192


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """The content of a cursor: the search, the mailbox, the last UID and the number of matches."""

    account_id: str
    mailbox: str
    criteria: ImapCriteria
    uidvalidity: int
    below: int
    total: int


def seal_position(cursors: Cursors, position: SearchPosition) -> str:
    """A cursor for the page that starts here."""
    criteria = {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in asdict(position.criteria).items()
        if value
    }
    search = (position.account_id, position.mailbox, criteria)
    body = json.dumps(search, separators=(",", ":"), ensure_ascii=False).encode()
    # The numbers have a fixed size, so that the length of the cursor does not change.
    numbers = _NUMBERS.pack(position.uidvalidity, position.below, position.total)
    return cursors.seal(numbers + zlib.compress(body, 9), _QUESTION)


def open_position(
    cursors: Cursors, cursor: str, *, account_id: str, mailbox: str
) -> SearchPosition:
    """The content of a cursor. Raises InvalidInput if it is of another mailbox."""
    body = cursors.unseal(cursor, _QUESTION)
    uidvalidity, below, total = _NUMBERS.unpack_from(body)
    its_account, its_mailbox, written = json.loads(zlib.decompress(body[_NUMBERS.size :]))
    if (its_account, its_mailbox) != (account_id, mailbox):
        raise InvalidInput(
            f"cursor: it belongs to mailbox {its_mailbox} of account {its_account}; "
            "pass the same account_id and mailbox, or start again without it"
        )
    for name in _DATES & written.keys():
        written[name] = date.fromisoformat(written[name])
    criteria = ImapCriteria(**written)
    return SearchPosition(its_account, its_mailbox, criteria, uidvalidity, below, total)


_DATES = {"since", "before"}

MAX_MATCHES = 20_000
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
    mailbox: Annotated[LiveMailbox, argument("The mailbox.", "INBOX")]
    cursor: Annotated[
        str | None,
        argument(
            "next_cursor of the previous page, instead of criteria.",
            "eNqLVk...",
            min_length=1,
            max_length=MAX_CHARS,
        ),
    ] = None
    query: Annotated[_Words | None, argument("Text anywhere in the mail.", "invoice")] = None
    from_: Annotated[_Words | None, argument("In From.", "ana@example.com", alias="from")] = None
    to: Annotated[_Words | None, argument("In To.", "bo@example.com")] = None
    subject: Annotated[_Words | None, argument("In the subject.", "Report")] = None
    unread_only: Annotated[bool | None, argument("Only unread messages.", True)] = None
    last_days: Annotated[
        int | None, argument("Arrived within this many days.", 7, ge=1, le=365)
    ] = None
    start_date: Annotated[_Day | None, argument("Arrived on this day or later.", "2026-01-01")] = (
        None
    )
    end_date: Annotated[_Day | None, argument("Arrived on this day or earlier.", "2026-01-31")] = (
        None
    )
    limit: Annotated[int, argument("Maximum number of results.", 10, ge=1, le=50)] = 10
    include_snippet: Annotated[bool, argument("Show the beginning of each text.", True)] = False
    snippet_max_chars: Annotated[
        int | None,
        argument("Length of snippets; only with include_snippet. Default 200.", 200, ge=50, le=500),
    ] = None

    @model_validator(mode="after")
    def _has_consistent_criteria(self) -> Self:
        given = [n.removesuffix("_") for n in _CRITERIA if getattr(self, n) is not None]
        if self.cursor is not None and given:
            raise ValueError(
                f"cursor cannot be combined with {', '.join(given)}: it contains its own criteria"
            )
        if self.last_days is not None and (self.start_date or self.end_date):
            raise ValueError("last_days cannot be combined with start_date or end_date; drop one")
        if self.start_date and self.end_date and self.start_date > self.end_date:
            raise ValueError("start_date must not be after end_date")
        if self.snippet_max_chars is not None and not self.include_snippet:
            raise ValueError("snippet_max_chars needs include_snippet=true")
        return self

    def criteria(self, now: datetime) -> ImapCriteria:
        """The criteria for the server; days count from now, the same for every page."""
        since = date.fromisoformat(self.start_date) if self.start_date else None
        if self.last_days is not None:
            since = now.date() - timedelta(days=self.last_days)
        before = None
        # Nothing is after the last possible day.
        if self.end_date and (end := date.fromisoformat(self.end_date)) < date.max:
            before = end + timedelta(days=1)
        texts = (self.query, self.from_, self.to, self.subject)
        return ImapCriteria(*texts, bool(self.unread_only), since, before)

    @property
    def snippet_chars(self) -> int | None:
        return (self.snippet_max_chars or 200) if self.include_snippet else None


@dataclass(slots=True)
class _Search:
    """One page; a second attempt continues where the first was interrupted."""

    request: SearchLiveMessages
    criteria: ImapCriteria
    position: SearchPosition | None
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
                max_matches=MAX_MATCHES,
                uidvalidity=self.position.uidvalidity if self.position else None,
                below=self.position.below if self.position else None,
            )
            if found.total > MAX_MATCHES:
                raise InvalidInput(
                    f"{found.total} messages match, more than the {MAX_MATCHES} allowed; narrow "
                    "the search with from, to, subject, query or a date and try again",
                    total=found.total,
                    most=MAX_MATCHES,
                )
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


@operation(Scope.READ)
async def search_live_messages(ctx: RequestContext, request: SearchLiveMessages) -> LiveSearch:
    live, account = account_of(ctx, request.account_id)
    position = None
    if request.cursor is not None:
        where = {"account_id": request.account_id, "mailbox": request.mailbox}
        position = open_position(ctx.cursors, request.cursor, **where)
    criteria = position.criteria if position else request.criteria(ctx.clock())
    search = _Search(request, criteria, position, Issues())
    with search.issues.collect():
        await live.read(account.account_id, search.run)
    return _page(ctx, search)


def _page(ctx: RequestContext, search: _Search) -> LiveSearch:
    request, found = search.request, search.found or ImapFound(0, 0)
    mailbox, uids = (request.account_id, request.mailbox), found.uids
    total = search.position.total if search.position else found.total
    locators = (ImapLocator(*mailbox, found.uidvalidity, uid) for uid in uids if uid in search.rows)
    rows = rows_that_fit(
        [live_row(at, search.rows[at.uid], request.snippet_chars) for at in locators]
    )
    if rows and len(rows) < len(search.rows):
        # A page too long for its reader ends early; the next one begins there.
        uids = tuple(uid for uid in uids if uid >= rows[-1].uid)
    _note_losses(search, uids)
    cursor = None
    if uids and found.total > len(uids):
        rest = SearchPosition(*mailbox, search.criteria, found.uidvalidity, uids[-1], total)
        cursor = seal_position(ctx.cursors, rest)
    has_result = bool(rows) or (search.found is not None and not uids)
    status, issues = search.issues.status(has_result=has_result), search.issues.all
    counts = (total, len(uids), len(rows), len(uids) - len(rows))
    return LiveSearch(status, issues, *mailbox, *counts, tuple(rows), cursor is not None, cursor)


def _note_losses(search: _Search, uids: tuple[int, ...]) -> None:
    """Add issues of the search, and of messages that could not be fetched."""
    for note in search.found.notes if search.found else ():
        search.issues.add(note.code, note.message, stage="search")
    if any(issue.stage == "fetch" for issue in search.issues.found):
        return
    for uid in uids:
        if uid not in search.rows:
            message = "the message was removed after the search had found it"
            search.issues.add("not_found", message, stage="fetch", uid=uid)
