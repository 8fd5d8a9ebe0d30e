"""The shape of every use case, and the one way to call it."""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from postroom.errors import Forbidden
from postroom.model.key import Scope
from postroom.operations.context import Context
from postroom.operations.deeds import deed_of
from postroom.operations.keeping import let_go
from postroom.operations.request import Request, parse_request

R = TypeVar("R", bound=Request)
T = TypeVar("T")


@dataclass(frozen=True)
class Operation(Generic[R, T]):
    """`async def verb_noun(ctx, request) -> result`, with the scope that it needs.

    `destroys` marks what cannot be taken back; surfaces warn of it. `gate` may refuse every call
    before its arguments are looked at. What `waits` for something to
    happen takes no room meanwhile, and ends when the client leaves.
    """

    run: Callable[[Context, R], Awaitable[T]]
    scope: Scope
    destroys: bool = False
    gate: Callable[[Context], None] | None = None
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

    async def __call__(self, ctx: Context, request: R) -> T:
        return await self.run(ctx, request)


def operation(
    scope: Scope,
    *,
    destroys: bool = False,
    gate: Callable[[Context], None] | None = None,
    waits: bool = False,
) -> Callable[[Callable[[Context, R], Awaitable[T]]], Operation[R, T]]:
    """Make a use case of a function."""
    return lambda run: Operation(run, scope, destroys, gate, waits)


async def call(ctx: Context, operation: Operation[Any, T], arguments: Mapping[str, Any]) -> T:
    """Answer a caller: check what they may do, then what they ask, then do it.

    Raises:
        RateLimited: the caller asks too fast.
        Forbidden: the caller lacks the scope.
        InvalidInput: the arguments are wrong; nothing was done.
    """
    if ctx.rates is not None and ctx.caller.is_metered:
        ctx.rates.take(ctx.caller.key_id)
    if ctx.turns is None or not ctx.caller.is_metered or operation.waits:
        return await _answer(ctx, operation, arguments)
    async with ctx.turns.of(ctx.caller.key_id):
        return await _answer(ctx, operation, arguments)


async def _answer(ctx: Context, operation: Operation[Any, T], arguments: Mapping[str, Any]) -> T:
    if operation.scope not in ctx.caller.scopes:
        raise Forbidden(
            f"this needs a key with the scope {operation.scope}; "
            f"yours has {', '.join(sorted(ctx.caller.scopes)) or 'none'}"
        )
    if operation.gate is not None:
        operation.gate(ctx)
    request = parse_request(operation.request, arguments)
    if operation.waits:
        let_go()
    if operation.scope is not Scope.READ:
        ctx = replace(ctx, store=ctx.store.by(deed_of(ctx, operation.name, request)))
    result = await operation.run(ctx, request)
    if operation.gate is not None:
        # What is behind a gate happens elsewhere: no write of ours has told the audit log.
        await ctx.store.put_down()
    return result
