"""What pages of other origins may ask, and read the answers of (Fetch Standard, CORS protocol).

MCP clients that run in a browser, such as the Inspector, read the metadata of the OAuth server,
register, fetch tokens and call `/mcp` with them. Nothing else is open to other pages. None of these
paths looks at cookies, and credentials are never allowed, so a page can do no more than its token.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response

from postroom.surfaces.paths import RESOURCE_METADATA

_OPEN = (
    RESOURCE_METADATA,
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
    "/register",
    "/token",
    "/revoke",
    "/mcp",
)
_HEADERS = frozenset({"accept", "authorization", "content-type", "last-event-id"})
_OF_MCP = "mcp-"
"""The headers of the protocol start with it; `X-API-Key` is for programs that are no page."""

READABLE = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"www-authenticate, retry-after, mcp-session-id, x-request-id",
    ),
)
"""The headers of an answer that a page may read."""


def is_open(path: str) -> bool:
    """Whether something at this path is meant for pages of other origins as well."""
    return any(path == one or path.startswith(f"{one}/") for one in _OPEN)


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks if a page may send a request."""
    return method == "OPTIONS" and "access-control-request-method" in headers


def preflight(headers: Headers) -> Response:
    """The answer to it; `READABLE` is added as to every other one."""
    asked = headers.get("access-control-request-headers", "").lower().split(",")
    names = [name.strip() for name in asked]
    allowed = [name for name in names if name in _HEADERS or name.startswith(_OF_MCP)]
    given = {"Access-Control-Allow-Methods": "GET, POST, DELETE", "Access-Control-Max-Age": "600"}
    if allowed:
        given["Access-Control-Allow-Headers"] = ", ".join(allowed)
    return Response(status_code=204, headers=given)
