"""Finding mail: one short line for each message."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Limit, argument
from postroom.mail.text.fold import fold
from postroom.model.agent import FoundMail, MailLine
from postroom.model.key import Scope
from postroom.model.message import Message, MessageRow
from postroom.model.page import Page
from postroom.operations.agent.lines import inbox_addresses, line_of
from postroom.operations.agent.operators import with_operators
from postroom.operations.message_selection import MessageFilter, MessageSelection, find_page
from postroom.operations.messages import fair_cut

TEXTS_CHARS = 24_000
"""The length of all texts of a page constraints."""


_NEAREST = 3
_NEAREST_HINT = "no message has all of these words; these come nearest"


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
    return FoundMail(page.total, lines, next_cursor=page.next_cursor, hint=page.hint)


async def _nearest(
    ctx: RequestContext, request: FindMail, nothing: Page[MessageRow]
) -> Page[MessageRow]:
    """What comes nearest to words of which no message has all."""
    by_meaning = {"mode": "hybrid", "sort": "newest", "limit": min(request.limit, _NEAREST)}
    found = await find_page(ctx, request.model_copy(update=by_meaning))
    if not found.results:
        return nothing
    hints = [_NEAREST_HINT, *([found.hint] if found.hint else [])]
    return replace(nothing, results=found.results, hint="; ".join(hints))


def _line(
    request: FindMail, row: MessageRow, message: Message, addresses: dict[str, str]
) -> MailLine:
    if request.text:
        return line_of(message, addresses, text=message.new_text or message.text)
    return line_of(message, addresses, snippet=_shown(row) or None)


def _shown(row: MessageRow) -> str:
    """The start of the text, or what matches if the rest of the row does not show it."""
    seen = fold(f"{row.subject} {row.snippet} {row.from_name} {row.from_address}")
    excerpt = row.excerpt or ""
    return row.snippet if fold(excerpt.strip("… ")) in seen else excerpt


def _within_budget(lines: tuple[MailLine, ...]) -> tuple[MailLine, ...]:
    cut = fair_cut([len(line.text or "") for line in lines], TEXTS_CHARS)
    return tuple(
        replace(line, text=(line.text or "")[:cut], next_offset=cut)
        if len(line.text or "") > cut
        else line
        for line in lines
    )
