"""HTTP responses: results of operations, and errors as problem documents (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec.json import encode
from starlette.responses import Response

from postroom.errors import (
    InvalidInput,
    MailError,
    NotFound,
    RateLimited,
    TooLarge,
    TooSlow,
    Unavailable,
    error_for,
)
from postroom.mail.text.display import shown
from postroom.model.event import EventStream
from postroom.model.message import Download, FailedAction
from postroom.surfaces.downloads import (
    download_response,
    event_lines,
    event_stream_response,
    written,
)
from postroom.surfaces.problem_kinds import KINDS
from postroom.surfaces.rest.access import CHALLENGE
from postroom.surfaces.rest.routing import Route
from postroom.surfaces.to_json import answer

NEVER_AGAIN = {"mailgun": 406, "postmark": 403, "resend": 200}
"""Statuses for providers that interpret the usual ones differently."""

POSTED_BY = "postroom.posted_by"
"""Where the scope of a request names the provider."""

_LATER = 503


def status_for(error: MailError, scope: Mapping[str, Any]) -> int | None:
    """The status of an answer to a provider; None if it is the one that everybody gets."""
    provider = scope.get(POSTED_BY)
    if provider is None:
        return None
    if isinstance(error, (RateLimited, TooSlow)):
        return _LATER
    return NEVER_AGAIN.get(provider) if isinstance(error, (NotFound, TooLarge)) else None


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
    """An error as an answer; *more* are members beside those that every problem has."""
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
        body = shown({"untrusted": True, **body})
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
        raise as_error(result.failed[0])
    status = route.statuses.get(getattr(result, "status", ""), route.status)
    return Response(written(answer(route.operation, result)), status, media_type=JSON)


def as_error(failure: FailedAction) -> MailError:
    """The error of a failed item in a result."""
    return error_for(failure.code, failure.message)
