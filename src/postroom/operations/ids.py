"""Ids by their first characters, for people who type them."""

from __future__ import annotations

from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.model.key import Scope
from postroom.model.page import FoundIds

_AT_MOST = 10


class FindIds(Request):
    """Find the ids of inboxes, messages, threads or attachments that begin so."""

    prefix: Annotated[
        str,
        argument(
            "The kind and at least three characters.",
            "msg_4h8",
            min_length=7,
            max_length=64,
            pattern="^(?:inb|msg|thr|att)_[0-9a-z]+$",
        ),
    ]


@operation(Scope.READ)
async def find_ids(ctx: RequestContext, request: FindIds) -> FoundIds:
    found = await ctx.store.ids_from(request.prefix, ctx.visible, limit=_AT_MOST + 1)
    return FoundIds(found[:_AT_MOST], has_more=len(found) > _AT_MOST)
