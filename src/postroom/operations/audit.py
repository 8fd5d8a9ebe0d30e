"""The audit log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Accepts, Paged, argument
from postroom.model.audit import AuditEntry, AuditQuery
from postroom.model.key import Scope
from postroom.model.page import Page

_Name = Annotated[
    Annotated[str, Field(min_length=1, max_length=512)] | None,
    Accepts({"pattern": r"^[^\u0000]*$"}),
]
"""Any target, also the key of a memory, which may hold characters that no id has."""


class ListAudit(Paged):
    """List what keys, tools and rules have done, newest first."""

    actor: Annotated[_Name, argument("Only this key or rule.", "key_3s8v5y")] = None
    action: Annotated[_Name, argument("Only this action.", "apply_label")] = None
    target: Annotated[_Name, argument("Only about this.", "msg_4h8t2w")] = None


@operation(Scope.ADMIN)
async def list_audit(ctx: RequestContext, request: ListAudit) -> Page[AuditEntry]:
    query = AuditQuery(
        ctx.visible,
        ctx.caller.namespaces,
        request.actor,
        request.action,
        request.target,
        ctx.cursors.slice(request),
    )
    return ctx.cursors.page(request, await ctx.store.audit(query))
