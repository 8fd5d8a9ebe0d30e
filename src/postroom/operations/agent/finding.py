"""Finding mail: one short line for each message."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Limit, argument
from postroom.mail.text.fold import fold, words_of
from postroom.model.agent import FoundMail, MailLine
from postroom.model.key import Scope
from postroom.model.message import Message, MessageRow
from postroom.model.page import Page
from postroom.operations.agent.lines import inbox_addresses, line_of
from postroom.operations.agent.operators import with_operators
from postroom.operations.message_selection import MessageFilter, MessageSelection, find_page
from postroom.operations.messages import fair_cut

TEXTS_CHARS = 24_000
"""The length of all texts of a page together."""


_NEAREST = 3
_NOT_ALL = "no message has all of these words; "
_PLAIN_TEXT = "-, OR and unknown operators in q are plain text; leave them out"
_SYNTAX = re.compile(r"(?<!\S)(?:-\w|\w+:\S|OR(?!\S)|NOT(?!\S))")
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
    """Find mail, newest first. A row shows what is unusual; read_mail takes ids of attachments."""

    mode: Annotated[
        Literal["words", "exact", "hybrid"],
        argument("words: each is in it; exact: q as it is; hybrid: by meaning.", "hybrid"),
    ] = "words"
    text: Annotated[bool, argument("Add the texts.", True)] = False
    limit: Limit = 10


@operation(Scope.READ)
async def find_mail(ctx: RequestContext, request: FindMail) -> FoundMail:
    page = await find_page(ctx, request)
    if page.hint and "mode" not in request.model_fields_set:
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
    hint = page.hint
    if not lines and _SYNTAX.search(request.q or ""):
        hint = _PLAIN_TEXT
    return FoundMail(page.total, lines, inbox, hint)


async def _nearest(
    ctx: RequestContext, request: FindMail, nothing: Page[MessageRow]
) -> Page[MessageRow]:
    """What has the words that matter, or comes nearest, if no message has all words of q."""
    if words := _words_that_matter(request.q or ""):
        found = await find_page(ctx, request.model_copy(update={"q": words}))
        if found.results:
            return replace(found, hint=f"{_NOT_ALL}these have {words}")
    by_meaning = {"mode": "hybrid", "sort": "newest", "limit": min(request.limit, _NEAREST)}
    found = await find_page(ctx, request.model_copy(update=by_meaning))
    if not found.results:
        return nothing
    hints = [f"{_NOT_ALL}these come nearest", *([found.hint] if found.hint else [])]
    return replace(nothing, results=found.results, hint="; ".join(hints))


def _words_that_matter(q: str) -> str:
    """The words of a question without those that only ask; empty if these are all or none."""
    # Imported on first use: its patterns are slow to compile.
    from postroom.mail.text.terms import STOP_WORDS

    words = list(words_of(fold(q)))
    bare = [word.strip(".,;!?'") for word in words]
    kept = [word for word in bare if word and word not in STOP_WORDS | _OF_QUESTIONS]
    return " ".join(f'"{w}"' if " " in w else w for w in kept) if kept != words else ""


def _line(
    request: FindMail, row: MessageRow, message: Message, addresses: dict[str, str]
) -> MailLine:
    if request.text:
        return line_of(message, addresses, text=message.new_text or message.text)
    return line_of(message, addresses, snippet=_shown(row, message, request.q or "") or None)


def _shown(row: MessageRow, message: Message, q: str) -> str:
    """The start of the text, or what matches if the rest of the row does not show it."""
    files = " ".join(file.filename for file in message.attachments)
    seen = fold(f"{row.subject} {row.snippet} {row.from_name} {row.from_address} {files}")
    excerpt = row.excerpt or ""
    sought = words_of(fold(_words_that_matter(q) or q)) if excerpt else ()
    is_seen = fold(excerpt.strip("… ")) in seen or all(word in seen for word in sought)
    return row.snippet if is_seen else excerpt


def _within_budget(lines: tuple[MailLine, ...]) -> tuple[MailLine, ...]:
    cut = fair_cut([len(line.text or "") for line in lines], TEXTS_CHARS)
    return tuple(
        replace(line, text=(line.text or "")[:cut], next_offset=cut)
        if len(line.text or "") > cut
        else line
        for line in lines
    )
