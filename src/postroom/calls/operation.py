"""Operations: how one is declared, called, limited and audited."""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar

from postroom.admission.spool import release
from postroom.calls.context import RequestContext
from postroom.calls.request import Request, parse_request
from postroom.errors import Forbidden
from postroom.model.audit import AuditRecord
from postroom.model.key import Scope

_NAMED = frozenset(
    ("label", "labels", "flags", "destination", "mailbox", "to", "cc", "bcc", "recipient", "scopes",
     "name", "address", "username", "url", "types", "status", "tags", "namespace")
)  # fmt: skip
"""Arguments that the audit log may hold. Bodies, subjects and secrets are not among them."""

_MAX_CHARS = 200
_MAX_ITEMS = 20


def audit_record_of(ctx: RequestContext, action: str, request: Request) -> AuditRecord:
    """The audit record of a call."""
    values = {name: getattr(request, name) for name in type(request).model_fields}
    return AuditRecord(
        actor=ctx.caller.key_id,
        action=action,
        at=ctx.clock(),
        targets=tuple(_targets(values)),
        details={name: shown for name, v in values.items() if (shown := _shown(name, v))},
        namespace=values.get("namespace"),
    )


def _targets(values: dict[str, Any]) -> list[str]:
    """The ids in the first argument that holds ids."""
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, str):
            return [value]
        if name.endswith("_ids") and isinstance(value, list):
            return list(dict.fromkeys(value))
    return []


def _shown(name: str, value: object) -> object:
    if isinstance(value, (bool, int)) and not isinstance(value, Enum):
        return value
    if name not in _NAMED:
        return None
    if isinstance(value, list):
        return [str(item)[:_MAX_CHARS] for item in value[:_MAX_ITEMS]]
    return value[:_MAX_CHARS] if isinstance(value, str) else None


R = TypeVar("R", bound=Request)
T = TypeVar("T")


@dataclass(frozen=True)
class Operation(Generic[R, T]):
    """`async def verb_noun(ctx, request) -> result`, with the scope that it needs.

    `destroys` marks what cannot be undone; surfaces warn of it. `gate` may refuse every call
    before its arguments are checked. An operation that `waits` does not count as running, and ends
    when the client disconnects.
    """

    run: Callable[[RequestContext, R], Awaitable[T]]
    scope: Scope
    destroys: bool = False
    gate: Callable[[RequestContext], None] | None = None
    waits: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    @cached_property
    def request(self) -> type[R]:
        return typing.cast(type[R], self._hints["request"])

    @cached_property
    def result(self) -> Any:
        return self._hints["return"]

    @property
    def description(self) -> str:
        return " ".join((self.request.__doc__ or "").split())

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.run)

    async def __call__(self, ctx: RequestContext, request: R) -> T:
        return await self.run(ctx, request)


def operation(
    scope: Scope,
    *,
    destroys: bool = False,
    gate: Callable[[RequestContext], None] | None = None,
    waits: bool = False,
) -> Callable[[Callable[[RequestContext, R], Awaitable[T]]], Operation[R, T]]:
    """Declare a function as an operation."""
    return lambda run: Operation(run, scope, destroys, gate, waits)


async def call(
    ctx: RequestContext, operation: Operation[Any, T], arguments: Mapping[str, Any]
) -> T:
    """Call an operation: check rate, scope and arguments, then run it.

    Raises:
        RateLimited: the caller is over its rate limit.
        Forbidden: the caller lacks the scope.
        InvalidInput: the arguments are not valid; nothing was done.
    """
    if ctx.rates is not None and ctx.caller.is_metered:
        ctx.rates.take(ctx.caller.key_id)
    if ctx.fair_queue is None or not ctx.caller.is_metered or operation.waits:
        return await _answer(ctx, operation, arguments)
    async with ctx.fair_queue.of(ctx.caller.key_id):
        return await _answer(ctx, operation, arguments)


async def _answer(
    ctx: RequestContext, operation: Operation[Any, T], arguments: Mapping[str, Any]
) -> T:
    if operation.scope not in ctx.caller.scopes:
        raise Forbidden(
            f"this needs a key with the scope {operation.scope}; "
            f"yours has {', '.join(sorted(ctx.caller.scopes)) or 'none'}"
        )
    if operation.gate is not None:
        operation.gate(ctx)
    request = parse_request(operation.request, arguments)
    if operation.waits:
        release()
    if operation.scope is not Scope.READ:
        ctx = replace(ctx, store=ctx.store.by(audit_record_of(ctx, operation.name, request)))
    result = await operation.run(ctx, request)
    if operation.gate is not None:
        # A live operation writes nothing here, so the audit entry is recorded on its own.
        await ctx.store.record_audit()
    return result
