"""Mail that a provider receives and posts to a webhook of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class InboundRequest:
    """A request of the provider: headers by lower-case name, body, and time of arrival."""

    headers: Mapping[str, str]
    body: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class InboundMail:
    """A mail of a posting, and the addresses it may be for."""

    raw: bytes
    recipients: tuple[str, ...]


class Inbound(Protocol):
    """Reads the postings of one provider."""

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """The maximum size of the body with these headers; None if there is no maximum.

        Raises:
            Unauthenticated: the headers show that it is not from the provider.
        """

    async def read(self, posting: InboundRequest) -> Sequence[InboundMail]:
        """The mails of a posting; none if it is about something else.

        Raises:
            Unauthenticated: it is not from the provider, or too old.
            Malformed: it is not in the documented form.
            ProviderError: what it refers to cannot be fetched.
        """


class Fetcher(Protocol):
    """Fetches a URL of a provider."""

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        """The whole response; redirects are not followed. Raises ProviderError."""


class Bucket(Protocol):
    """Where a provider stores mail that is too large for a posting."""

    @property
    def name(self) -> str:
        """The name of the bucket."""

    async def read(self, key: str) -> bytes:
        """A whole mail. Raises InvalidInput, TooLarge, ProviderError."""


class Leases(Protocol):
    """Names that one holder can have at a time."""

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        """Take or renew a lease; False while another holder has it."""
