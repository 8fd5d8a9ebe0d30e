"""The client of the command line: from an operation to a call of `postroom.client`, and back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError
from msgspec.json import decode

from postroom.calls.context import parse_request
from postroom.calls.operation import Operation
from postroom.client.connection import (
    AsyncConnection,
    AsyncLines,
    filename_of,
    foreign_response_error,
    read_json,
)
from postroom.client.method import Call
from postroom.errors import InvalidInput, MailError, Unauthenticated, Unavailable
from postroom.model.event import EventStream
from postroom.model.mail.message import Download
from postroom.surfaces.rest.routes import NOTHING_HERE, ROUTES, Route

Body = dict[str, Any]
Events = AsyncIterator[Body | None]

_RESPONSE_S = 120.0
_FAILURES = ("not_found", "conflict", "provider_error", "provider_auth", "provider_timeout")
"""What can be wrong with the one message of an action."""

_ENDPOINT = re.compile(r"\b(GET|POST|PATCH|DELETE) (/v1/[\w/{}@.%-]*\w\b}?)")


class Client:
    """Calls the operations of a server as a program with a key does."""

    def __init__(self, connection: AsyncConnection, *, has_key: bool) -> None:
        self._connection, self._has_key = connection, has_key

    async def call(
        self, operation: Operation[Any, Any], arguments: Mapping[str, Any]
    ) -> Body | Download | Events:
        """Call an operation.

        Raises:
            MailError: as the operation does, or the server cannot be reached.
        """
        parse_request(operation.request, arguments)  # reports the same problems in the same words
        route = next(route for route in ROUTES if route.operation is operation)
        call = _call_of(route, arguments)
        try:
            if operation.result is EventStream:
                return _events(await self._connection.stream(call))
            if operation.result is Download:
                return _download(await self._connection.stream(call))
            return await self._body(call)
        except MailError as error:
            if route.single and error.code in _FAILURES:
                return _failed_action(arguments["message_id"], error)
            raise self._reworded(error, call) from error.__cause__

    async def _body(self, call: Call) -> Body:
        response = await self._connection.send(call)
        body = {} if response.status_code == 204 else read_json(response.content)
        if not isinstance(body, dict):
            raise foreign_response_error(self._connection.url, response)
        return body

    def _reworded(self, error: MailError, call: Call) -> MailError:
        """The error in the words of the command line."""
        url = self._connection.url
        if isinstance(error, Unauthenticated):
            problem = "does not accept this key" if self._has_key else "needs a key"
            return Unauthenticated(
                f"{url} {problem}; give one with --key-file FILE or POSTROOM_KEY, as "
                "`postroom key create` shows it"
            )
        if str(error).startswith(NOTHING_HERE):
            return InvalidInput(
                f"{url} does not know {call.path}; check --url, or use the version of Postroom "
                "that the server has"
            )
        error.details = {}  # what is wrong with single arguments was told before anything was sent
        return error


def _failed_action(message_id: str, error: MailError) -> Body:
    """The result of an action on one message that failed."""
    return {
        **({"untrusted": True} if error.is_untrusted else {}),
        "status": "failed",
        "succeeded": [],
        "failed": [{"message_id": message_id, "code": error.code, "message": str(error)}],
    }


def _call_of(route: Route, arguments: Mapping[str, Any]) -> Call:
    given = dict(arguments)
    if route.when and route.when not in given:
        given[route.when] = route.operation.request.model_fields[route.when].default
    return Call(
        route.method,
        re.sub(r"{(\w+)}", lambda found: quote(str(given[found[1]]), safe=""), route.path),
        route.operation.result,
        query={name: given[name] for name in route.at("query") if name in given},
        body={name: given[name] for name in route.at("body") if name in given}
        if route.has_json_body
        else None,
        raw=given[route.raw] if route.raw else None,
    )


def operations_named(text: str) -> str:
    """A message with operations in place of endpoints, such as `GET /v1/labels`."""
    return _ENDPOINT.sub(_operation_of, text)


def _operation_of(found: re.Match[str]) -> str:
    for route in ROUTES:
        shape = re.sub(r"{\w+}", "[^/]+", route.path)
        if route.method == found[1] and not route.when and re.fullmatch(shape, found[2]):
            return route.operation.name
    return found[0]


def _download(answer: AsyncLines) -> Download:
    headers = answer.response.headers
    return Download(
        chunks=answer.response.aiter_bytes(),
        size=int(headers.get("content-length", 0)),
        content_type=headers.get("content-type", "application/octet-stream"),
        filename=filename_of(answer.response),
    )


async def _events(answer: AsyncLines) -> Events:
    """The events of a stream; a comment keeps it open."""
    async for line in answer.lines():
        if line.startswith("data: "):
            yield _event(line[6:])
        elif line.startswith(":"):
            yield None
    raise Unavailable("the server closed the event stream; connect again", retry_after=1)


def _event(text: str) -> Body:
    try:
        return dict(decode(text))
    except (DecodeError, TypeError, ValueError):
        raise Unavailable("the event stream cannot be read; connect again", retry_after=1) from None


@asynccontextmanager
async def connected(url: str, key: str | None) -> AsyncIterator[Client]:
    """A client of a server, for as long as the block lasts. Raises InvalidInput."""
    try:
        connection = AsyncConnection(url, key, timeout_s=_RESPONSE_S, retries=0)
    except InvalidInput as error:
        name = "" if str(error).startswith("key:") else "--url: "
        raise InvalidInput(f"{name}{error}") from None
    try:
        yield Client(connection, has_key=key is not None)
    finally:
        await connection.close()
