"""Where a command finds its operations: in the data folder, or at a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from postroom.calls.operation import Operation, call
from postroom.model.event import EventStream
from postroom.model.key import OWNER, Scope
from postroom.model.message import Download
from postroom.surfaces.to_json import answer, presented, to_json

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.surfaces.rest.client import Client

Body = dict[str, Any]
Events = AsyncIterator[Body | None]
"""Events as they happen; None keeps a quiet stream alive."""

Answer = Body | Download | Events


class Backend(Protocol):
    """What runs operations; an answer is the same, whatever does."""

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        """Call an operation. Raises MailError."""
        ...

    async def body(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Body:
        """The answer of an operation that answers with JSON."""
        answered = await self.call(operation, arguments)
        assert isinstance(answered, dict)
        return answered


class Local(Backend):
    """The data folder, with the owner's rights."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        sends = operation.scope in (Scope.SEND, Scope.APPROVE)
        async with self._app.sending() if sends else nullcontext():
            result = await call(self._app.context(OWNER), operation, arguments)
        if isinstance(result, Download):
            return result
        if isinstance(result, EventStream):
            return _bodies(result)
        return presented(answer(operation, result))


async def _bodies(stream: EventStream) -> Events:
    async for event in stream.events:
        yield None if event is None else presented({"untrusted": True, **to_json(event)})


class Remote(Backend):
    """A server, with the rights of a key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        answered = await self._client.call(operation, arguments)
        return presented(answered) if isinstance(answered, dict) else answered
