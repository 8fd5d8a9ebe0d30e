"""The clients: `Postroom`, whose methods block, and `AsyncPostroom` for asyncio."""

from __future__ import annotations

from dataclasses import replace
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, cast, get_args, get_origin

from msgspec import ValidationError, convert
from msgspec.structs import fields

from postroom.client.events import AsyncEventStream, EventStream, Position
from postroom.client.files import Download
from postroom.client.method import Awaited, Call, Waiting
from postroom.client.operations.administration import AdministrationOperations
from postroom.client.operations.automation import AutomationOperations
from postroom.client.operations.inboxes import InboxesOperations
from postroom.client.operations.memories import MemoriesOperations
from postroom.client.operations.messages import MessagesOperations
from postroom.client.operations.outgoing import OutgoingOperations
from postroom.client.responses import AsyncPage, Page
from postroom.client.values.records import Event

if TYPE_CHECKING:  # HTTP takes longest to import: a client imports it when it is made
    import httpx2

LOCAL = "http://127.0.0.1:8700"
FIRST_EVENT = "evt_0"


class Operations(
    InboxesOperations,
    MessagesOperations,
    OutgoingOperations,
    MemoriesOperations,
    AutomationOperations,
    AdministrationOperations,
):
    """Every operation of the REST API."""


class Postroom(Operations, Waiting):
    """A client of a Postroom server. Its methods are the operations of the REST API.

    *retries* is how often a request is retried after a temporary failure; *timeout_s* is how
    long a response may take. A client may be shared by threads.

    Raises:
        MailError: every method raises the errors of `postroom.errors`.
    """

    def __init__(
        self, url: str = LOCAL, key: str | None = None, *, retries: int = 2, timeout_s: float = 60
    ) -> None:
        from postroom.client.connection import Connection

        self._connection = Connection(url, key, timeout_s, retries)

    def perform(self, call: Call) -> Any:
        """Send a call and return its response. Raises MailError."""
        answer = answer_of(call, self._connection.send(call), self._connection.url)
        if isinstance(answer, Page):
            answer.__dict__["follow"] = lambda cursor: self.perform(call.at(cursor))
        return answer

    def open_stream(self, call: Call) -> EventStream:
        """Open a stream of events. Raises MailError."""
        position = Position()
        position.since = call.query.get("since")
        if position.since is None:
            position.since = newest(self.perform(latest_event(call)))
        connect = self._connection.stream
        return EventStream(lambda since: connect(streamed(call, since)), position)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncPostroom(Operations, Awaited):
    """The same client for asyncio: with coroutines, and `async for` over lists."""

    def __init__(
        self, url: str = LOCAL, key: str | None = None, *, retries: int = 2, timeout_s: float = 60
    ) -> None:
        from postroom.client.connection import AsyncConnection

        self._connection = AsyncConnection(url, key, timeout_s, retries)

    async def perform(self, call: Call) -> Any:
        """Send a call and return its response. Raises MailError."""
        if get_origin(call.result) is Page:
            call = replace(call, result=cast(Any, AsyncPage)[get_args(call.result)])
        answer = answer_of(call, await self._connection.send(call), self._connection.url)
        if isinstance(answer, AsyncPage):
            answer.__dict__["follow"] = lambda cursor: self.perform(call.at(cursor))
        return answer

    def open_stream(self, call: Call) -> AsyncEventStream:
        """A stream of events, which opens when it is entered. Raises MailError."""
        position = Position()
        position.since = call.query.get("since")

        async def connect(since: str | None) -> Any:
            if since is None:
                since = position.since = newest(await self.perform(latest_event(call)))
            return await self._connection.stream(streamed(call, since))

        return AsyncEventStream(connect, position)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def answer_of(call: Call, response: httpx2.Response, url: str) -> Any:
    """The value in a response. Raises InvalidInput if it is not from Postroom."""
    from postroom.client.connection import filename_of, foreign_response_error, read_json

    if call.result is Download:
        media_type = response.headers.get("content-type", "")
        name = filename_of(response)
        return Download(content=response.content, filename=name, content_type=media_type)
    if call.result is type(None) or response.status_code == 204:
        return None
    body = read_json(response.content)
    try:
        return convert(body, _shape_of(call.result, body))
    except (ValidationError, TypeError):
        raise foreign_response_error(url, response) from None


def _shape_of(result: Any, body: Any) -> Any:
    """The type of a response; of several, the one with most of its members."""
    if not isinstance(result, UnionType):
        return result
    members = set(body if isinstance(body, dict) else ())
    return max(get_args(result), key=lambda kind: len(members & {f.name for f in fields(kind)}))


def latest_event(call: Call) -> Call:
    """The call that returns the event after which a stream starts, so that none is lost."""
    kept = {name: value for name, value in call.query.items() if name == "inbox_id"}
    query = {**kept, "sort": "newest", "limit": 1}
    return Call("GET", "/v1/events", Page[Event], query=query)


def newest(page: Any) -> str:
    """The id of the newest event; there may be none yet."""
    return page.results[0].id if page.results else FIRST_EVENT


def streamed(call: Call, since: str | None) -> Call:
    """The call that opens a stream after an event."""
    return replace(call, query={**call.query, "since": since})
