"""Which addresses may be spoken to: those of the world, not those of the house."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from postroom.blocking import in_own_thread
from postroom.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("::ffff:0:0:0/96"))
"""An address of IPv4 in its last bits: NAT64 (RFC 6052), SIIT (RFC 2765)."""

_NOT_OURS_TO_ASK = (
    ip_network("64:ff9b:1::/48"),  # RFC 8215: each house decides where in it IPv4 is
    ip_network("192.0.0.0/24"),
    ip_network("100.64.0.0/10"),
    ip_network("192.88.99.0/24"),
    ip_network("198.18.0.0/15"),
    ip_network("fec0::/10"),
    ip_network("::/96"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart."""

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
    """Take a URL apart. Raises InvalidInput for what a webhook cannot be."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidInput("url: it cannot be read as a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("url: write it as https://host/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("url: leave the name and password out; the signature says who we are")
    if not url.isascii() or any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise InvalidInput("url: encode spaces and other special characters")
    is_encrypted = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_encrypted, parts.hostname, port or (443 if is_encrypted else 80), path)


@dataclass(frozen=True, slots=True)
class Guard:
    """Knows whom we may speak to; `allowed` are networks that an operator has opened."""

    allowed: tuple[Network, ...] = ()

    def check(self, url: str) -> None:
        """Refuse a URL that names an address we would not speak to. Raises InvalidInput."""
        target = parse_target(url)
        literal = _literal(target.host)
        if literal is not None and not self.is_open(literal):
            raise InvalidInput(
                "url: this address is not on the public Internet; "
                "POSTROOM_WEBHOOK_ALLOW opens networks of your own"
            )

    def is_open(self, address: Address) -> bool:
        """Whether an address may be spoken to; one inside another counts as what it stands for."""
        if any(address.version == n.version and address in n for n in self.allowed):
            return True
        inner = _inside(address)
        if inner is not None:
            return self.is_open(inner)
        if any(address.version == n.version and address in n for n in _NOT_OURS_TO_ASK):
            return False
        return address.is_global and not address.is_multicast

    async def resolve(self, host: str, port: int) -> Address | None:
        """The address to connect to, looked up once; None if any of them must not be."""
        found = await in_own_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(str(info[4][0]).partition("%")[0]) for info in found]
        if not addresses or not all(self.is_open(address) for address in addresses):
            return None
        return addresses[0]


def _literal(host: str) -> Address | None:
    """The address that a host is, also in the spellings that only a C library reads."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ip_address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _inside(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 one carries."""
    if not isinstance(address, IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
