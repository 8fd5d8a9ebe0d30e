"""The audit log: what was done, by whom, to what."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.model.audit import AuditEntry, AuditQuery
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Paged

_Name = Annotated[
    Annotated[str, Field(min_length=1, max_length=512)] | None,
    Accepts({"pattern": r"^[^\u0000]*$"}),
]
"""Of anything that was ever done or done to: a memory's key may hold what no id holds."""


class ListAudit(Paged):
    """List what keys, tools and rules have done, newest first."""

    actor: Annotated[
        _Name, Field(description="Only this key or rule.", examples=["key_3s8v5y"])
    ] = None
    action: Annotated[_Name, Field(description="Only this action.", examples=["apply_label"])] = (
        None
    )
    target: Annotated[_Name, Field(description="Only about this.", examples=["msg_4h8t2w"])] = None


@operation(Scope.ADMIN)
async def list_audit(ctx: Context, request: ListAudit) -> Page[AuditEntry]:
    query = AuditQuery(
        ctx.visible,
        request.actor,
        request.action,
        request.target,
        ctx.caller.namespaces,
        ctx.cursors.slice(request),
    )
    return ctx.cursors.page(request, await ctx.store.audit(query))
