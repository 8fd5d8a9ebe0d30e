"""Hosts that callers name: which addresses are allowed, and connections to them.

A name is resolved once, every address is checked, and the connection goes to a checked address.
Every failure is reported with the same words, so that callers cannot probe this network.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from postroom.blocking import in_own_thread
from postroom.errors import InvalidInput
from postroom.model.account import PublicNetworks
from postroom.model.event import WEBHOOK_URL
from postroom.model.values import dataclass


def connection_error(error: BaseException) -> str:
    """The reason why a connection failed, without the wording of libraries."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate does not verify: {cause.verify_message}"
    if isinstance(cause, socket.gaierror):
        return "the host does not exist"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    return str(error) or "the connection was closed"


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_IPV4_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("::ffff:0:0:0/96"))
"""IPv6 networks with an IPv4 address in the last bits: NAT64 (RFC 6052), SIIT (RFC 2765)."""

_NOT_PUBLIC = (
    ip_network("64:ff9b:1::/48"),  # RFC 8215: local use
    ip_network("192.0.0.0/24"),
    ip_network("100.64.0.0/10"),
    ip_network("192.88.99.0/24"),
    ip_network("198.18.0.0/15"),
    ip_network("fec0::/10"),
    ip_network("::/96"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL that a request needs."""

    is_encrypted: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        usual = 443 if self.is_encrypted else 80
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == usual else f"{name}:{self.port}"


def parse_target(url: str) -> Target:
    """Parse a URL. Raises InvalidInput if it cannot be that of a webhook."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidInput("url: not a valid URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("url: write it as https://host/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("url: remove the name and password; requests are signed instead")
    if not url.isascii() or any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise InvalidInput("url: encode spaces and other special characters")
    is_encrypted = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_encrypted, parts.hostname, port or (443 if is_encrypted else 80), path)


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Decides which addresses we may connect to; `allowed` are networks from the settings."""

    allowed: tuple[Network, ...] = ()

    def check(self, url: str) -> None:
        """Refuse a URL with an address that is not allowed. Raises InvalidInput."""
        target = parse_target(url)
        if not re.fullmatch(WEBHOOK_URL, url):
            raise InvalidInput("url: write it as https://host/path")
        literal = literal_address(target.host)
        if literal is None and is_loopback(target.host) and not self.is_allowed(_LOOPBACK):
            raise InvalidInput(
                "url: this is a name of this machine; POSTROOM_WEBHOOK_ALLOW=127.0.0.0/8,::1/128 "
                "allows it"
            )
        if literal is not None and not self.is_allowed(literal):
            raise InvalidInput(
                "url: this address is not on the public Internet; "
                "POSTROOM_WEBHOOK_ALLOW allows your own networks"
            )

    def is_allowed(self, address: Address) -> bool:
        """Whether an address is public or in an allowed network; embedded addresses count."""
        if self.is_in_allowed_network(address):
            return True
        inner = _embedded_ipv4(address)
        if inner is not None:
            return self.is_allowed(inner)
        if any(address.version == n.version and address in n for n in _NOT_PUBLIC):
            return False
        return address.is_global and not address.is_multicast

    def is_in_allowed_network(self, address: Address) -> bool:
        """Whether an address is in a network that the settings allow."""
        return any(address.version == n.version and address in n for n in self.allowed)

    async def resolve(self, host: str, port: int) -> Address | None:
        """Resolve a host once; None if any of its addresses is not allowed."""
        found = await in_own_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(str(info[4][0]).partition("%")[0]) for info in found]
        if not addresses or not all(self.is_allowed(address) for address in addresses):
            return None
        return addresses[0]


_LOOPBACK = ip_address("127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether a name is that of this machine (RFC 6761)."""
    folded = host.lower().rstrip(".")
    return folded == "localhost" or folded.endswith(".localhost")


def is_loopback_address(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def literal_address(host: str) -> Address | None:
    """The address that a host name spells, also in the forms that inet_aton accepts."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ip_address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _embedded_ipv4(address: Address) -> Address | None:
    """The IPv4 address inside of an IPv6 address."""
    if not isinstance(address, IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _IPV4_TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


IMAP_PORTS, SMTP_PORTS = frozenset({143, 993}), frozenset({25, 465, 587, 2525})
_HINT = "set POSTROOM_ACCOUNT_ALLOW, or add the account with `postroom account add`"


def unreachable_message(host: str, port: int) -> str:
    """The error for any failed connection to a server that a key named."""
    return (
        f"could not connect to {host}:{port}; check the host, the port, the transport security "
        "and the certificate. POSTROOM_ACCOUNT_ALLOW allows private networks"
    )


def check_host(
    network_policy: PublicNetworks, host: str, port: int, ports: Collection[int], name: str
) -> None:
    """Refuse a host or port that is not allowed, without resolving it. Raises InvalidInput.

    *name* is the prefix of the fields in the request.
    """
    address, guard = literal_address(host), AddressGuard(network_policy.networks)
    if address is not None and not guard.is_allowed(address):
        raise InvalidInput(f"{name}host: this address is not on the public Internet; {_HINT}")
    if address is None and is_loopback(host) and not network_policy.networks:
        raise InvalidInput(f"{name}host: this is a name of this machine; {_HINT}")
    is_named = address is None or guard.is_in_allowed_network(address)
    if port not in ports and not (network_policy.networks and is_named):
        allowed = ", ".join(str(number) for number in sorted(ports))
        raise InvalidInput(f"{name}port: must be one of {allowed}; for others, {_HINT}")


def check_file(network_policy: PublicNetworks, name: str) -> None:
    """Refuse a file of this machine, whether or not it exists. Raises InvalidInput."""
    if not network_policy.networks:
        raise InvalidInput(f"{name}: a key cannot name files of this machine; {_HINT}")


async def connect(
    network_policy: PublicNetworks, host: str, port: int, ports: Collection[int]
) -> socket.socket:
    """Connect to a host after a check of its addresses. Raises OSError."""
    guard = AddressGuard(network_policy.networks)
    try:
        address = await guard.resolve(host, port)
    except UnicodeError as error:
        raise OSError(unreachable_message(host, port)) from error
    if address is None or (port not in ports and not guard.is_in_allowed_network(address)):
        raise OSError(unreachable_message(host, port))
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except BaseException:
        connection.close()
        raise
    return connection
