"""What the OAuth server needs of the installation: its settings, and documents of clients."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field

from postroom.errors import ProviderError
from postroom.model.oauth import ACCESS_FOR_S, REFRESH_FOR_S, OAuthClient
from postroom.model.values import dataclass
from postroom.ports.provider import Fetcher

_MAX_RECENT = 200
_RECENT_S = 300.0


class NoFetcher:
    """For an installation that fetches nothing."""

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        raise ProviderError("nothing is fetched here")


@dataclass(frozen=True, slots=True)
class RecentClients:
    """Clients by the URL of their metadata document, for a few minutes after it was read."""

    clock: Callable[[], float] = time.monotonic
    _read: OrderedDict[str, tuple[float, OAuthClient]] = field(default_factory=OrderedDict)

    def get(self, client_id: str) -> OAuthClient | None:
        at, client = self._read.get(client_id, (0.0, None))
        return client if self.clock() < at + _RECENT_S else None

    def put(self, client: OAuthClient) -> None:
        self._read[client.id] = self.clock(), client
        self._read.move_to_end(client.id)
        if len(self._read) > _MAX_RECENT:
            self._read.popitem(last=False)


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Whether clients may register, how long tokens last, and how documents are fetched."""

    registration: bool = True
    access_for_s: int = ACCESS_FOR_S
    refresh_for_s: int = REFRESH_FOR_S
    documents: Fetcher = field(default_factory=NoFetcher)
    recent: RecentClients = field(default_factory=RecentClients)
