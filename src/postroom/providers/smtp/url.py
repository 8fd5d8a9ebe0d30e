"""The URL of the relay in the settings: smtp://user:password@host:587, smtps://host."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from postroom.model.view import ANYWHERE, Reach

Security = Literal["tls", "starttls", "none"]
_FORM = (
    "must be like smtp://user:password@host:587 or smtps://host; in a user or a password, "
    "write # as %23, / as %2F, ? as %3F and % as %25"
)


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Address, security and login of the relay."""

    host: str
    port: int
    security: Security
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    reach: Reach = ANYWHERE


def parse_relay_url(url: str) -> RelayAddress:
    """Parse the URL of a relay. Raises ValueError with the expected form.

    Only a relay on this machine without a password is used unencrypted; every other connection
    needs TLS with a valid certificate.
    """
    parts, host, port = _split(url)
    options = _options(parts.query)
    is_local = is_loopback(host)
    if options.get("insecure") == "true" and not is_local:
        raise ValueError("insecure=true is only allowed for a relay on this machine; use TLS")
    return RelayAddress(
        host=host,
        port=port or (465 if parts.scheme == "smtps" else 587),
        security=_security(parts.scheme, options, in_the_clear=is_local and not parts.username),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
    )


def _split(url: str) -> tuple[SplitResult, str, int | None]:
    """Split a URL. Errors never repeat it, since it may contain the password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_FORM) from None
    if parts.scheme not in ("smtp", "smtps") or parts.path not in ("", "/") or "#" in url:
        raise ValueError(_FORM)
    if not host:
        raise ValueError(_FORM)
    return parts, host, port


def _options(query: str) -> dict[str, str]:
    parsed = parse_qs(query, keep_blank_values=True)
    options = {name: values[-1] for name, values in parsed.items()}
    if set(options) - {"insecure", "ca_file"}:
        raise ValueError(f"unknown option; the options are insecure and ca_file. It {_FORM}")
    return options


def _security(scheme: str, options: dict[str, str], *, in_the_clear: bool) -> Security:
    if scheme == "smtps":
        return "tls"
    if options.get("insecure") == "true" or (in_the_clear and "ca_file" not in options):
        return "none"
    return "starttls"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
