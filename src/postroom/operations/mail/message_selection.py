"""Which messages: the filters that lists, searches and bulk changes share, and one page of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.request import (
    Accepts,
    Constraint,
    LabelName,
    MailboxName,
    Moment,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    check_kinds,
    not_both,
    one_of,
)
from postroom.errors import InvalidInput
from postroom.mail.text.fold import MAX_WORDS, fold, words_of
from postroom.model.mail.message import MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Page
from postroom.operations.memory_search import BY_WORDS, rank_mail

SearchText = Annotated[
    str | None, Field(min_length=1, max_length=256), Accepts({"pattern": request.SEARCH_TEXT})
]
"""A text to look for."""

Mode = Literal["exact", "words", "hybrid"]
Flag = Literal["seen", "flagged", "answered", "draft"]

CRITERIA = (
    *("inbox_id", "thread_id", "q", "query", "labels", "from", "to", "subject", "unread", "flags"),
    *("has_attachment", "after_date", "before_date", "mailbox"),
)
"""The arguments that say which messages."""


class MessageSelection(Request):
    """The filters of messages, without paging."""

    constraints: ClassVar[tuple[Constraint, ...]] = (not_both("text", "q", "query"),)
    splits_names: ClassVar[bool] = False
    """Whether each word of a name must be in the address or name, in any order."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None
    thread_id: Annotated[OptionalId, argument("Only this thread.", "thr_9d3f1x")] = None
    q: Annotated[
        SearchText,
        argument("Text in subject, body, sender or file name.", "invoice.pdf"),
    ] = None
    same_as_q: Annotated[SearchText, argument("The same as q.", "invoice", alias="query")] = None
    labels: Annotated[
        list[LabelName], argument("With all these labels.", ["Work"], max_length=50)
    ] = []
    sender: Annotated[
        SearchText,
        argument("Address, @domain, or part of address or name.", "@example.com", alias="from"),
    ] = None
    recipient: Annotated[
        SearchText, argument("The same for to, cc and bcc.", "ana@example.com", alias="to")
    ] = None
    subject: Annotated[SearchText, argument("Text in the subject.", "invoice")] = None
    unread: Annotated[bool | None, argument("Only unread; false: only read.", True)] = None
    flags: Annotated[list[Flag], argument("With all these flags.", ["flagged"], max_length=4)] = []
    has_attachment: Annotated[bool | None, argument("With or without attachments.", True)] = None
    after_date: Annotated[Moment, argument("From this time on.", "2026-01-31")] = None
    before_date: Annotated[Moment, argument("Before this time.", "2026-02-28")] = None
    mailbox: Annotated[
        MailboxName | None,
        argument("Default: all but Trash, Junk; * is all.", "Archive"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _query_is_q(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("query") is None:
            return data
        given = [data[name] for name in ("q", "query") if data.get(name) not in (None, "")]
        if given[1:] not in ([], given[:1]):
            raise ValueError("q and query are the same argument; give one of them")
        rest = {name: value for name, value in data.items() if name not in ("q", "query")}
        return {**rest, "q": given[0] if given else ""}

    def query(self, ctx: RequestContext, *, mode: Mode = "exact") -> MessageQuery:
        """The query for everything that matches.

        Raises:
            InvalidInput: an id of another kind, an empty text, or too many words.
        """
        check_kinds(inbox_id=self.inbox_id, thread_id=self.thread_id)
        q = folded("q", self.q)
        sender, sender_words = name_and_words("from", self.sender, is_split=self.splits_names)
        recipient, recipient_words = name_and_words(
            "to", self.recipient, is_split=self.splits_names
        )
        flags = dict.fromkeys(self.flags)
        if self.unread is False:
            flags["seen"] = None
        return MessageQuery(
            visible=ctx.visible,
            inbox_id=self.inbox_id,
            thread_id=self.thread_id,
            q=None if mode == "words" else q,
            words=_split_words("q", q) if mode == "words" and q is not None else (),
            sender=sender,
            sender_words=sender_words,
            recipient=recipient,
            recipient_words=recipient_words,
            subject=folded("subject", self.subject),
            labels=tuple(self.labels),
            flags=tuple(flags),
            without_flags=("seen",) if self.unread else (),
            has_attachment=self.has_attachment,
            after=self.after_date,
            before=self.before_date,
            mailbox=self.mailbox,
        )


_UNRANKED = {"properties": {"mode": {"enum": ["exact", "words"]}}}
_QUESTION = one_of("question", ("q", "query")).schema["anyOf"]
_BY_DATE = {"properties": {"sort": {"enum": ["newest"]}}}


class MessageFilter(MessageSelection, Paged):
    """The filters of messages, how to search and sort them, and which page to show."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        *Paged.constraints,
        *MessageSelection.constraints,
        Constraint(
            "question",
            ("mode", "q", "query"),
            {"anyOf": [_UNRANKED, *_QUESTION]},
            "mode hybrid needs q: the query",
            lambda request: request.mode == "hybrid" and request.q is None,
        ),
        Constraint(
            "order",
            ("mode", "sort"),
            {"anyOf": [_UNRANKED, _BY_DATE]},
            "mode hybrid sorts by relevance; leave out sort, or choose another mode",
            lambda request: request.mode == "hybrid" and request.sort == "oldest",
        ),
    )
    mode: Annotated[Mode, argument('q literally; each word or "phrase"; by meaning.', "words")] = (
        "exact"
    )
    sort: Annotated[Literal["newest", "oldest"], argument("Sort order.", "oldest")] = "newest"


def folded(name: str, text: str | None) -> str | None:
    """A folded text. Raises InvalidInput if it is empty after folding."""
    found = None if text is None else fold(text)
    if found == "":
        raise InvalidInput(f"{name}: contains only white space; give at least one word")
    return found


_NAMED_ADDRESS = re.compile(r"[^<>]*<([^<>\s]+@[^<>\s]+)>\s*")


def name_and_words(
    argument: str, name: str | None, *, is_split: bool
) -> tuple[str | None, tuple[str, ...]]:
    """An address or name as a whole or, if it *is_split*, its words. Raises InvalidInput.

    Of `Ana Lima <ana@example.com>`, the address counts.
    """
    written = _NAMED_ADDRESS.fullmatch(name or "")
    whole = folded(argument, written[1] if written else name)
    if whole is None or not is_split or " " not in whole:
        return whole, ()
    return None, _split_words(argument, whole)


def _split_words(name: str, text: str) -> tuple[str, ...]:
    """The words and quoted phrases of a folded text. Raises InvalidInput if they are too many."""
    found = words_of(text)
    if len(found) > MAX_WORDS:
        raise InvalidInput(
            f"{name}: there are {len(found)} words; the limit is {MAX_WORDS}; leave some out"
        )
    return found


async def find_page(ctx: RequestContext, request: MessageFilter) -> Page[MessageRow]:
    """One page of the messages that a request asks for. Raises InvalidInput, NotFound."""
    query = replace(
        request.query(ctx, mode=request.mode),
        oldest_first=request.sort == "oldest",
        page=ctx.cursors.slice(request),
    )
    if request.mode == "hybrid":
        found = await rank_mail(ctx, query, request.q or "")
    else:
        found = await ctx.store.messages(query)
    page = ctx.cursors.page(request, found)
    if request.mode == "hybrid" and ctx.lacks_model:
        return replace(page, hint=BY_WORDS)
    if found.unranked:
        return replace(page, hint=_NOT_FINAL.format(found.unranked))
    return page if found.total else replace(page, hint=_hint(request))


_NOT_FINAL = (
    "the order is not final: {} of the messages that match the filters are not indexed by meaning "
    "yet; search again later, or use more filters"
)
_HINTS: dict[Mode, str] = {
    "exact": 'no message contains these words in this order; try mode=words (each word, or "phrase"'
    " in quotes, anywhere), mode=hybrid (by meaning)",
    "words": "no message contains all of these words; try fewer or shorter ones, mode=hybrid (by "
    "meaning)",
    "hybrid": "no message is relevant to this query; try other words or fewer filters",
}


def _hint(request: MessageFilter) -> str | None:
    """What to try after a search for several words found nothing."""
    if len(fold(request.q or "").split()) < 2:
        return None
    places = "" if request.mailbox == "*" else ", or mailbox=* to include Trash and Junk"
    filters = ", the filters from and subject" if request.mode != "hybrid" else ""
    return f"{_HINTS[request.mode]}{filters}{places}"
