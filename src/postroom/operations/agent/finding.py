"""Finding mail: one short line for each message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Limit, argument
from postroom.mail.text.fold import fold
from postroom.model.agent import FoundMail, MailLine
from postroom.model.key import Scope
from postroom.model.message import Message, MessageRow
from postroom.operations.agent.lines import inbox_addresses, line_of
from postroom.operations.agent.operators import split_operators
from postroom.operations.message_selection import MessageFilter, find_page
from postroom.operations.messages import fair_cut

TEXTS_CHARS = 24_000
"""The length of all texts of a page constraints."""


class FindMail(MessageFilter):
    """Find mail, newest first. A row shows what is unusual; read_mail takes ids of attachments."""

    mode: Annotated[
        Literal["words", "exact", "hybrid"],
        argument("words: each is in it; exact: q as it is; hybrid: by meaning.", "hybrid"),
    ] = "words"
    text: Annotated[bool, argument("Add the texts.", True)] = False
    limit: Limit = 10

    @model_validator(mode="before")
    @classmethod
    def _operators(cls, data: Any) -> Any:
        """Take `from:`, `is:unread` and the like out of q; an argument of its own wins."""
        q = data.get("q") if isinstance(data, dict) else None
        if not isinstance(q, str) or ":" not in q or data.get("mode") == "exact":
            return data
        rest, found = split_operators(q, datetime.now(UTC))
        given = {name: value for name, value in data.items() if name != "q"}
        return {**found, **given, **({"q": rest} if rest else {})} if found else data


@operation(Scope.READ)
async def find_mail(ctx: RequestContext, request: FindMail) -> FoundMail:
    page = await find_page(ctx, request)
    if not page.results and request.sender and " " in request.sender.strip():
        page = await find_page(ctx, request, sender_words=True)
    whole = await ctx.store.messages_by_id([row.id for row in page.results], ctx.visible)
    addresses = {} if request.inbox_id or request.thread_id else await inbox_addresses(ctx)
    lines = tuple(
        _line(request, row, whole[row.id], addresses) for row in page.results if row.id in whole
    )
    if request.text:
        lines = _within_budget(lines)
    return FoundMail(page.total, lines, next_cursor=page.next_cursor, hint=page.hint)


def _line(
    request: FindMail, row: MessageRow, message: Message, addresses: dict[str, str]
) -> MailLine:
    if request.text:
        return line_of(message, addresses, text=message.new_text or message.text)
    shown = row.snippet
    if row.excerpt and not _is_shown(row, request.q or ""):
        shown = row.excerpt
    return line_of(message, addresses, snippet=shown or None)


def _is_shown(row: MessageRow, q: str) -> bool:
    """Whether subject and snippet show the match already."""
    seen = fold(f"{row.subject} {row.snippet}")
    return all(word in seen for word in fold(q.replace('"', " ")).split())


def _within_budget(lines: tuple[MailLine, ...]) -> tuple[MailLine, ...]:
    cut = fair_cut([len(line.text or "") for line in lines], TEXTS_CHARS)
    return tuple(
        replace(line, text=(line.text or "")[:cut], next_offset=cut)
        if len(line.text or "") > cut
        else line
        for line in lines
    )
