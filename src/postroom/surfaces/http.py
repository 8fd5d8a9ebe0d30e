"""HTTP for all surfaces: paths, kinds of errors, and responses that are streamed (files, events).

Browsers never show a file as a page of this server.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote_to_bytes

from msgspec.json import Encoder
from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from postroom.errors import MailError, Malformed
from postroom.mail.mime.attachments import content_disposition
from postroom.mail.text.display import is_inert
from postroom.model.event import EventStream
from postroom.model.mail.message import Download
from postroom.surfaces.to_json import to_json, with_clean_text

T = TypeVar("T")
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
"""Where the metadata of a protected resource is; its path follows (RFC 9728 §3.1)."""


@dataclass(slots=True)
class Paths(Generic[T]):
    """A tree of segments. A fixed segment wins over a variable one."""

    here: T | None = None
    fixed: dict[str, Paths[T]] = field(default_factory=dict)
    variable: tuple[str, Paths[T]] | None = None

    def put(self, path: str, what: T) -> None:
        """Place something at a path such as `/v1/messages/{message_id}`."""
        node = self
        for segment in path.strip("/").split("/"):
            node = node._child(segment)
        node.here = what

    def _child(self, segment: str) -> Paths[T]:
        if not segment.startswith("{"):
            return self.fixed.setdefault(segment, Paths())
        if self.variable is None:
            self.variable = (segment.strip("{}"), Paths())
        assert self.variable[0] == segment.strip("{}"), f"two names for one segment: {segment}"
        return self.variable[1]

    def find(self, segments: Sequence[str]) -> tuple[T | None, dict[str, str]]:
        """What is at a path, with the values of its variable segments."""
        node, values = self, {}
        for segment in segments:
            if segment in node.fixed:
                node = node.fixed[segment]
            elif node.variable is not None and segment:
                values[node.variable[0]] = segment
                node = node.variable[1]
            else:
                return None, {}
        return node.here, values


def segments_of(scope: Scope) -> list[str]:
    """The segments as the client wrote them: an encoded slash is not a border.

    Raises:
        Malformed: a segment is not UTF-8.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    try:
        return [unquote_to_bytes(part).decode() for part in raw.split(b"?")[0].split(b"/")[1:]]
    except UnicodeDecodeError:
        raise Malformed("the path is not UTF-8; percent-encode it as UTF-8") from None


def server_url(public_url: str | None, scope: Scope) -> str:
    """The URL of this server: as configured, or as used by this request.

    Access control has checked the host of the request.
    """
    return (public_url or str(HTTPConnection(scope).base_url)).rstrip("/")


class Kind(NamedTuple):
    """The HTTP status and title of a kind of error, and when it occurs."""

    status: int
    title: str
    meaning: str


KINDS = {
    "invalid_input": Kind(422, "Invalid input", "An argument is invalid; `errors` lists each."),
    "malformed": Kind(
        400, "Malformed request", "The request cannot be parsed, such as invalid JSON."
    ),
    "unauthenticated": Kind(401, "Key required", "The key is missing or unknown."),
    "forbidden": Kind(403, "Forbidden", "The key lacks a scope, or the origin is not allowed."),
    "write_disabled": Kind(403, "Writing is off", "Writing is disabled by a setting."),
    "not_found": Kind(404, "Not found", "The object does not exist, or the key may not see it."),
    "feature_disabled": Kind(404, "Switched off", "The feature is disabled by a setting."),
    "method_not_allowed": Kind(405, "Method not allowed", "`Allow` lists the supported methods."),
    "too_slow": Kind(408, "Too slow", "The request was not received in time."),
    "conflict": Kind(409, "Conflict", "The request conflicts with the current state."),
    "too_large": Kind(413, "Too large", "The request or the mail is too large."),
    "rate_limited": Kind(429, "Too fast", "Try again after `retry_after` seconds."),
    "internal": Kind(500, "Internal error", "An internal error; `request_id` finds it in the log."),
    "provider_error": Kind(
        502, "Provider failed", "A mail provider or another server failed or refused the request."
    ),
    "provider_auth": Kind(502, "Provider login failed", "A mail provider refused the login."),
    "unavailable": Kind(503, "Not ready", "The store cannot be read or written now."),
    "provider_timeout": Kind(
        504, "Provider timed out", "A mail provider or another server did not answer in time."
    ),
    "storage_full": Kind(507, "Storage full", "Nothing was written; free some space."),
}
"""Every kind of `errors.py`, and one that only HTTP knows."""


_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def operations_named(error: MailError, names: Mapping[str, str]) -> dict[str, str]:
    """The operations that an error mentions, with their names on this surface.

    In a problem with a line, such as that of a rule, these words mean something else.
    """
    problems = error.details.get("problems")
    if isinstance(problems, list) and any("line" in problem for problem in problems):
        return {}
    return {name: names[name] for name in _NAME.findall(str(error)) if name in names}


def reword(error: MailError, names: Mapping[str, str], given: object) -> MailError:
    """Replace names in an error, except those that the caller has written, and return it."""
    error.args = (reword_text(str(error), names, given), *error.args[1:])
    return error


def reword_text(text: str, names: Mapping[str, str], given: object = ()) -> str:
    """Replace names in what is said of a call or of one item of its result."""

    def other_name(found: re.Match[str]) -> str:
        name = found[0]
        return names[name] if name in names and not _contains(given, name) else name

    return _NAME.sub(other_name, text)


def _contains(given: object, name: str) -> bool:
    """Whether a name occurs in these arguments, or is the name of one."""
    if isinstance(given, Mapping):
        return _contains([*given, *given.values()], name)
    if isinstance(given, list):
        return any(_contains(part, name) for part in given)
    return isinstance(given, str) and name in given


_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}", re.IGNORECASE)


async def download_response(download: Download, *, is_head: bool) -> Response:
    """The first chunk is read before the status is sent, so that an error can still be reported."""
    headers = {
        "Content-Disposition": content_disposition(download.filename),
        "Content-Length": str(download.size),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Type": safe_media_type(download.content_type),
    }
    if is_head:
        return Response(headers=headers)
    first = await anext(aiter(download.chunks), b"")
    return StreamingResponse(_continued(first, download.chunks), headers=headers)


async def _continued(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def safe_media_type(stated: str) -> str:
    """The declared content type if it is valid; it comes from a mail and goes into a header."""
    return stated.lower() if _MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"


_encode = Encoder().encode
_HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


def event_stream_response(lines: AsyncIterator[bytes], *, is_head: bool) -> Response:
    """A response that stays open; HEAD has its headers only."""
    if is_head:
        return Response(headers=_HEADERS)
    return StreamingResponse(lines, headers=_HEADERS)


async def event_lines(stream: EventStream, *, named: bool = True) -> AsyncIterator[bytes]:
    """Server-sent events; a comment opens the stream and keeps it open.

    A browser has to know each name to receive what is `named`; the type is in the data too.
    """
    yield b": open\n\n"
    async for event in stream.events:
        if event is None:
            yield b": quiet\n\n"
        else:
            name = f"event: {event.type}\n" if named else ""
            head = f"id: {event.id}\n{name}".encode()
            yield head + b"data: " + encode_body({"untrusted": True, **to_json(event)}) + b"\n\n"


def encode_body(body: dict[str, Any]) -> bytes:
    """A response as JSON, with text of mail cleaned."""
    try:
        found = _encode(body)
    except UnicodeEncodeError:
        return _encode(with_clean_text(body))
    return found if "untrusted" not in body or is_inert(found) else _encode(with_clean_text(body))
