"""Finding what a path names, with its variable segments, and the URL of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import HTTPConnection
from starlette.types import Scope

from postroom.errors import Malformed

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
    """Where programs reach this server: as configured, or as this request has reached it.

    Access control has checked the host of the request.
    """
    return (public_url or str(HTTPConnection(scope).base_url)).rstrip("/")
