"""Who may come in: hosts and origins that are ours, callers with a key."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from postroom.app import App
from postroom.config import ConfigError, Settings
from postroom.errors import Forbidden, Unauthenticated
from postroom.model.key import OWNERS_AGENT, Caller

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104


@dataclass(frozen=True, slots=True)
class Door:
    """Lets requests in. Without `needs_key`, whoever is on this machine is the owner."""

    app: App
    names: frozenset[str]
    is_everywhere: bool
    needs_key: bool

    @classmethod
    def of(cls, app: App, *, no_auth: bool) -> Door:
        """The door that the settings ask for. Raises ConfigError when it would stand open."""
        settings = app.settings
        if no_auth and not is_loopback(settings.host):
            raise ConfigError(
                f"--no-auth works on loopback only, and {settings.host} is not; "
                "use keys, or --host 127.0.0.1"
            )
        return cls(app, _names(settings), settings.host in _EVERYWHERE, not no_auth)

    def check_origin(self, headers: Headers) -> None:
        """Refuse what a page of another site could have made a browser send. Raises Forbidden."""
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and not self._is_ours(_host_of(f"//{host}")):
            raise Forbidden(
                "this server does not answer to that Host; name it in POSTROOM_PUBLIC_URL"
            )
        if origin is not None and not self._is_ours(_host_of(origin)):
            raise Forbidden("requests from pages of another origin are refused")

    def _is_ours(self, host: str | None) -> bool:
        if host is None:
            return False
        return is_loopback(host) or host in self.names or (self.is_everywhere and _is_address(host))

    async def caller(self, headers: Headers, scope: Scope) -> Caller:
        """Find out who asks. Raises Unauthenticated."""
        if self.needs_key:
            return await self.app.authenticate(_presented(headers))
        client = scope.get("client")
        if client is not None and not is_loopback(client[0]):
            raise Unauthenticated("without keys, only this machine is served")
        return OWNERS_AGENT


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_address(host) and ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _names(settings: Settings) -> frozenset[str]:
    """The names we go by, beside those of loopback."""
    public = _host_of(settings.public_url) if settings.public_url else None
    return frozenset(name for name in (settings.host.lower(), public) if name)


def _host_of(url: str) -> str | None:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return host.rstrip(".") if host else None


def _presented(headers: Headers) -> str | None:
    """The key of a request; a proxy may use `Authorization` for a scheme of its own."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip() or None
    key = headers.get("x-api-key", "").strip()
    if scheme and not key:
        raise Unauthenticated("send the key as `Authorization: Bearer <key>`")
    return key or None
