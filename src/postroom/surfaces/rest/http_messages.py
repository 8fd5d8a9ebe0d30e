"""HTTP messages: requests become arguments of operations, results and errors become responses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote

from msgspec import DecodeError
from msgspec.json import decode, encode
from starlette.requests import Request
from starlette.responses import Response

from postroom.admission.spool import BodyLimits, RequestBodies
from postroom.calls.request import Repeatable, argument_fields
from postroom.calls.request import Request as Arguments
from postroom.errors import (
    Conflict,
    InvalidInput,
    MailError,
    Malformed,
    NotFound,
    RateLimited,
    TooLarge,
    TooSlow,
    Unavailable,
    error_for,
)
from postroom.mail.text.display import sanitised
from postroom.model.event import EventStream
from postroom.model.limits import TOO_DEEP, is_shallow
from postroom.model.mail.message import Download
from postroom.surfaces.http import (
    KINDS,
    download_response,
    encode_body,
    event_lines,
    event_stream_response,
)
from postroom.surfaces.rest.access import CHALLENGE
from postroom.surfaces.rest.routes import Location, Route
from postroom.surfaces.schema import is_list
from postroom.surfaces.to_json import response_body


@asynccontextmanager
async def whole_body(
    request: Request, route: Route, bodies: RequestBodies, sender: BodyLimits, most: int
) -> AsyncIterator[bytes]:
    """The whole body, for as long as the block lasts.

    Raises:
        Malformed: the endpoint takes no body.
        TooLarge: it is over the limit; the rest was not read.
        TooSlow, RateLimited, Unavailable, StorageFull: it cannot be taken in now.
    """
    stated = request.headers.get("content-length", "0")
    if stated == "0" and "transfer-encoding" not in request.headers:
        yield b""
        return
    if not route.takes_body and stated != "0":
        raise _no_body(request)
    async with bodies.body(aiter(request.stream()), sender, most, stated) as body:
        if body and not route.takes_body:
            raise _no_body(request)
        yield body


def _no_body(request: Request) -> Malformed:
    return Malformed(f"{request.method} takes no body; give the arguments in the query")


def read_object(body: bytes, content_type: str) -> dict[str, Any]:
    """Read a JSON object; no body at all is an empty one.

    Raises:
        Malformed: it is not JSON, or not an object.
        InvalidInput: it is nested too deeply.
    """
    if not body:
        return {}
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Malformed("send JSON with `Content-Type: application/json`")
    try:
        value = decode(body)
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8; encode it as UTF-8") from None
    except RecursionError:
        raise InvalidInput(f"the body is {TOO_DEEP}; reduce the nesting") from None
    except DecodeError as error:
        raise Malformed(_not_json(str(error))) from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object, such as {}")
    if not is_shallow(value):
        raise InvalidInput(f"the body is {TOO_DEEP}; reduce the nesting")
    return value


_MAX_PARAMETERS = 2_000


def _not_json(problem: str) -> str:
    """The problem with a body, without terms of the parser."""
    if problem.startswith("Number out of range"):
        return "the body has a number that is too large; send one below 1e308"
    if problem == "Input data was truncated":
        return "the body is not JSON: it ends in the middle"
    return f"the body is not JSON: {problem.removeprefix('JSON is malformed: ')}"


def read_query(request: Request) -> dict[str, list[str]]:
    """The query, each name with its values. Raises Malformed."""
    query: dict[str, list[str]] = {}
    try:
        text = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except UnicodeDecodeError:
        raise Malformed("the query is not UTF-8; percent-encode it as UTF-8") from None
    except ValueError:
        raise Malformed(
            f"the query has more than {_MAX_PARAMETERS} parameters; leave some out"
        ) from None
    for name, value in pairs:
        query.setdefault(name, []).append(value)
    return query


def choose(rows: Sequence[Route], query: dict[str, list[str]]) -> Route:
    """The row that the query asks for."""
    plain = next(row for row in rows if row.when is None)
    return next((row for row in rows if row.when is not None and row.when in query), plain)


def read_arguments(
    route: Route, request: Request, path: dict[str, str], query: dict[str, list[str]], body: bytes
) -> dict[str, Any]:
    """Collect the arguments of path, query, headers and body.

    Raises:
        InvalidInput: an argument is given twice, or in the wrong place.
        Malformed: the body cannot be read.
        Conflict: a header and the body say different things.
    """
    arguments: dict[str, Any] = dict(path)
    _add(arguments, route, "query", _values(route, query))
    if route.raw:
        _add(arguments, route, "raw", {route.raw: body})
    else:
        content_type = request.headers.get("content-type", "application/json")
        _add(arguments, route, "body", read_object(body, content_type))
    if route.posted:
        arguments["headers"] = dict(request.headers)
    for header, name in route.headers.items():
        value = request.headers.get(header)
        if value is not None and arguments.setdefault(name, value) != value:
            raise Conflict(f"{header} and {name} differ; they mean the same, so give one")
    return arguments


@contextmanager
def naming_headers(route: Route, request: Request) -> Iterator[None]:
    """Name the header in an error, not the argument that it sets."""
    try:
        yield
    except MailError as error:
        for header, name in route.headers.items():
            said = str(error)
            if header in request.headers and said.startswith(f"{name}: "):
                error.args = (header + said.removeprefix(name), *error.args[1:])
        raise


def _values(route: Route, query: dict[str, list[str]]) -> dict[str, Any]:
    """The values of a query: a list where one is taken, else one each."""
    model: type[Arguments] = route.operation.request
    lists, repeatable = _repeated_arguments(model)
    several = {name for name, values in query.items() if len(values) > 1}
    twice = [name for name in query if name in several - lists - repeatable]
    if twice:
        raise InvalidInput.of(*((name, "is given more than once") for name in twice))
    return {n: values if n in lists | several else values[0] for n, values in query.items()}


def _add(
    arguments: dict[str, Any], route: Route, location: Location, given: dict[str, Any]
) -> None:
    """Unknown names pass; validation of the request rejects them with a suggestion."""
    misplaced = [
        (name, f"belongs in the {route.locations[name]}, not in the {location}")
        for name in given
        if route.locations.get(name, location) != location
    ]
    if misplaced:
        raise InvalidInput.of(*misplaced)
    arguments.update(given)


@cache
def _repeated_arguments(model: type[Arguments]) -> tuple[frozenset[str], frozenset[str]]:
    """The arguments that are lists, and others that may be given more than once."""
    infos = argument_fields(model).items()
    lists = frozenset(name for name, info in infos if is_list(info.annotation))
    marked = (n for n, info in infos if any(isinstance(m, Repeatable) for m in info.metadata))
    return lists, frozenset(marked)


NO_RETRY_STATUS = {"mailgun": 406, "postmark": 403, "resend": 200}
"""Statuses for providers that interpret the usual ones differently."""

POSTED_BY = "postroom.posted_by"
"""Where the scope of a request names the provider."""

_RETRY_STATUS = 503


def status_for(error: MailError, scope: Mapping[str, Any]) -> int | None:
    """The status of a response to a provider; None if it is the usual one."""
    provider = scope.get(POSTED_BY)
    if provider is None:
        return None
    if isinstance(error, (RateLimited, TooSlow)):
        return _RETRY_STATUS
    return NO_RETRY_STATUS.get(provider) if isinstance(error, (NotFound, TooLarge)) else None


MEDIA_TYPE = "application/problem+json"
_MAX_PATH = 1_000


def problem(
    code: str,
    detail: str,
    scope: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    status: int | None = None,
    **more: object,
) -> Response:
    """An error as a response; *more* are additional members of the problem."""
    kind = KINDS[code]
    status = status or kind.status
    body = {
        "type": f"/docs#{code}",
        "title": kind.title,
        "status": status,
        "detail": detail,
        "instance": quote(scope["path"][:_MAX_PATH]),
        "code": code,
        "request_id": scope["request_id"],
        **more,
    }
    if "untrusted" in more:
        body = sanitised({"untrusted": True, **body})
    return Response(encode(body), status, headers, MEDIA_TYPE)


def as_problem(
    error: MailError, scope: Mapping[str, Any], *, see: Mapping[str, str] | None = None
) -> Response:
    """The problem document of an error; *see* has the endpoints of operations that it names."""
    more: dict[str, object] = {"see": see} if see else {}
    headers: dict[str, str] = {}
    if isinstance(error, InvalidInput) and (fields := bad_fields(error)):
        more["errors"] = fields
    if isinstance(error, (RateLimited, Unavailable)):
        more["retry_after"] = error.retry_after
        headers["Retry-After"] = str(error.retry_after)
    if error.code == "unauthenticated":
        headers["WWW-Authenticate"] = scope.get(CHALLENGE, 'Bearer realm="postroom"')
    if error.code == "too_slow":
        headers["Connection"] = "close"
    if error.is_untrusted:
        more["untrusted"] = True
    status = status_for(error, scope)
    return problem(error.code, str(error), scope, headers=headers, status=status, **more)


def bad_fields(error: InvalidInput) -> list[dict[str, object]]:
    """The invalid fields, each with its problem."""
    if problems := error.details.get("problems"):
        assert isinstance(problems, list)
        return [p for p in problems if p["field"]]
    named = _NAMED.fullmatch(str(error))
    return [{"field": named["field"], "problem": named["problem"]}] if named else []


_NAMED = re.compile(
    r"(?P<field>[a-z_]{1,64}(?:\[\d+\])?(?:\.[a-z_]{1,64})?)(?: \([^)]*\))?: (?P<problem>.+)",
    re.DOTALL,
)

JSON = "application/json"


async def respond(route: Route, result: Any, *, is_head: bool) -> Response:
    """The response for a result. Raises the failure of an action on a single message."""
    if isinstance(result, Download):
        return await download_response(result, is_head=is_head)
    if isinstance(result, EventStream):
        return event_stream_response(event_lines(result), is_head=is_head)
    if route.status == 204:
        return Response(status_code=204)
    if route.single and result.status == "failed":
        raise error_for(result.failed[0].code, result.failed[0].message)
    status = route.statuses.get(getattr(result, "status", ""), route.status)
    return Response(encode_body(response_body(route.operation, result)), status, media_type=JSON)
