"""Access control: allowed hosts and origins (CORS), and callers with a key.

A browser sends requests for pages of any site, with `Origin` or at least `Sec-Fetch-Site`. Requests
that change something are accepted from our own pages only. From other origins, also from another
port of this machine, they need a header that a page cannot add without a CORS preflight, which is
granted for signing in and `/mcp` only: MCP clients that run in a browser, such as the Inspector,
read the metadata of the OAuth server, register, fetch tokens and call `/mcp` with them. None of
these paths looks at cookies, and credentials are never allowed, so a page can do no more than its
token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from postroom.app import App
from postroom.calls.oauth import resource_of
from postroom.config import ConfigError
from postroom.errors import Forbidden, Unauthenticated
from postroom.model.key import Caller
from postroom.surfaces.http import RESOURCE_METADATA, server_url
from postroom.surfaces.rest.failed_logins import Attempts, TooManyKeys

_OPEN_PATHS = (
    RESOURCE_METADATA,
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
    "/register",
    "/token",
    "/revoke",
    "/mcp",
)
_ALLOWED_HEADERS = frozenset({"accept", "authorization", "content-type", "last-event-id"})
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
    """Whether pages of other origins may use this path."""
    return any(path == one or path.startswith(f"{one}/") for one in _OPEN_PATHS)


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether this is a CORS preflight request."""
    return method == "OPTIONS" and "access-control-request-method" in headers


def preflight(headers: Headers) -> Response:
    """The answer to it; `READABLE` is added as to every other one."""
    asked = headers.get("access-control-request-headers", "").lower().split(",")
    names = [name.strip() for name in asked]
    allowed = [name for name in names if name in _ALLOWED_HEADERS or name.startswith(_OF_MCP)]
    given = {"Access-Control-Allow-Methods": "GET, POST, DELETE", "Access-Control-Max-Age": "600"}
    if allowed:
        given["Access-Control-Allow-Headers"] = ", ".join(allowed)
    return Response(status_code=204, headers=given)


T = TypeVar("T")
PEER = "postroom.peer"
"""Key in a request's state: the address of the connection. A proxy may change `client`."""

CLIENT = "postroom.client"
"""The key in a request's scope for the address of the client; see `AccessControl.with_client`."""

ATTEMPTS = "postroom.attempts"
"""The key in a request's scope for the table of failed logins."""

ACTOR = "postroom.actor"
"""The key in a request's scope for the id of its key, for the access log."""

CHALLENGE = "postroom.challenge"
"""The key in a request's scope for the header `WWW-Authenticate`, if it has a specific one."""

_FORWARDED = (
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-real-ip",
)
_FORWARDED_PREFIX = "x-forwarded"
"""Headers of proxies, besides all that begin with `X-Forwarded`."""

_KEY_HEADERS = ("authorization", "x-api-key")

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The methods that change nothing (RFC 9110 §9.2.1)."""

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Authenticates requests. Without `needs_key`, no key means the owner's agent.

    `names` are the host names of this server, besides loopback.
    """

    app: App
    names: frozenset[str]
    public_origin: str | None
    is_everywhere: bool
    needs_key: bool

    @classmethod
    def of(cls, app: App, *, no_auth: bool) -> AccessControl:
        """Access control as configured. Raises ConfigError if it would be open to others."""
        settings = app.settings
        if no_auth and not is_loopback(settings.host):
            raise ConfigError(
                f"--no-auth works on loopback only, and {settings.host} is not; "
                "use keys, or --host 127.0.0.1"
            )
        public = _host_of(settings.public_url) if settings.public_url else None
        names = frozenset(name for name in (settings.host.lower(), public) if name)
        origin = _origin_of(settings.public_url) if settings.public_url else None
        return cls(app, names, origin, settings.host in _EVERYWHERE, not no_auth)

    def check_origin(self, headers: Headers, scope: Scope) -> None:
        """Refuse requests that a page of another site could have caused. Raises Forbidden."""
        host, origins = headers.get("host"), headers.getlist("origin")
        if host is not None and not self._is_ours(_host_of(f"//{host}")):
            raise Forbidden(
                "requests with this Host header are refused; set POSTROOM_PUBLIC_URL to "
                "a URL with this host"
            )
        if self.admits_page(headers, scope):
            return
        if len(origins) > 1 or any(not self._is_ours(_host_of(origin)) for origin in origins):
            raise Forbidden("requests from pages of another origin are refused")
        if scope["method"] in _SAFE or _has_own_header(headers):
            return
        if not self._is_own_page(headers, scope):
            raise Forbidden(
                "requests from pages of another origin may not change anything; programs must "
                "send a key, or the header `X-Requested-With`"
            )

    def admits_page(self, headers: Headers, scope: Scope) -> bool:
        """Whether a page of another origin may send this request and read the response; see `cors`.

        Pages of this machine may. Those of other sites may only at the public URL of a server that
        has one: a client that can reach it can also send the request without a page.
        """
        origins = headers.getlist("origin")
        if not self.needs_key or len(origins) != 1 or not is_open(scope["path"]):
            return False
        host, page = _host_of(f"//{headers.get('host', '')}"), _host_of(origins[0])
        if not self._is_ours(host):
            return False
        public = self.public_origin and _host_of(self.public_origin)
        return self._is_ours(page) or (page is not None and host == public)

    def check_form(self, headers: Headers, scope: Scope) -> None:
        """Refuse a form unless the browser reports that a page of this server sent it.

        Raises Forbidden.
        """
        says = "origin" in headers or "sec-fetch-site" in headers
        if not says or not self._is_own_page(headers, scope):
            raise Forbidden("this form was not sent by a page of this server; open the page again")

    def _is_own_page(self, headers: Headers, scope: Scope) -> bool:
        """Whether the request comes from no page, or from a page of this server."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "same-origin") == "same-origin"
        ours = _origin_of(f"{scope['scheme']}://{headers.get('host', '')}")
        return origin.lower() in (ours, self.public_origin)

    def _is_ours(self, host: str | None) -> bool:
        if host is None:
            return False
        return is_loopback(host) or host in self.names or (self.is_everywhere and _is_address(host))

    def is_here(self, headers: Headers, scope: Scope) -> bool:
        """Whether the request comes from this machine, and not through a proxy."""
        settings = self.app.settings
        public = _host_of(settings.public_url) if settings.public_url else "localhost"
        return (
            is_loopback(settings.host)
            and is_loopback(public or "")
            and is_loopback(peer_of(scope))
            and not any(
                name in _FORWARDED or name.startswith(_FORWARDED_PREFIX) for name in headers
            )
        )

    def with_client(self, scope: Scope) -> Scope:
        """The scope with the address of the client: the connection's, or what a proxy says.

        Each proxy appends the address from which it got the request to `X-Forwarded-For`. So the
        list is read from its end; entries to the left of the first address that is not a
        trusted proxy may be forged.
        """
        address, trusted = peer_of(scope), self.app.settings.trusted_proxies
        if not _is_within(address, trusted):
            return {**scope, CLIENT: address}
        hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        while hops and _is_within(address, trusted):
            hop = hops.pop().strip()
            if not _is_address(hop):
                break
            address = hop
        return {**scope, "client": (address, 0), CLIENT: address}

    async def mcp_caller(self, headers: Headers, scope: Scope) -> Caller:
        """Authenticate the caller of `/mcp`, also with an OAuth access token that is for it.

        The error says where to get a token (RFC 9728 §5.1). Raises as `caller` does.
        """
        url = server_url(self.app.settings.public_url, scope)
        error = ', error="invalid_token"' if presented_key(headers) else ""
        metadata = f'resource_metadata="{url}{RESOURCE_METADATA}/mcp"'
        scope[CHALLENGE] = f'Bearer realm="postroom"{error}, {metadata}'
        return await self.caller(headers, scope, resource_of(url))

    async def caller(self, headers: Headers, scope: Scope, resource: str | None = None) -> Caller:
        """Authenticate the caller. A key that is given is used, also where none is needed.

        Raises Unauthenticated, also for a key that is not known or left empty, or RateLimited.
        """
        client = scope.get("client")
        if not self.needs_key and client is not None and not is_loopback(client[0]):
            raise Unauthenticated("without keys, only requests from this machine are allowed")
        has_key = any(name in headers for name in _KEY_HEADERS)
        is_keyed = self.needs_key or has_key
        caller = await self._bearer(headers, scope, resource) if is_keyed else self.app.agent
        scope[ACTOR] = caller.key_id
        return caller

    async def _bearer(self, headers: Headers, scope: Scope, resource: str | None) -> Caller:
        key, attempts = _presented(headers), scope.get(ATTEMPTS)
        if key is None or attempts is None:
            return await self.app.authenticate(key, resource)
        with attempts.lookup(client_of(scope), presented_key(headers)):
            return await self.app.authenticate(key, resource)

    async def sign_in(self, secret: str, scope: Scope, look_up: Callable[[], Awaitable[T]]) -> T:
        """Look up the secret with which a person signs in; a wrong one counts like a wrong key.

        Raises Unauthenticated, RateLimited.
        """
        attempts: Attempts = scope[ATTEMPTS]
        try:
            with attempts.lookup(client_of(scope), secret):
                return await look_up()
        except TooManyKeys:
            await attempts.pause()
            raise
        except Unauthenticated:
            await attempts.refuse(client_of(scope), secret)
            raise


def peer_of(scope: Scope) -> str:
    """The address of the connection, which cannot be forged."""
    client = scope.get("client")
    peer: str = scope.get("state", {}).get(PEER) or (client[0] if client else "")
    return peer


def client_of(scope: Scope) -> str:
    """The address of the client, as `AccessControl.with_client` found it."""
    address: str = scope.get(CLIENT) or peer_of(scope)
    return address


def presented_key(headers: Headers) -> str:
    """The key of a request, in any of its forms; empty if there is none."""
    return (headers.get("authorization", "") + " " + headers.get("x-api-key", "")).strip()


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_address(host) and ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_within(address: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    if not networks or not _is_address(address):
        return False
    found = ip_address(address)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def _host_of(url: str) -> str | None:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return host.rstrip(".") if host else None


def _origin_of(url: str) -> str:
    """The origin of a URL as a browser writes it, without a default port."""
    scheme, _, rest = url.lower().partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme, "")
    return f"{scheme}://{rest.partition('/')[0].removesuffix(default)}"


def _has_own_header(headers: Headers) -> bool:
    """Whether there is a header that no page of another origin can add.

    Credentials of the scheme Basic are not a key: browsers add them automatically.
    """
    scheme = headers.get("authorization", "").partition(" ")[0].lower()
    return scheme == "bearer" or "x-api-key" in headers or "x-requested-with" in headers


def _presented(headers: Headers) -> str | None:
    """The key of a request; a proxy may use `Authorization` for its own scheme."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip() or None
    key = headers.get("x-api-key", "").strip()
    if scheme and not key:
        raise Unauthenticated("send the key as `Authorization: Bearer <key>`")
    return key or None
