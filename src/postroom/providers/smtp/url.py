"""The URL of the relay in the settings: smtp://user:password@host:587, smtps://host."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

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
    needs TLS with a valid certificate. Errors never repeat the URL, which may contain the password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_FORM) from None
    has_form = parts.scheme in ("smtp", "smtps") and parts.path in ("", "/") and "#" not in url
    if not has_form or not host:
        raise ValueError(_FORM)
    query = parse_qs(parts.query, keep_blank_values=True)
    options = {name: values[-1] for name, values in query.items()}
    if set(options) - {"insecure", "ca_file"}:
        raise ValueError(f"unknown option; the options are insecure and ca_file. It {_FORM}")
    is_local, is_insecure = is_loopback(host), options.get("insecure") == "true"
    if is_insecure and not is_local:
        raise ValueError("insecure=true is only allowed for a relay on this machine; use TLS")
    security: Security = "starttls"
    if parts.scheme == "smtps":
        security = "tls"
    elif is_insecure or (is_local and not parts.username and "ca_file" not in options):
        security = "none"
    return RelayAddress(
        host=host,
        port=port or (465 if parts.scheme == "smtps" else 587),
        security=security,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
