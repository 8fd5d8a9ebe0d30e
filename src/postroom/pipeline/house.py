"""Everything that work in the house needs: the ports, the limits, the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroom.mail.authentication import Trust
from postroom.model.ids import random_id
from postroom.model.limits import Limits
from postroom.pipeline.counts import Counts
from postroom.pipeline.parsing import Parser
from postroom.pipeline.watch import Watch
from postroom.ports.blobs import BlobStore
from postroom.ports.embedder import Embedder
from postroom.ports.imap import LiveImap
from postroom.ports.inbound import Inbound
from postroom.ports.poster import NoPoster, Poster
from postroom.ports.provider import NoProviders, Providers
from postroom.ports.store import Store


def utc_now() -> datetime:
    """The time, aware and in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class House:
    """The parts that `app` puts together; tests pin the clock and the ids."""

    store: Store
    blobs: BlobStore
    imap: LiveImap | None = None
    limits: Limits = field(default_factory=Limits)
    domains: tuple[str, ...] = ("postroom.localhost",)
    trust: Trust = Trust()
    catch_all: str | None = None
    has_relay: bool = False
    embedder: Embedder | None = None
    memory_search: bool = True
    learning: asyncio.Lock = field(default_factory=asyncio.Lock)
    parser: Parser = field(default_factory=lambda: Parser(Limits()))
    poster: Poster = field(default_factory=NoPoster)
    inbound: Mapping[str, Inbound] = field(default_factory=dict)
    providers: Providers = field(default_factory=NoProviders)
    clock: Callable[[], datetime] = utc_now
    new_id: Callable[[str], str] = random_id
    watch: Watch = field(default_factory=Watch)
    counts: Counts = field(default_factory=Counts)
