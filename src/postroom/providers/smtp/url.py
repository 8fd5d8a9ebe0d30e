"""The relay as a setting names it: smtp://user:password@host:587, smtps://host."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

Security = Literal["tls", "starttls", "none"]


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Where the relay is and how to speak to it."""

    host: str
    port: int
    security: Security
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None


def parse_relay_url(url: str) -> RelayAddress:
    """Read the address of a relay. Raises ValueError with what to write instead.

    A relay on this machine that needs no password is spoken to in the clear; to every other one
    the connection must be encrypted, with a certificate that verifies.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("must be like smtp://user:password@host:587 or smtps://host")
    options = _options(parts.query)
    is_local = is_loopback(parts.hostname)
    if options.get("insecure") == "true" and not is_local:
        raise ValueError("insecure=true works on this machine only; use TLS")
    return RelayAddress(
        host=parts.hostname,
        port=parts.port or (465 if parts.scheme == "smtps" else 587),
        security=_security(parts.scheme, options, in_the_clear=is_local and not parts.username),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
    )


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if unknown := set(options) - {"insecure", "ca_file"}:
        raise ValueError(f"unknown option {min(unknown)}; there are insecure and ca_file")
    return options


def _security(scheme: str, options: dict[str, str], *, in_the_clear: bool) -> Security:
    if scheme == "smtps":
        return "tls"
    if options.get("insecure") == "true" or (in_the_clear and "ca_file" not in options):
        return "none"
    return "starttls"


def is_loopback(host: str) -> bool:
    """Whether a host can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
