"""The networks that a connection to a mail server may go to."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from postroom.model.values import dataclass

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class AnyNetwork:
    """The owner named the server, so any address is allowed."""


@dataclass(frozen=True, slots=True)
class PublicNetworks:
    """A key named the server: public addresses with mail ports, and any port of these networks."""

    networks: tuple[Network, ...] = ()


NetworkPolicy = AnyNetwork | PublicNetworks
ANY_NETWORK = AnyNetwork()
