"""The door to other people's servers: one POST, to an address that may be spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from postroom.model.webhook import Posted


class Poster(Protocol):
    """Posts to strangers without being led astray by them."""

    def check(self, url: str) -> None:
        """Raises InvalidInput if a URL could never be posted to."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        """Post once, following nothing; it does not raise."""


class NoPoster:
    """For a house that tells nobody."""

    def check(self, url: str) -> None:
        """Anything may be named where nothing is told."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        return Posted(None, "nobody is told anything here")
