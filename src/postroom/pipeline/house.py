"""Everything that work in the house needs: the ports, the limits, the time."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroom.mail.authentication import Trust
from postroom.model.limits import Limits
from postroom.pipeline.parsing import Parser
from postroom.ports.blobs import BlobStore
from postroom.ports.store import Store

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def utc_now() -> datetime:
    """The time, aware and in UTC."""
    return datetime.now(UTC)


def random_id(prefix: str) -> str:
    """Make an id that nobody can guess: a prefix and 130 random bits."""
    number = secrets.randbits(130)
    return prefix + "_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(0, 130, 5))


@dataclass(frozen=True, kw_only=True)
class House:
    """The parts that `app` puts together; tests pin the clock and the ids."""

    store: Store
    blobs: BlobStore
    limits: Limits = field(default_factory=Limits)
    domains: tuple[str, ...] = ("postroom.localhost",)
    trust: Trust = Trust()
    parser: Parser = field(default_factory=lambda: Parser(Limits()))
    clock: Callable[[], datetime] = utc_now
    new_id: Callable[[str], str] = random_id
