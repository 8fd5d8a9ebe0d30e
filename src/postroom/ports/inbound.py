"""The door for mail that a provider has received for us and posts to us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Posting:
    """What a provider posted: its headers by lower-case name, its body, and when it came."""

    headers: Mapping[str, str]
    body: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class Handed:
    """A mail out of a posting, and everyone it may be for."""

    raw: bytes
    recipients: tuple[str, ...]


class Inbound(Protocol):
    """Reads the postings of one provider."""

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """How many bytes the provider may have sent with these headers; None if any number.

        Raises:
            Unauthenticated: the headers alone show that it does not come from the provider.
        """

    async def read(self, posting: Posting) -> Sequence[Handed]:
        """The mails of a posting; none if it is about something else.

        Raises:
            Unauthenticated: it does not come from the provider, or is too old.
            Malformed: it is not in the form that the provider documents.
            ProviderError: what it points to cannot be had.
        """


class Fetcher(Protocol):
    """Reads what is at a URL of a provider."""

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        """All of it, following nothing. Raises ProviderError."""


class Bucket(Protocol):
    """Where a provider leaves mail that is too large for a posting."""

    @property
    def name(self) -> str:
        """Which bucket it is."""

    async def read(self, key: str) -> bytes:
        """A whole mail. Raises InvalidInput, TooLarge, ProviderError."""
